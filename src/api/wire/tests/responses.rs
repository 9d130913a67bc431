//! The dialect of OpenAI's Responses, where it depends on what else happened in the run.

use std::sync::Arc;

use super::*;
use crate::api::wire::responses::events::{ResponseEvents, Shown};
use crate::types::response::ResponseTerms;

fn events(from: Option<u64>) -> ResponseEvents {
    let shown = Shown { leg: None, from, with_agent: false, with_report: false };
    ResponseEvents::new(names(), Arc::new(ResponseTerms::default()), shown)
}

/// The response that a run's records come to.
fn whole(records: &[Record]) -> serde_json::Value {
    let mut events = events(None);
    for record in records {
        events.take(record);
    }
    serde_json::to_value(events.object()).unwrap()
}

#[test]
fn what_became_void_is_left_out_of_a_response() {
    let voided = with_a_void_step(Event::RunFinished(Box::new(outcome(StopReason::Done))));
    let output = whole(&voided)["output"].clone();
    assert_eq!(output.as_array().unwrap().len(), 1, "{output}");
    assert_eq!(output[0]["content"][0]["text"], "whole");
    // A stream has shown it, says that the item is incomplete, and ends with the same response.
    let stream = encode(events(Some(0)), &voided);
    assert!(stream.contains("half") && stream.contains("\"incomplete\""), "{stream}");
    let last = stream.split("data: ").last().unwrap();
    assert!(last.contains("whole") && !last.contains("half"), "{last}");
}

/// Who reads on behind the last number of a stream that broke off misses nothing.
#[test]
fn a_stream_that_breaks_off_ends_with_an_error_that_takes_no_number() {
    let mut events = events(Some(0));
    let mut out = BytesMut::new();
    let records = record(vec![Event::RunStarted, Event::TextDelta { step: 1, text: "half".into() }]);
    for record in &records {
        events.encode(record, &mut out);
    }
    let frames = events.frames();
    out.clear();
    let error = crate::api::wire::error::WireError::invalid("x", "It broke off.");
    events.break_off(error.into(), &mut out);
    let text = String::from_utf8(out.to_vec()).unwrap();
    assert!(text.contains(&format!("\"sequence_number\":{},", frames - 1)), "{text}");
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(events.frames(), frames);
}
