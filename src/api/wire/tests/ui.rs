//! The streams of chat interfaces, frame for frame, and where they depend on what else happened in the run.

use serde_json::{Value, json};

use super::*;
use crate::api::wire::ag_ui::events::AgUi;
use crate::api::wire::ai_sdk::chunks::AiSdk;
use crate::api::wire::ui::act::Dialect;
use crate::api::wire::ui::events::UiEvents;
use crate::types::approval::{Approval, ApprovalDecision, ApprovalRequest};
use crate::types::event::{Asked, Leg};
use crate::types::run::RunOptions;
use crate::types::{Message, Role};

fn chat() -> UiEvents<AiSdk> {
    UiEvents::of_request(AiSdk::default(), names())
}

fn agent() -> UiEvents<AgUi> {
    UiEvents::of_request(AgUi { thread: "thread-1".into(), run: "run-1".into() }, names())
}

/// The data of a stream's frames, but for what ends it.
fn data(stream: &str) -> Vec<Value> {
    let frames = stream.split_terminator("\n\n").map(|frame| frame.strip_prefix("data: ").expect("it has data"));
    frames.map(|data| serde_json::from_str(data).expect("it is JSON")).collect()
}

fn types(stream: &str) -> Vec<String> {
    data(stream).iter().map(|chunk| chunk["type"].as_str().unwrap().to_owned()).collect()
}

fn begun() -> Event {
    let reserved = Reservation { input_tokens: 1, output_tokens: 1, cost: Micros(0) };
    Event::StepStarted { step: 1, reserved, model: None, closing: None }
}

fn asks() -> Event {
    let (reason, expires_ms) = ("It writes.".into(), 1_795_304_559_339);
    Event::ApprovalRequired(Box::new(ApprovalRequest { step: 1, call: call(), reason, expires_ms }))
}

fn decided(decision: ApprovalDecision, awaits_others: bool) -> Event {
    let (call_id, name) = (call().id, call().name);
    let none = || None;
    Event::ApprovalResolved(Box::new(Approval {
        step: 1,
        call_id,
        name,
        decision,
        by: none(),
        user: none(),
        reason: none(),
        arguments: none(),
        result: none(),
        claim: none(),
        awaits_others,
    }))
}

fn waits(reason: StopReason) -> Event {
    let required = RequiredCall { call: call(), reason: None, expires_ms: None };
    Event::RunFinished(Box::new(Outcome { required_calls: vec![required], ..outcome(reason) }))
}

fn goes_on(answers: Vec<Message>) -> Event {
    let options = RunOptions {
        tool_choice: crate::types::offer::ToolChoice::Auto,
        sampling: std::sync::Arc::default(),
        parallel_tool_calls: true,
        on_disconnect: crate::types::run::OnDisconnect::Continue,
        on_unknown_outcome: crate::types::run::OnUnknownOutcome::Fail,
        reconnect_grace_ms: 0,
        hide_intermediate_text: false,
        stream_tool_arguments: false,
        max_discards: 0,
        response: None,
    };
    let asked = Asked { model: None, system: Vec::new(), client_tools: Vec::new(), max_output_tokens: None, options };
    let leg = Leg {
        number: 1,
        claim: None,
        asked: Box::new(asked),
        answers,
        decisions: Vec::new(),
        warnings: Vec::new(),
        guarded: Vec::new(),
    };
    Event::RunResumed { leg: Some(leg) }
}

fn finished(outcome: ToolOutcome) -> Event {
    Event::ToolFinished { step: 1, call_id: call().id, name: "calculator".into(), outcome }
}

fn done() -> Event {
    Event::RunFinished(Box::new(outcome(StopReason::Done)))
}

#[test]
fn a_chat_is_shown_chunks_of_a_ui_message() {
    insta::assert_snapshot!(encode(chat(), &story()));
}

#[test]
fn an_agent_of_ag_ui_is_shown_its_events() {
    insta::assert_snapshot!(encode(agent(), &story()));
}

#[test]
fn what_became_void_is_told_to_those_who_read_it() {
    let voided = with_a_void_step(done());
    let chunks = data(&encode(chat(), &voided));
    let told =
        json!({"type": "data-loopgate", "data": {"event": "step.discarded", "step": 1, "reason": "interrupted"}});
    assert!(chunks.contains(&told), "{chunks:?}");
    let events = data(&encode(agent(), &voided));
    let custom = events.iter().find(|event| event["type"] == "CUSTOM").expect("it is told");
    assert_eq!(custom["value"]["messageIds"], json!([events[1]["messageId"]]));
    let late = encode(chat().without([1]), &voided);
    assert_eq!((late.contains("half"), late.contains("data-loopgate"), late.contains("whole")), (false, false, true));
}

#[test]
fn a_call_that_is_begun_again_after_a_crash_is_told_once() {
    let begins = || Event::ToolStarted { step: 1, call: call(), effect: Effect::Read };
    let resumed = Event::RunResumed { leg: None };
    let records = record(vec![Event::RunStarted, begun(), begins(), resumed, begins(), finished(result()), done()]);
    let told = types(&encode(chat(), &records));
    let expected = ["start", "start-step", "tool-input-available", "tool-output-available", "finish-step", "finish"];
    assert_eq!(told, expected);
}

#[test]
fn a_call_that_its_run_ended_before_has_a_result_all_the_same() {
    let begins = Event::ToolStarted { step: 1, call: call(), effect: Effect::Read };
    let cancelled = Event::RunFinished(Box::new(outcome(StopReason::Cancelled)));
    let records = record(vec![Event::RunStarted, begun(), begins, cancelled]);
    let told = types(&encode(chat(), &records));
    assert_eq!(told[3..], ["tool-output-error", "finish-step", "abort"]);
    let events = data(&encode(agent(), &records));
    assert_eq!(events.last().unwrap()["outcome"], json!({"type": "cancelled"}));
}

