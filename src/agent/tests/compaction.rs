//! Conversations that are longer than what the model takes.

mod crashes;
mod flush_crashes;
mod flushes;
mod pieces;
mod requested;
mod summaries;
mod triggers;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;

use super::support::*;
use crate::agent::NewRun;
use crate::agent::error::StartError;
use crate::agent::request::{ContextPatch, RulesPatch, TriggersPatch};
use crate::llm::openai::messages::{joined, json};
use crate::store::Order;
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::context::{Compaction, ContextEvent, ContextRules, Method, TriggerRules};
use crate::types::rules::LoopRules;
use crate::types::{Effect, ErrorKind, Event, Message, Record, Role, RunStatus, SessionId, StopReason, Tenant};

/// What the model takes.
const WINDOW: u64 = 4_000;

fn rules(compaction: Compaction) -> LoopRules {
    LoopRules { context: ContextRules { compaction, ..ContextRules::default() }, ..unguarded() }
}

fn session() -> SessionId {
    SessionId::parse("long").unwrap()
}

/// What a user says next in the session.
fn says(text: &str) -> NewRun {
    NewRun { session: Some(session()), messages: vec![Message::text(Role::User, text)], ..request() }
}

async fn stored(agent: &TestAgent) -> Vec<Message> {
    agent.sessions().messages(&Tenant::default_tenant(), &session(), 0, 100_000, Order::Ascending).await.unwrap().0
}

/// What happened to what the model is shown.
pub(super) fn shortened(records: &[Record]) -> Vec<ContextEvent> {
    let event = |record: &Record| match &record.event {
        Event::Context(event) => Some((**event).clone()),
        _ => None,
    };
    records.iter().filter_map(event).collect()
}

/// By which methods messages were replaced.
fn methods(records: &[Record]) -> Vec<Method> {
    let method = |event| match event {
        ContextEvent::Compacted(compacted) => Some(compacted.summary.method),
        _ => None,
    };
    shortened(records).into_iter().filter_map(method).collect()
}

#[tokio::test(start_paused = true)]
async fn a_session_goes_on_beyond_its_window_and_keeps_all_that_was_said() {
    for compaction in [Compaction::Local, Compaction::Truncate] {
        let model = Windowed::new(WINDOW, true, 2, Summaries::Written);
        let agent = TestAgent::builder().windowed(&model, WINDOW).rules(rules(compaction)).begin();
        let mut versions = Vec::new();
        for turn in 0..60 {
            let records =
                watch(agent.start(says(&format!("turn {turn} {}", "x".repeat(400))), None).await.unwrap()).await;
            let end = outcome(&records);
            assert_eq!((end.reason, end.tool_calls), (StopReason::Done, 2), "{compaction:?}, turn {turn}");
            versions.extend(shortened(&records).iter().filter_map(|event| match event {
                ContextEvent::Compacted(compacted) => Some((compacted.summary.version, compacted.covers)),
                _ => None,
            }));
        }
        assert_eq!(model.refused.load(Relaxed), 0, "nothing is sent that does not fit");
        assert_eq!(stored(&agent).await.len(), 60 * 6, "all is kept");
        let numbers: Vec<u32> = versions.iter().map(|(version, _)| *version).collect();
        assert_eq!(numbers, (1..=u32::try_from(versions.len()).unwrap()).collect::<Vec<_>>());
        assert!((4..20).contains(&versions.len()), "it is shortened from time to time: {versions:?}");
        assert!(versions.windows(2).all(|pair| pair[0].1 < pair[1].1), "and further each time: {versions:?}");
        let requests = model.requests.lock();
        let last = joined(requests.last().unwrap());
        assert!(
            last.contains("[Previous conversation summary]") && last.contains("turn 0 ") && last.contains("turn 59 ")
        );
        assert!(!last.contains("turn 20 x"), "{last}");
        let largest = requests[30..].iter().map(|sent| joined(sent).len()).max().unwrap();
        assert!(largest as u64 <= WINDOW * 4, "{largest}");
    }
}

/// Answers with so many characters.
#[derive(Debug)]
struct Long(ToolSpec, usize);

#[async_trait]
impl Tool for Long {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &RawValue, _: &CallContext) -> Result<ToolAnswer, ToolError> {
        Ok(ToolAnswer::text("r".repeat(self.1)))
    }
}

fn long(characters: usize) -> Arc<dyn Tool> {
    Arc::new(Long(Echo::new("echo", Effect::Read, 0).spec().clone(), characters))
}

