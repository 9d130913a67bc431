use std::sync::Arc;

use super::*;
use crate::types::fallback::FellBack;
use crate::types::price::StepModel;

pub(super) fn fell_back() -> Event {
    Event::ProviderFallback(Box::new(FellBack {
        step: 1,
        to: Arc::new(StepModel { upstream: "spare".into(), model: "s".into(), ..StepModel::default() }),
        from_upstream: "openai".into(),
        from_model: "m".into(),
        attempt: 1,
        kind: ErrorKind::UpstreamUnavailable,
        cause: "it was busy".into(),
        skipped: vec!["dear/d: the run's cost budget has no room for it".into()],
    }))
}

#[test]
fn what_another_model_says_bears_its_name_unless_an_agent_was_named() {
    let said = || Event::TextDelta { step: 1, text: "hi".into() };
    let records = record(vec![said(), fell_back(), said()]);
    for names_agent in [false, true] {
        let names = RunNames { names_agent, model: "m".into(), ..names() };
        let (ours, plain) = (names.clone(), ChatChunks::new(names.clone(), false, false, false));
        for text in [encode(AgentEvents::new(ours, false), &records), encode(plain, &records)] {
            let named = |model: &str| text.matches(&format!("\"model\":\"{model}\",\"choices\"")).count();
            assert_eq!(named("spare/s") > 0, !names_agent, "{text}");
            assert!(named("m") > 0, "{text}");
        }
    }
}
