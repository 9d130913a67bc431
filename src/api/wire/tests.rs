//! One run, in every dialect, frame for frame.

mod fallbacks;
mod hedges;
mod messages;
mod responses;
mod results;
mod ui;
mod usage;

use bytes::BytesMut;

use super::agent::stream::AgentEvents;
use super::openai_chat::completion::completion;
use super::openai_chat::stream::ChatChunks;
use super::{Encoder, Resumed, RunNames};
use crate::api::wire::agent::object::AgentObject;
use crate::types::conversation::Part;
use crate::types::event::{DiscardReason, Reservation};
use crate::types::outcome::RequiredCall;
use crate::types::report::{CallReport, Report, StepReport};
use crate::types::shortfall::BudgetKind;
use crate::types::{
    BudgetOwner, BudgetStatus, CallId, Effect, ErrorKind, Event, Micros, Outcome, Record, RunError, RunId, SessionId,
    Shortfall, StopReason, ToolCall, ToolOutcome, ToolProgress, TurnEnd, Usage, Used,
};

const RUN: &str = "run_019a0000000070008000000000000000";

fn names() -> RunNames {
    RunNames {
        id: RunId::parse(RUN).unwrap(),
        session: SessionId::parse("sess_42"),
        model: "demo \"x\"".into(),
        names_agent: true,
        created_ms: 1_795_304_559_339,
        leg: 0,
        trace: None,
    }
}