#[tokio::test(start_paused = true)]
async fn a_run_that_calls_many_tools_fits_in_the_middle_of_its_loop() {
    for (length, compaction) in [(2_500, Compaction::Local), (6_000, Compaction::Local), (2_500, Compaction::Truncate)]
    {
        let model = Windowed::new(WINDOW, true, 15, Summaries::Written);
        let builder = TestAgent::builder().windowed(&model, WINDOW).rules(rules(compaction));
        let agent = builder.tools(vec![long(length)]).begin();
        let records = watch(agent.start(says("Look at all of it."), None).await.unwrap()).await;
        let end = outcome(&records);
        assert_eq!((end.reason, end.tool_calls), (StopReason::Done, 15), "{length} {compaction:?}: {:?}", end.error);
        assert_eq!(model.refused.load(Relaxed), 0);
        assert!(!shortened(&records).is_empty());
        for sent in model.requests.lock().iter() {
            assert!(joined(sent).contains("Look at all of it."), "what the user asks is always shown");
        }
        assert_eq!(stored(&agent).await.len(), 2 + 2 * 15);
        let results = stored(&agent).await;
        let whole = results.iter().filter(|message| message.role == Role::Tool && json(message).len() > 1_900).count();
        assert_eq!(whole, 15, "the session has the results as they were");
    }
}

