//! Whatever the records say, spans nest and end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::types::event::{DiscardReason, Leg, Reservation, Turn};
use crate::types::fallback::FellBack;
use crate::types::hedge::{HedgeEnded, HedgeStarted, KeptCall};
use crate::types::price::StepModel;
use crate::types::testing::options;
use crate::types::trace::{RunTrace, SpanId};
use crate::types::{
    BudgetStatus, CallId, Effect, ErrorKind, Event, Outcome, Record, RunId, SpanKey, StopReason, ToolCall, ToolOutcome,
    TraceContext, TurnEnd, Usage, Used,
};

fn subject() -> Subject {
    let run = RunId::mint();
    Subject {
        trace: Some(RunTrace::of_run(&run, None)),
        run,
        session: None,
        agent: "default".into(),
        model: "m".into(),
        created_ms: 1_000,
        is_composite: false,
        content: Content::Off,
        asked: None,
    }
}

fn spans(subject: Subject, records: &[Record]) -> Vec<Span> {
    let mut fold = SpanFold::new(subject, Providers::default());
    for record in records {
        fold.apply(record);
    }
    fold.into_spans()
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![of_run(), of_step(), of_step()]
}

fn of_run() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::RunQueued),
        Just(Event::RunStarted),
        any::<bool>().prop_map(|by_client| Event::RunResumed {
            leg: by_client.then(|| Leg {
                number: 1,
                asked: Box::new(crate::types::event::Asked {
                    model: None,
                    system: Vec::new(),
                    client_tools: Vec::new(),
                    max_output_tokens: None,
                    options: options(),
                }),
                answers: Vec::new(),
                decisions: Vec::new(),
                claim: None,
                warnings: Vec::new(),
                guarded: Vec::new(),
            }),
        }),
        Just(Event::HandedOff),
        Just(Event::stop(StopReason::Cancelled)),
        Just(Event::RunFinished(Box::new(Outcome::unknown(StopReason::ClientTools)))),
    ]
}

fn hedge() -> impl Strategy<Value = Event> {
    prop_oneof![
        (1..4_u32).prop_map(|step| {
            Event::HedgeStarted(Box::new(HedgeStarted {
                step,
                to: Arc::default(),
                from_upstream: "u".into(),
                from_model: "m".into(),
                after_ms: 1,
                reserved: Reservation::default(),
            }))
        }),
        (1..4_u32, any::<bool>()).prop_map(|(step, is_first)| {
            Event::HedgeEnded(Box::new(HedgeEnded {
                step,
                kept: if is_first { KeptCall::First } else { KeptCall::Second },
                to: (!is_first).then(Arc::default),
                dropped: Arc::default(),
                usage: Usage::default(),
                unconfirmed: Used::default(),
                failed: None,
            }))
        }),
    ]
}

fn of_step() -> impl Strategy<Value = Event> {
    let call = |number: u16| CallId::foreign(&format!("call_{number}"));
    let step = 1..4_u32;
    prop_oneof![
        step.clone().prop_map(|step| Event::StepStarted {
            step,
            reserved: Reservation::default(),
            model: Some(Arc::new(StepModel::default())),
            closing: None,
        }),
        step.clone().prop_map(|step| Event::TextDelta { step, text: "text".into() }),
        step.clone().prop_map(|step| Event::ProviderRetry {
            step,
            upstream: "u".into(),
            model: "m".into(),
            attempt: 1,
            delay_ms: 1,
            kind: ErrorKind::UpstreamTimeout,
            cause: "cause".into(),
        }),
        step.clone().prop_map(|step| {
            Event::ProviderFallback(Box::new(FellBack {
                step,
                to: Arc::default(),
                from_upstream: "u".into(),
                from_model: "m".into(),
                attempt: 1,
                kind: ErrorKind::UpstreamTimeout,
                cause: "cause".into(),
                skipped: Vec::new(),
            }))
        }),
        hedge(),
        step.clone().prop_map(|step| Event::TurnFinished { step, turn: Box::<Turn>::default() }),
        step.clone().prop_map(|step| Event::StepDiscarded {
            step,
            reason: DiscardReason::Interrupted,
            usage: Usage::default(),
            unconfirmed: Used::default(),
        }),
        (step.clone(), 1..5_u16).prop_map(move |(step, number)| Event::ToolStarted {
            step,
            call: ToolCall { id: call(number), name: "echo".into(), arguments: String::new() },
            effect: Effect::Read,
        }),
        (step.clone(), 1..5_u16, any::<bool>(), 0..3_000_u64).prop_map(move |(step, number, is_lost, latency_ms)| {
            let mut outcome = if is_lost { ToolOutcome::lost("lost") } else { ToolOutcome::default() };
            outcome.latency_ms = latency_ms;
            Event::ToolFinished { step, call_id: call(number), name: "echo".into(), outcome }
        }),
        step.prop_map(|step| Event::StepCompleted {
            step,
            usage: Usage::default(),
            turn_end: TurnEnd::Stop,
            latency_ms: 1,
            budget: BudgetStatus::default(),
        }),
    ]
}