#[test]
fn a_request_with_a_decision_goes_on_with_the_call_that_its_client_knows() {
    let begins = Event::ToolStarted { step: 1, call: call(), effect: Effect::Read };
    let approved = decided(ApprovalDecision::Approve, false);
    let records = record(vec![approved, goes_on(Vec::new()), begins, finished(result()), begun(), done()]);
    let told = types(&encode(chat(), &records));
    assert_eq!(told, ["start", "tool-output-available", "start-step", "finish-step", "finish"]);
    let events = types(&encode(agent(), &records));
    assert_eq!(events[..4], ["RUN_STARTED", "TOOL_CALL_START", "TOOL_CALL_END", "TOOL_CALL_RESULT"]);
    let denied = decided(ApprovalDecision::Deny, false);
    let records = record(vec![denied, goes_on(Vec::new()), finished(ToolOutcome::skipped("No.")), done()]);
    assert_eq!(types(&encode(chat(), &records)), ["start", "tool-output-denied", "finish"]);
    let others = record(vec![decided(ApprovalDecision::Approve, true), waits(StopReason::Approval)]);
    assert_eq!(types(&encode(chat(), &others)), ["start", "tool-approval-request", "finish"], "it still waits");
}

/// What a whole run looks like to a reader that comes late, although its client has answered it meanwhile.
#[test]
fn a_whole_run_is_one_message() {
    let asked = vec![Event::RunStarted, begun(), asks(), waits(StopReason::Approval)];
    let approved = decided(ApprovalDecision::Approve, false);
    let records = record([asked, vec![approved, goes_on(Vec::new()), finished(result()), done()]].concat());
    let whole = || UiEvents::of_run(AiSdk::default(), names());
    let expected = [
        "start",
        "start-step",
        "tool-input-available",
        "tool-approval-request",
        "finish-step",
        "tool-output-available",
        "finish",
    ];
    assert_eq!(types(&encode(whole(), &records)), expected);
    // It goes on too if nobody decides in time.
    let late = record(vec![asks(), waits(StopReason::Approval), Event::RunResumed { leg: None }, begun(), done()]);
    assert_eq!(types(&encode(whole(), &late)).last().map(String::as_str), Some("finish"));
    assert_eq!(encode(whole(), &late).matches("\"finish\"").count(), 1);
    // One that still waits ends where it does.
    let (mut waiting, mut out) = (whole(), BytesMut::new());
    for record in &records[..4] {
        waiting.encode(record, &mut out);
    }
    assert!(!waiting.has_ended());
    waiting.conclude(&mut out);
    let told = types(std::str::from_utf8(&out).unwrap());
    assert_eq!(
        (told[3..].join(" "), waiting.has_ended()),
        ("tool-approval-request finish-step finish".to_owned(), true)
    );
}

#[test]
fn a_reader_that_comes_late_is_told_what_the_client_answered() {
    let answer = json!({"role": "tool", "tool_call_id": call().id.as_str(), "content": r#"{"sky":"rain"}"#});
    let answer = serde_json::value::to_raw_value(&answer).unwrap();
    let dialect = crate::types::conversation::Dialect::OpenaiChat;
    let answers = vec![Message::from_valid_json(Role::Tool, dialect, answer, 10)];
    let records = record(vec![Event::RunStarted, begun(), waits(StopReason::ClientTools), goes_on(answers), done()]);
    let chunks = data(&encode(UiEvents::of_run(AiSdk::default(), names()), &records));
    let told = json!({"type": "tool-output-available", "toolCallId": call().id.as_str(), "output": {"sky": "rain"}});
    assert!(chunks.contains(&told), "{chunks:?}");
    let of_request = encode(chat(), &records[3..]);
    assert!(!of_request.contains("tool-output"), "the client itself knows: {of_request}");
}

#[test]
fn an_interrupt_says_what_is_asked_and_until_when() {
    let required =
        RequiredCall { call: call(), reason: Some("It writes.".into()), expires_ms: Some(1_795_304_559_339) };
    let end = Outcome { required_calls: vec![required], ..outcome(StopReason::Approval) };
    let records = record(vec![Event::RunStarted, asks(), Event::RunFinished(Box::new(end))]);
    let events = data(&encode(agent(), &records));
    let end = &events.last().unwrap()["outcome"];
    let interrupt = &end["interrupts"][0];
    assert_eq!((&end["type"], &interrupt["reason"]), (&json!("interrupt"), &json!("tool_call")));
    assert_eq!(interrupt["id"], "mcpr_019a0000000070008000000000000001");
    assert_eq!(interrupt["message"], "The call of calculator needs an approval. It writes.");
    assert_eq!(interrupt["expiresAt"], "2026-11-21T23:42:39.339Z");
}

#[test]
fn a_stream_that_cannot_be_told_to_its_end_says_so() {
    fn broken<D: Dialect>(mut events: UiEvents<D>) -> Vec<String> {
        let mut out = BytesMut::new();
        events.encode(&record(vec![begun()])[0], &mut out);
        let error = crate::api::error::ApiError::internal(&"the store is gone").object();
        events.break_off(error, &mut out);
        types(String::from_utf8(out.to_vec()).unwrap().trim_end_matches("data: [DONE]\n\n"))
    }
    assert_eq!(broken(chat()), ["start", "start-step", "finish-step", "error", "finish"]);
    assert_eq!(broken(agent()), ["RUN_STARTED", "STEP_STARTED", "STEP_FINISHED", "RUN_ERROR"]);
}