#[tokio::test(start_paused = true)]
async fn long_old_results_are_cut_before_anything_is_left_out() {
    let model = Windowed::new(60_000, true, 14, Summaries::Written);
    let builder = TestAgent::builder().windowed(&model, 60_000).rules(rules(Compaction::Local));
    let agent = builder.tools(vec![long(12_000)]).begin();
    let records = watch(agent.start(says("Look."), None).await.unwrap()).await;
    assert_eq!(outcome(&records).reason, StopReason::Done);
    let events = shortened(&records);
    assert!(matches!(events.as_slice(), [ContextEvent::Pruned(pruned)] if pruned.results >= 8), "{events:?}");
    let requests = model.requests.lock();
    let last = joined(requests.last().unwrap());
    assert!(last.contains("characters are left out") && last.contains(&"r".repeat(12_000)), "the newest are whole");
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_may_not_be_shortened_is_refused_and_one_whose_question_is_too_long_always() {
    let transcript: Vec<Message> = (0..40)
        .flat_map(|turn| [(Role::User, turn), (Role::Assistant, turn)])
        .map(|(role, turn)| Message::text(role, &format!("{turn} {}", "x".repeat(500))))
        .chain([Message::text(Role::User, "And now?")])
        .collect();
    let off = RulesPatch {
        context: ContextPatch { compaction: Some(Compaction::Off), ..ContextPatch::default() },
        ..RulesPatch::default()
    };
    let model = Windowed::new(WINDOW, true, 0, Summaries::Written);
    let agent = TestAgent::builder().windowed(&model, WINDOW).rules(rules(Compaction::Local)).begin();
    let refused = agent.start(NewRun { messages: transcript.clone(), rules: off, ..request() }, None).await;
    assert!(matches!(refused, Err(StartError::ContextLength(_))), "{refused:?}");
    let long = vec![Message::text(Role::User, &"x".repeat(20_000))];
    let refused = agent.start(NewRun { messages: long, ..request() }, None).await;
    assert!(matches!(refused, Err(StartError::ContextLength(_))), "{refused:?}");
    let records = watch(agent.start(NewRun { messages: transcript, ..request() }, None).await.unwrap()).await;
    assert_eq!((outcome(&records).reason, methods(&records)), (StopReason::Done, vec![Method::Local]));
    assert_eq!(model.refused.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_asks_for_no_more_than_the_agent_does() {
    let model = Windowed::new(WINDOW, true, 0, Summaries::Written);
    let mut rules = rules(Compaction::Local);
    rules.context.triggers = TriggerRules { messages: Some(40), input_tokens: Some(9_000), after_run: false };
    let agent = TestAgent::builder().windowed(&model, WINDOW).rules(rules).begin();
    let triggered = |triggers| ContextPatch { triggers, ..ContextPatch::default() };
    let asks = |context| NewRun { rules: RulesPatch { context, ..RulesPatch::default() }, ..request() };
    for context in [
        ContextPatch { compaction: Some(Compaction::Llm), ..ContextPatch::default() },
        ContextPatch { threshold: Some(0.8), ..ContextPatch::default() },
        triggered(TriggersPatch { messages: Some(41), ..TriggersPatch::default() }),
        triggered(TriggersPatch { input_tokens: Some(9_001), ..TriggersPatch::default() }),
        triggered(TriggersPatch { after_run: Some(true), ..TriggersPatch::default() }),
    ] {
        let refused = agent.start(asks(context), None).await;
        assert!(matches!(refused, Err(StartError::Invalid { .. })), "{refused:?}");
    }
    let less = ContextPatch { compaction: Some(Compaction::Truncate), threshold: Some(0.5), ..ContextPatch::default() };
    agent.start(asks(less), None).await.unwrap();
    let less = TriggersPatch { messages: Some(40), input_tokens: Some(100), after_run: Some(false) };
    agent.start(asks(triggered(less)), None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_model_is_shown_so_many_turns_of_the_user() {
    let model = Windowed::new(100_000, true, 1, Summaries::Written);
    let context = ContextRules { turn_limit: Some(2), ..ContextRules::default() };
    let agent = TestAgent::builder().windowed(&model, 100_000).rules(LoopRules { context, ..unguarded() }).begin();
    for turn in 0..5 {
        watch(agent.start(says(&format!("turn {turn}.")), None).await.unwrap()).await;
    }
    let last = joined(model.requests.lock().last().unwrap());
    let shown: Vec<bool> = (0..5).map(|turn| last.contains(&format!("turn {turn}."))).collect();
    assert_eq!(shown, [false, false, false, true, true], "{last}");
    assert_eq!(stored(&agent).await.len(), 5 * 4);
}

#[tokio::test(start_paused = true)]
async fn a_window_that_is_smaller_than_believed_is_learned_by_one_refusal() {
    for tells in [true, false] {
        let model = Windowed::new(WINDOW, tells, 1, Summaries::Written);
        let agent = TestAgent::builder().windowed(&model, 100_000).rules(rules(Compaction::Local)).begin();
        let mut refused_in = Vec::new();
        for turn in 0..60 {
            let before = model.refused.load(Relaxed);
            let records =
                watch(agent.start(says(&format!("turn {turn} {}", "x".repeat(400))), None).await.unwrap()).await;
            let end = outcome(&records);
            assert_eq!(end.reason, StopReason::Done, "{tells}, turn {turn}: {:?}", end.error);
            if model.refused.load(Relaxed) > before {
                refused_in.push(turn);
                let took = model.refused.load(Relaxed) - before;
                assert_eq!(took, 1, "{tells}, turn {turn}");
                let discarded =
                    records.iter().filter(|record| matches!(record.event, Event::StepDiscarded { .. })).count();
                assert_eq!(discarded, 1);
            }
        }
        assert_eq!(refused_in.len(), 1, "{tells}: the session remembers it: {refused_in:?}");
        assert_eq!(stored(&agent).await.len(), 60 * 4);
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_refuses_even_what_is_short_ends_the_run() {
    let model = Windowed::new(20, false, 0, Summaries::Written);
    let agent = TestAgent::builder().windowed(&model, 100_000).rules(rules(Compaction::Local)).begin();
    let records = watch(agent.start(says(&"x".repeat(4_000)), None).await.unwrap()).await;
    let end = outcome(&records);
    assert_eq!((end.reason, end.status()), (StopReason::ContextLimit, RunStatus::Failed));
    assert_eq!(end.error.unwrap().kind, ErrorKind::ContextLength);
    assert!(model.refused.load(Relaxed) <= 2);
}

#[tokio::test(start_paused = true)]
async fn a_fork_goes_on_with_what_its_source_was_shortened_to() {
    let model = Windowed::new(WINDOW, true, 1, Summaries::Written);
    let agent = TestAgent::builder().windowed(&model, WINDOW).rules(rules(Compaction::Auto)).begin();
    for turn in 0..40 {
        watch(agent.start(says(&format!("turn {turn} {}", "x".repeat(400))), None).await.unwrap()).await;
    }
    let tenant = Tenant::default_tenant();
    let before = model.summarised.lock().len();
    let forked =
        agent.sessions().fork(&tenant, &session(), crate::agent::session::fork::Fork::default()).await.unwrap();
    assert_eq!(forked.session.message_count, 40 * 4);
    let run = NewRun { session: Some(forked.session.id), ..request() };
    let records = watch(agent.start(run, None).await.unwrap()).await;
    assert_eq!(outcome(&records).reason, StopReason::Done);
    assert!(model.summarised.lock().len() <= before + 1);
    assert!(joined(model.requests.lock().last().unwrap()).contains("SUMMARY"));
    agent.idle(Duration::from_secs(5)).await;
}