/// The same records, in which each step has a number of its own, and the run is queued once at most.
fn renumbered(mut records: Vec<Record>) -> Vec<Record> {
    let (mut newest, mut is_queued) = (0, false);
    records.retain(|record| record.event != Event::RunQueued || !std::mem::replace(&mut is_queued, true));
    for record in &mut records {
        match &mut record.event {
            Event::StepStarted { step, .. } => {
                newest += 1;
                *step = newest;
            }
            Event::TextDelta { step, .. }
            | Event::ThinkingDelta { step, .. }
            | Event::RefusalDelta { step, .. }
            | Event::ToolArgumentsDelta { step, .. }
            | Event::ProviderRetry { step, .. }
            | Event::TurnFinished { step, .. }
            | Event::StepDiscarded { step, .. }
            | Event::ToolStarted { step, .. }
            | Event::ToolProgress { step, .. }
            | Event::ToolFinished { step, .. }
            | Event::StepCompleted { step, .. } => *step = newest,
            Event::ProviderFallback(fell_back) => fell_back.step = newest,
            Event::HedgeStarted(started) => started.step = newest,
            Event::HedgeEnded(ended) => ended.step = newest,
            Event::ApprovalRequired(request) => request.step = newest,
            Event::ApprovalResolved(approval) => approval.step = newest,
            Event::ToolPending(pending) => pending.step = newest,
            Event::QuestionAsked(asked) => asked.step = newest,
            Event::QuestionResolved(resolved) => resolved.step = newest,
            Event::HookRan(ran) => ran.step = newest,
            Event::Handoff(handoff) => handoff.step = newest,
            Event::RunQueued
            | Event::RunStarted
            | Event::RunResumed { .. }
            | Event::Delegated(_)
            | Event::Guarded(_)
            | Event::Context(_)
            | Event::BudgetWarning { .. }
            | Event::CallAllowed { .. }
            | Event::LoopGuardTriggered(_)
            | Event::PlanCreated { .. }
            | Event::ReflectionStarted { .. }
            | Event::ToolAnswered { .. }
            | Event::StartHooked
            | Event::StopRequested { .. }
            | Event::StopAfterStep
            | Event::CommandsApplied { .. }
            | Event::HandedOff
            | Event::RunFinished(_) => {}
        }
    }
    records
}

proptest! {
    /// Also of a log that no driver would write, with clocks that go back.
    #[test]
    fn spans_nest_and_end(events in vec((event(), 0..4_000_u64), 0..60), ends in any::<bool>()) {
        let end = ends.then(|| (Event::RunFinished(Box::new(Outcome::unknown(StopReason::Done))), 2_000));
        let records: Vec<_> = events
            .into_iter()
            .chain(end)
            .zip(1..)
            .map(|((event, at_ms), seq)| Record { seq, at_ms, event })
            .collect();
        let records = renumbered(records);
        let subject = subject();
        let first = spans(subject.clone(), &records);
        prop_assert_eq!(&first, &spans(subject, &records), "the same records are the same spans");
        let (root, parts) = first.split_first().expect("there is a root");
        prop_assert_eq!(root.parent, None);
        let by_id: HashMap<_, _> = first.iter().map(|span| (span.id, span)).collect();
        prop_assert_eq!(by_id.len(), first.len(), "no two spans have the same id");
        for span in parts {
            prop_assert!(span.start_ms <= span.end_ms, "{:#?}", span);
            let parent = span.parent.and_then(|parent| by_id.get(&parent));
            let parent = parent.ok_or_else(|| TestCaseError::fail(format!("no parent: {span:#?}")))?;
            let is_within = parent.start_ms <= span.start_ms && span.end_ms <= parent.end_ms;
            prop_assert!(is_within, "{:#?} is not within {:#?}", span, parent);
        }
    }
}

