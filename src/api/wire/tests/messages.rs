//! Anthropic's dialect, where it depends on what else happened in the run.

use super::*;
use crate::api::wire::messages::events::{MessageEvents, Shown};

fn streamed() -> MessageEvents {
    MessageEvents::new(names(), Shown { frames: true, ..Shown::default() })
}

/// The message that a run's records come to.
fn whole(records: &[Record]) -> serde_json::Value {
    let mut events = MessageEvents::new(names(), Shown::default());
    for record in records {
        events.take(record);
    }
    serde_json::to_value(events.object()).unwrap()
}

#[test]
fn what_became_void_is_left_out_of_a_message() {
    let voided = with_a_void_step(Event::RunFinished(Box::new(outcome(StopReason::Done))));
    let text = serde_json::json!([{"type": "text", "text": "whole"}]);
    assert_eq!(whole(&voided)["content"], text);
    // A stream that has shown it ends there; one that has not goes on without it.
    let stream = encode(streamed(), &voided);
    assert_eq!((stream.matches("event: error").count(), stream.contains("whole")), (1, false), "{stream}");
    let plain = encode(streamed().without([1]), &voided);
    assert_eq!((plain.contains("half"), plain.contains("whole"), plain.contains("error")), (false, true, false));
}

#[test]
fn a_call_that_its_run_ended_before_has_a_result_all_the_same() {
    let records = record(vec![
        Event::RunStarted,
        Event::ToolStarted { step: 1, call: call(), effect: Effect::Read },
        Event::RunFinished(Box::new(outcome(StopReason::Cancelled))),
    ]);
    let message = whole(&records);
    assert_eq!(
        (&message["content"][1]["type"], &message["content"][1]["is_error"]),
        (&"mcp_tool_result".into(), &true.into())
    );
    assert_eq!(message["stop_reason"], "end_turn");
}

#[test]
fn a_call_that_is_begun_again_after_a_crash_is_shown_once() {
    let begun = || Event::ToolStarted { step: 1, call: call(), effect: Effect::Read };
    let finished = Event::ToolFinished { step: 1, call_id: call().id, name: "calculator".into(), outcome: result() };
    let ended = Event::RunFinished(Box::new(outcome(StopReason::Done)));
    let records = record(vec![Event::RunStarted, begun(), Event::RunResumed { leg: None }, begun(), finished, ended]);
    let stream = encode(streamed(), &records);
    assert_eq!(stream.matches("\"mcp_tool_use\"").count(), 1, "{stream}");
    assert_eq!(stream.matches("event: message_start").count(), 1, "{stream}");
}

#[test]
fn cached_input_is_counted_apart() {
    let records = record(vec![Event::RunStarted, Event::RunFinished(Box::new(outcome(StopReason::Done)))]);
    let usage = whole(&records)["usage"].clone();
    assert_eq!((&usage["input_tokens"], &usage["cache_read_input_tokens"]), (&7.into(), &3.into()), "{usage}");
}

#[test]
fn arguments_that_are_no_object_are_shown_as_one() {
    let call = ToolCall { arguments: "[1".into(), ..call() };
    let records = record(vec![Event::RunStarted, Event::ToolStarted { step: 1, call, effect: Effect::Read }]);
    assert_eq!(whole(&records)["content"][0]["input"], serde_json::json!({"malformed_arguments": "[1"}));
}