fn call() -> ToolCall {
    let id = RunId::parse(RUN).unwrap().call(1);
    ToolCall { id, name: "calculator".into(), arguments: r#"{"expression":"1+1"}"#.into() }
}

#[test]
fn arguments_on_several_lines_stay_within_one_line_of_their_event() {
    let call = ToolCall { arguments: "{\n  \"expression\": \"1\"\r\n}".into(), ..call() };
    let records = record(vec![Event::ToolStarted { step: 1, call, effect: Effect::Read }]);
    let frame = encode(AgentEvents::new(names(), false), &records);
    assert_eq!(frame.trim_end().lines().count(), 3, "{frame}");
    assert!(frame.contains(r#""arguments":{"expression":"1"}"#), "{frame}");
}

fn usage() -> Usage {
    Usage { prompt_tokens: 10, completion_tokens: 4, cached_tokens: 3, reasoning_tokens: 1, ..Usage::default() }
}

fn result() -> ToolOutcome {
    ToolOutcome { parts: vec![Part::text("2\n")], latency_ms: 1, ..ToolOutcome::default() }
}

fn progress() -> ToolProgress {
    ToolProgress { done: Some(0.5), total: None, message: Some("half".into()) }
}

fn outcome(reason: StopReason) -> Outcome {
    let report = CallReport {
        call_id: call().id,
        name: "calculator".into(),
        arguments: call().arguments,
        result_bytes: 2,
        latency_ms: 1,
        skipped: false,
        outcome_unknown: false,
        error: None,
        measurements: Vec::new(),
        decisions: Vec::new(),
    };
    let step = StepReport {
        index: 1,
        llm_latency_ms: 7,
        tool_latency_ms: 1,
        usage: usage(),
        cost: Micros(1230),
        fallback: None,
        turn_end: TurnEnd::ToolCalls,
        tool_calls: vec![report],
    };
    Outcome {
        reason,
        output_text: "it is 2".into(),
        refusal: String::new(),
        reasoning: String::new(),
        error: None,
        required_calls: Vec::new(),
        stays_open: false,
        usage: usage(),
        leg_usage: None,
        cost: Micros(1230),
        of_fallbacks: Vec::new(),
        delegated: None,
        budget: budget(),
        short: None,
        iterations: 2,
        tool_calls: 1,
        warnings: Vec::new(),
        report: Report { total_ms: 9, llm_time_ms: 8, tool_time_ms: 1, steps: vec![step], ..Report::default() }.into(),
    }
}

fn budget() -> BudgetStatus {
    let used = Used { tokens: 14, cost: Micros(1230) };
    BudgetStatus { tokens: Some(100), cost: Some(Micros(5_000)), used, unconfirmed: Used::default() }
}

fn record(events: Vec<Event>) -> Vec<Record> {
    (1..).zip(events).map(|(seq, event)| Record { seq, at_ms: 0, event }).collect()
}

/// A run in which everything happens that has a frame of its own.
fn story() -> Vec<Record> {
    let (upstream, model, cause) = ("openai".into(), "m".into(), "it was busy".into());
    let kind = ErrorKind::UpstreamUnavailable;
    let completed = |step| Event::StepCompleted {
        step,
        usage: usage(),
        turn_end: TurnEnd::ToolCalls,
        latency_ms: 7,
        budget: budget(),
    };
    let started = |step| {
        let reserved = Reservation::default();
        Event::StepStarted { step, reserved, model: None, closing: None }
    };
    record(vec![
        Event::RunStarted,
        started(1),
        Event::ProviderRetry { step: 1, upstream, model, attempt: 1, delay_ms: 1000, kind, cause },
        fallbacks::fell_back(),
        hedges::started(),
        hedges::ended(),
        Event::ThinkingDelta { step: 1, text: "hm".into() },
        Event::ToolArgumentsDelta { step: 1, call_id: call().id, delta: "{\"expr".into() },
        Event::ToolStarted { step: 1, call: call(), effect: Effect::Read },
        Event::ToolProgress { step: 1, call_id: call().id, name: "calculator".into(), progress: progress() },
        Event::ToolFinished { step: 1, call_id: call().id, name: "calculator".into(), outcome: result() },
        completed(1),
        Event::BudgetWarning { owner: BudgetOwner::Run, kind: BudgetKind::Tokens, used: 80, limit: 100 },
        Event::BudgetWarning { owner: BudgetOwner::Key, kind: BudgetKind::Cost, used: 800_000, limit: 1_000_000 },
        started(2),
        Event::TextDelta { step: 2, text: "it ".into() },
        Event::TextDelta { step: 2, text: "is \"2\"\n".into() },
        completed(2),
        Event::RunFinished(Box::new(outcome(StopReason::Done))),
    ])
}

fn encode(mut encoder: impl Encoder, records: &[Record]) -> String {
    let mut out = BytesMut::new();
    for record in records {
        encoder.encode(record, &mut out);
    }
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn the_agent_endpoint_shows_every_event_as_one_frame() {
    insta::assert_snapshot!(encode(AgentEvents::new(names(), true), &story()));
}

#[test]
fn the_chat_endpoint_shows_nothing_but_chunks() {
    let plain = encode(ChatChunks::new(names(), false, false, false), &story());
    insta::assert_snapshot!(plain);
    for line in plain.lines().filter(|line| !line.is_empty()) {
        assert!(line.starts_with("data: {") || line.starts_with("id: "), "{line}");
    }
}

#[test]
fn usage_comes_in_a_chunk_of_its_own_when_asked_for() {
    let chunks = encode(ChatChunks::new(names(), true, false, false), &story());
    let last = chunks.trim_end().rsplit("\n\n").next().unwrap();
    insta::assert_snapshot!(last);
    assert_eq!(chunks.matches(r#""usage":null"#).count(), chunks.matches("data: ").count() - 1);
}

#[test]
fn the_extension_rides_on_ordinary_chunks() {
    insta::assert_snapshot!(encode(ChatChunks::new(names(), false, true, false), &story()));
}

#[test]
fn the_plain_response_is_the_same_run() {
    let outcome = outcome(StopReason::Done);
    let json = serde_json::to_string_pretty(&completion(&names(), &outcome, true)).unwrap();
    insta::assert_snapshot!(json);
}

#[test]
fn the_clients_calls_are_openais() {
    let mut waiting = outcome(StopReason::ClientTools);
    waiting.output_text = String::new();
    let second = ToolCall { id: CallId::foreign("call_2"), arguments: "not JSON".into(), ..call() };
    waiting.required_calls = vec![required(call()), required(second)];
    let records = record(vec![Event::RunStarted, Event::RunFinished(Box::new(waiting.clone()))]);
    let chunks = encode(ChatChunks::new(names(), false, false, false), &records);
    let json = serde_json::to_string_pretty(&completion(&names(), &waiting, false)).unwrap();
    insta::assert_snapshot!(format!("{chunks}\n{json}"));
}

#[test]
fn a_call_whose_outcome_is_unknown_is_handed_out_like_the_clients() {
    let mut waiting = outcome(StopReason::OutcomeAsked);
    waiting.output_text = String::new();
    waiting.required_calls =
        vec![RequiredCall { call: call(), reason: Some("It is not known.".into()), expires_ms: None }];
    let json = serde_json::to_value(completion(&names(), &waiting, false)).unwrap();
    let (choice, agent) = (&json["choices"][0], &json["agent"]);
    assert_eq!((&choice["finish_reason"], &agent["status"]), (&"tool_calls".into(), &"requires_action".into()));
    assert_eq!(
        (&agent["stop_reason"], &agent["required_action"]["type"]),
        (&"outcome_asked".into(), &"outcome_unknown".into())
    );
    let asked = &agent["required_action"]["calls"][0];
    assert_eq!(asked["call_id"], choice["message"]["tool_calls"][0]["id"]);
    assert_eq!(asked["reason"], "It is not known.");
}

#[test]
fn a_run_that_a_budget_ended_says_which_one_and_how_much_it_lacked() {
    let mut ended = outcome(StopReason::CostBudget);
    ended.short = Some(Shortfall {
        owner: BudgetOwner::Session,
        kind: BudgetKind::Cost,
        limit: 500_000,
        taken: 400_000,
        set_aside: 100_000,
        needed: 150_000,
        renews_in_s: None,
    });
    let names = names();
    let agent = serde_json::to_value(AgentObject::new(&names.id, None, &ended, false)).unwrap();
    let said = "The run stopped because the cost budget of the session has no room for another model call: $0.3 of $0.5 \
                used, $0.1 set aside by live runs, $0.15 needed, $0.05 missing.";
    assert_eq!(agent["message"], said);
    let shortfall = serde_json::json!({
        "scope": "session", "kind": "cost", "limit": 0.5, "used": 0.3, "set_aside": 0.1, "missing": 0.05,
        "retry_after_s": 5,
    });
    assert_eq!(agent["budget"]["shortfall"], shortfall);
    assert_eq!(agent["budget"]["cost_limit_usd"], 0.005, "the run's own budget stands beside it");
}

fn required(call: ToolCall) -> RequiredCall {
    RequiredCall { call, reason: None, expires_ms: None }
}

#[test]
fn failures_after_the_first_byte_are_frames() {
    let mut failed = outcome(StopReason::ProviderError);
    let error = RunError::new(ErrorKind::UpstreamUnavailable, "openai broke off");
    failed.error = Some(error);
    let finished = Event::RunFinished(Box::new(failed));
    let records = record(vec![Event::RunStarted, finished.clone()]);
    let native = encode(AgentEvents::new(names(), false), &records);
    let chat = encode(ChatChunks::new(names(), false, false, false), &records);
    insta::assert_snapshot!(format!("{native}\n{chat}"));

    // Text that went out and became void ends a chat stream; what follows is not shown.
    let voided = with_a_void_step(finished);
    let chat = encode(ChatChunks::new(names(), false, false, false), &voided);
    assert_eq!((chat.matches(r#""error""#).count(), chat.contains("whole")), (1, false), "{chat}");
}

/// A run whose first step became void after it had text, and its last event.
fn with_a_void_step(finished: Event) -> Vec<Record> {
    let (reason, unconfirmed) = (DiscardReason::Interrupted, Used::default());
    record(vec![
        Event::RunStarted,
        Event::TextDelta { step: 1, text: "half".into() },
        Event::StepDiscarded { step: 1, reason, usage: usage(), unconfirmed },
        Event::TextDelta { step: 2, text: "whole".into() },
        finished,
    ])
}

#[test]
fn a_void_step_is_told_of_or_left_out() {
    let voided = with_a_void_step(Event::RunFinished(Box::new(outcome(StopReason::Done))));
    let extended = encode(ChatChunks::new(names(), false, true, false), &voided);
    for part in ["half", "step.discarded", "whole", "run.completed"] {
        assert!(extended.contains(part), "{part}: {extended}");
    }
    let plain = encode(ChatChunks::new(names(), false, false, false).without([1]), &voided);
    assert_eq!((plain.contains("half"), plain.contains("whole"), plain.contains("error")), (false, true, false));
}

#[test]
fn a_run_that_a_limit_ended_says_so_in_a_chat_stream_too() {
    let limited = Outcome { output_text: "limit".into(), ..outcome(StopReason::MaxIterations) };
    let records = record(vec![Event::RunStarted, Event::RunFinished(Box::new(limited))]);
    let chat = encode(ChatChunks::new(names(), false, false, false), &records);
    assert!(chat.contains(r#""delta":{"content":"limit"}"#), "{chat}");
}

/// The story, then the client's answer to the calls that it ends with.
fn long_story() -> Vec<Record> {
    let mut events: Vec<_> = story().into_iter().map(|record| record.event).collect();
    let mut waiting = outcome(StopReason::ClientTools);
    waiting.required_calls = vec![required(call()), required(call())];
    events.pop();
    // On a chat endpoint, the discarded step ends the first answer, but not the second.
    let discarded = Event::StepDiscarded {
        step: 2,
        reason: DiscardReason::StreamBroke,
        usage: usage(),
        unconfirmed: Used::default(),
    };
    events.extend([discarded, Event::RunFinished(Box::new(waiting)), Event::RunResumed { leg: None }]);
    events.extend(story().into_iter().skip(1).map(|record| record.event));
    record(events)
}

/// The numbers that a stream's frames bear.
fn ids(stream: &str) -> Vec<u64> {
    stream.lines().filter_map(|line| line.strip_prefix("id: ")).map(|id| id.parse().unwrap()).collect()
}

/// Cuts a stream after every event and asserts that what comes after it is what a resumed one has.
fn assert_resumable<E: Encoder>(encoder: impl Fn() -> E) {
    let records = long_story();
    let whole = encode(encoder(), &records);
    for after in 0..=records.len() {
        let seen = encode(encoder(), &records[..after]);
        let rest = encode(Resumed::new(encoder(), after as u64), &records);
        assert_eq!(seen.clone() + &rest, whole, "cut after {after}");
        // A client names the last number that it saw, which may be an earlier one: events without a
        // frame have no number to see.
        let last = ids(&seen).last().copied().unwrap_or(0);
        assert_eq!(encode(Resumed::new(encoder(), last), &records), rest, "cut after {after}, seen {last}");
    }
    let ids = ids(&whole);
    assert!(ids.is_sorted_by(|one, other| one < other), "{ids:?}");
    assert_eq!(ids.last(), Some(&(records.len() as u64)));
}

#[test]
fn a_stream_that_was_cut_goes_on_where_it_was_cut() {
    assert_resumable(|| AgentEvents::new(names(), true));
    for include_usage in [false, true] {
        assert_resumable(|| ChatChunks::new(names(), include_usage, true, true));
        assert_resumable(|| ChatChunks::new(names(), include_usage, false, true));
    }
}

#[test]
fn frames_after_the_last_number_belong_to_an_unfinished_event() {
    let chunks = encode(ChatChunks::new(names(), true, true, true), &long_story());
    let frames: Vec<_> = chunks.split_inclusive("\n\n").collect();
    for cut in 0..=frames.len() {
        let seen = &frames[..cut];
        let numbered = seen.iter().rposition(|frame| frame.starts_with("id: ")).map_or(0, |at| at + 1);
        let last = ids(&seen.concat()).last().copied().unwrap_or(0);
        let rest = encode(Resumed::new(ChatChunks::new(names(), true, true, true), last), &long_story());
        assert_eq!(seen[..numbered].concat() + &rest, chunks, "cut after frame {cut}");
    }
}

#[test]
fn a_chunk_stream_of_an_answered_run_has_an_answer_for_each_response() {
    let chunks = encode(ChatChunks::new(names(), false, false, true), &long_story());
    assert_eq!(chunks.matches(r#""role":"assistant""#).count(), 2);
    assert_eq!(
        (chunks.matches(r#"data: {"error""#).count(), chunks.matches(r#""finish_reason":"stop""#).count()),
        (1, 1)
    );
    let records = long_story();
    let resumed = records.iter().position(|record| matches!(record.event, Event::RunResumed { .. })).unwrap();
    let second = encode(ChatChunks::new(names(), false, false, true), &records[resumed..]);
    assert!(chunks.ends_with(&second), "the second is as its own response was");
}

#[test]
fn text_joined_from_a_stream_is_the_text_of_the_run() {
    for stream in [
        encode(AgentEvents::new(names(), true), &story()),
        encode(ChatChunks::new(names(), true, false, true), &story()),
        encode(ChatChunks::new(names(), false, true, true), &story()),
    ] {
        let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
        let values = data.map(|data| serde_json::from_str::<serde_json::Value>(data).unwrap());
        let text: String =
            values.filter_map(|value| value["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect();
        assert_eq!(text, "it is \"2\"\n");
    }
}