#[test]
fn a_trace_is_bounded_and_says_what_it_lacks() {
    let step = |seq: u32| match seq {
        1 => Event::RunResumed { leg: None },
        _ => Event::StepStarted { step: seq, reserved: Reservation::default(), model: None, closing: None },
    };
    let records: Vec<_> = (1..6_000).map(|seq| Record { seq: seq.into(), at_ms: 1_000, event: step(seq) }).collect();
    let all = spans(subject(), &records);
    assert_eq!(all.len(), 5_001);
    let left_out = all[0].attributes.iter().find(|attribute| attribute.name == "loopgate.spans_left_out").unwrap();
    assert_eq!(left_out.value, Value::Number(1 + 5_998 * 2 - 5_000));
    let ids: HashSet<_> = all.iter().map(|span| span.id).collect();
    let is_there = |span: &Span| span.parent.is_none_or(|parent| ids.contains(&parent));
    assert!(all.iter().all(is_there), "the parent of each is told, which ends after it");
    let commands = (1..200).map(|seq| Event::CommandsApplied { upto: seq, messages: Vec::new() });
    let records: Vec<_> = commands.zip(1..).map(|(event, seq)| Record { seq, at_ms: 1_000, event }).collect();
    let root = &spans(subject(), &records)[0];
    assert_eq!((root.events.len(), root.events_left_out), (128, 71));
}

#[test]
fn a_trace_is_sent_in_requests_that_collectors_take() {
    let step =
        |seq: u32| Event::StepStarted { step: seq, reserved: Reservation::default(), model: None, closing: None };
    let records: Vec<_> = (1..200).map(|seq| Record { seq: seq.into(), at_ms: 1_000, event: step(seq) }).collect();
    let trace = || {
        let subject = subject();
        Trace { id: subject.trace_id(), of_run: None, spans: spans(subject, &records) }
    };
    let resource = [("service.name".to_owned(), "test".to_owned())];
    assert_eq!(requests(&resource, trace(), usize::MAX).len(), 1);
    let sent = requests(&resource, trace(), 10_000);
    assert!(sent.len() > 2 && sent.iter().all(|request| request.len() < 11_000));
    let read = |request: &[u8]| {
        let request = ExportTraceServiceRequest::decode(request).unwrap();
        let spans = request.resource_spans.iter().flat_map(|of| &of.scope_spans[0].spans).count();
        (request.resource_spans[0].resource.clone().unwrap().attributes.len(), spans)
    };
    let counts: Vec<_> = sent.iter().map(|request| read(request)).collect();
    assert_eq!(counts.iter().map(|(_, spans)| spans).sum::<usize>(), trace().spans.len());
    assert!(counts.iter().all(|(attributes, _)| *attributes == 1), "each says what it is of");
    assert_eq!(read(&sent.concat()).1, trace().spans.len(), "together they are one");
}

/// Also where there are many small texts, of which each counts for more than it takes, or each character takes several.
#[test]
fn what_an_attribute_tells_is_bounded_as_it_is_written() {
    let message = |text: &str| crate::types::Message::text(crate::types::Role::User, text);
    for messages in [vec![message("a"); 10_000], vec![message(&"\u{1}\"".repeat(50_000))], vec![message(""); 10_000]] {
        for told in [Content::Full.messages(&messages), Content::Full.instructions(&messages)] {
            assert!((15_000..55_000).contains(&told.len()), "{}", told.len());
        }
    }
    let told: serde_json::Value = serde_json::from_str(&Content::Full.instructions(&[message("Be kind.")])).unwrap();
    assert_eq!(told, serde_json::json!([{"type": "text", "content": "Be kind."}]));
    let turn = Turn { parts: vec![crate::types::conversation::Part::text("Yes.")], ..Turn::default() };
    let told: serde_json::Value = serde_json::from_str(&Content::Full.turn(&turn, "stop").unwrap()).unwrap();
    let parts = [serde_json::json!({"type": "text", "content": "Yes."})];
    assert_eq!(told, serde_json::json!([{"role": "assistant", "parts": parts, "finish_reason": "stop"}]));
}

#[test]
fn a_caller_is_the_parent_and_json_is_that_of_the_protocol() {
    let caller = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some("v=1"));
    let mut subject = subject();
    subject.trace = Some(RunTrace::of_run(&subject.run, caller));
    let trace = Trace {
        id: subject.trace_id(),
        of_run: subject.trace.clone(),
        spans: spans(subject, &[Record { seq: 1, at_ms: 1_005, event: Event::RunStarted }]),
    };
    let pieces = json(&[("service.name".into(), "test".into())], trace).collect::<Result<String, _>>().unwrap();
    let json: serde_json::Value = serde_json::from_str(&pieces).unwrap();
    let span = &json["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!((&span["parentSpanId"], &span["traceState"]), (&"b7ad6b7169203331".into(), &"v=1".into()));
    assert_eq!((&span["startTimeUnixNano"], &span["endTimeUnixNano"]), (&"1000000000".into(), &"1005000000".into()));
    assert_eq!(span["attributes"][0]["value"]["stringValue"], "invoke_agent");
}

