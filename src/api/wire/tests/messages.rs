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

/// A run that may have called a tool before text of it became void.
fn void_text(has_called: bool, reason: DiscardReason) -> Vec<Event> {
    let (usage, unconfirmed) = (usage(), Used::default());
    let called = [
        Event::ToolStarted { step: 1, call: call(), effect: Effect::Read },
        Event::ToolFinished { step: 1, call_id: call().id, name: "calculator".into(), outcome: result() },
    ];
    let voided = [
        Event::TextDelta { step: 2, text: "half".into() },
        Event::StepDiscarded { step: 2, reason, usage, unconfirmed },
    ];
    let called = called.into_iter().filter(|_| has_called);
    std::iter::once(Event::RunStarted).chain(called).chain(voided).collect()
}

/// The kinds of errors in a stream of these events, whether it has ended, and whether its run goes on.
fn broken(events: Vec<Event>) -> (Vec<String>, bool, bool) {
    let (mut encoder, mut out) = (streamed(), BytesMut::new());
    for record in record(events) {
        encoder.encode(&record, &mut out);
    }
    let text = String::from_utf8(out.to_vec()).unwrap();
    let errors = text.lines().filter_map(|line| line.strip_prefix("data: {\"type\":\"error\",\"error\":{\"type\":\""));
    let kinds = errors.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect();
    (kinds, encoder.has_ended(), encoder.has_broken_off())
}

#[test]
fn a_stream_whose_text_is_void_is_to_be_asked_for_again_if_its_run_goes_on() {
    let asks_again = || Event::StepStarted { step: 3, reserved: Reservation::default(), model: None, closing: None };
    let retryable = || vec!["api_error".to_owned()];
    for has_called in [false, true] {
        let interrupted = void_text(has_called, DiscardReason::Interrupted);
        assert_eq!(broken(interrupted), (retryable(), true, true), "tools were called: {has_called}");
        for reason in [DiscardReason::StreamBroke, DiscardReason::EmptyResponse] {
            let mut events = void_text(has_called, reason);
            assert_eq!(broken(events.clone()), (Vec::new(), false, false), "it may go on or not");
            events.push(asks_again());
            assert_eq!(broken(events), (retryable(), true, true), "tools were called: {has_called}");
        }
    }
}

#[test]
fn a_stream_whose_text_is_void_is_not_to_be_asked_for_again_if_its_run_has_called_tools_and_fails() {
    for (has_called, kind) in [(false, "api_error"), (true, "invalid_request_error")] {
        let mut events = void_text(has_called, DiscardReason::StreamBroke);
        let error = Some(RunError::new(ErrorKind::UpstreamUnavailable, "it broke off"));
        events.push(Event::RunFinished(Box::new(Outcome { error, ..outcome(StopReason::ProviderError) })));
        assert_eq!(broken(events), (vec![kind.to_owned()], true, false), "tools were called: {has_called}");
    }
}
