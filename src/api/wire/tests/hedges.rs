use std::sync::Arc;

use super::*;
use crate::types::hedge::{HedgeEnded, HedgeStarted, KeptCall};
use crate::types::price::StepModel;

fn spare() -> Arc<StepModel> {
    Arc::new(StepModel { upstream: "spare".into(), model: "s".into(), ..StepModel::default() })
}

pub(super) fn started() -> Event {
    Event::HedgeStarted(Box::new(HedgeStarted {
        step: 1,
        to: spare(),
        from_upstream: "openai".into(),
        from_model: "m".into(),
        after_ms: 2_000,
        reserved: Reservation::default(),
    }))
}

pub(super) fn ended() -> Event {
    Event::HedgeEnded(Box::new(HedgeEnded {
        step: 1,
        kept: KeptCall::Second,
        to: Some(spare()),
        dropped: Arc::new(StepModel { upstream: "openai".into(), model: "m".into(), ..StepModel::default() }),
        usage: usage(),
        unconfirmed: Used::default(),
        failed: Some((ErrorKind::UpstreamTimeout, "it was silent".into())),
    }))
}

#[test]
fn what_a_second_model_says_bears_its_name_unless_an_agent_was_named() {
    let records = record(vec![started(), ended(), Event::TextDelta { step: 1, text: "hi".into() }]);
    for names_agent in [false, true] {
        let names = RunNames { names_agent, model: "m".into(), ..names() };
        let (ours, plain) = (names.clone(), ChatChunks::new(names.clone(), false, false, false));
        for text in [encode(AgentEvents::new(ours, false), &records), encode(plain, &records)] {
            assert_eq!(text.contains("\"model\":\"spare/s\",\"choices\""), !names_agent, "{text}");
        }
    }
}