/// A call of which the outcome is unknown may be made again in the same step.
#[test]
fn a_call_that_is_made_again_is_a_span_of_its_own() {
    let call = CallId::foreign("call_1");
    let begins = || Event::ToolStarted {
        step: 1,
        call: ToolCall { id: call.clone(), name: "put".into(), arguments: String::new() },
        effect: Effect::Write,
    };
    let ends = |outcome| Event::ToolFinished { step: 1, call_id: call.clone(), name: "put".into(), outcome };
    let events = [begins(), ends(ToolOutcome::lost("lost")), begins(), ends(ToolOutcome::default())];
    let records: Vec<_> = events.into_iter().zip(1..).map(|(event, seq)| Record { seq, at_ms: 1_000, event }).collect();
    let subject = subject();
    let made = |attempt| SpanId::of(&subject.run, SpanKey::ToolCall(&call, attempt));
    let all = spans(subject.clone(), &records);
    let calls = all.iter().filter(|span| span.name == "execute_tool put");
    let told: Vec<_> = calls.map(|span| (span.id, span.text("error.type"))).collect();
    assert_eq!(told, [(made(1), Some("outcome_unknown")), (made(2), None)]);
}

/// What a model or an upstream may write freely is no name.
#[test]
fn names_that_no_tool_has_are_not_told() {
    let refused = |number| (CallId::foreign(&format!("call_{number}")), "with password=hunter2");
    let ends =
        |(call_id, name): (CallId, &str), outcome| Event::ToolFinished { step: 1, call_id, name: name.into(), outcome };
    let turn = Turn { end: TurnEnd::Other("hunter2 ".repeat(100)), ..Turn::default() };
    let events = [
        Event::StepStarted { step: 1, reserved: Reservation::default(), model: None, closing: None },
        Event::TurnFinished { step: 1, turn: Box::new(turn) },
        ends(refused(1), ToolOutcome::skipped("There is no such tool.")),
        ends((refused(2).0, "look"), ToolOutcome::default()),
        ends((refused(3).0, "look"), ToolOutcome::skipped("The arguments are wrong.")),
    ];
    let records: Vec<_> = events.into_iter().zip(1..).map(|(event, seq)| Record { seq, at_ms: 1_000, event }).collect();
    let told = |content| {
        let all = spans(Subject { content, ..subject() }, &records);
        let calls = all.iter().filter(|span| span.name.starts_with("execute_tool"));
        (calls.map(|span| span.name.clone()).collect::<Vec<_>>(), format!("{all:?}").contains("hunter2"))
    };
    let of = |names: [&str; 3]| names.map(|name| format!("execute_tool {name}")).to_vec();
    assert_eq!(told(Content::Off), (of(["other", "look", "look"]), false));
    assert_eq!(told(Content::Full).0, of(["with password=[redacted]", "look", "look"]));
}

#[test]
fn a_trace_tells_so_much_of_what_was_said_and_no_more() {
    let said = "a".repeat(50_000);
    let step =
        |seq: u32| Event::StepStarted { step: seq, reserved: Reservation::default(), model: None, closing: None };
    let turn = || Turn { parts: vec![crate::types::conversation::Part::text(said.clone())], ..Turn::default() };
    let events = (1..=50).flat_map(|seq| [step(seq), Event::TurnFinished { step: seq, turn: Box::new(turn()) }]);
    let records: Vec<_> = events.zip(1..).map(|(event, seq)| Record { seq, at_ms: 1_000, event }).collect();
    let size = |content| {
        let subject = Subject { content, ..subject() };
        Trace { id: subject.trace_id(), of_run: None, spans: spans(subject, &records) }.size()
    };
    assert!(size(Content::Off) < 100_000);
    assert!((1_000_000..1_200_000).contains(&size(Content::Full)), "{}", size(Content::Full));
    assert!((50 * 500..150_000).contains(&size(Content::Previews)), "{}", size(Content::Previews));
    let all = spans(Subject { content: Content::Full, ..subject() }, &records);
    let with = |name| all.iter().filter(|span| span.attributes.iter().any(|attribute| attribute.name == name)).count();
    assert_eq!((with(names::OUTPUT_MESSAGES), with(names::CONTENT_LEFT_OUT)), (20, 30), "of 50 model calls");
}
