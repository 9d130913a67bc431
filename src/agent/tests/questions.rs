//! Models that ask the user.

use std::sync::Arc;

use super::support::{Echo, Say, TestAgent, outcome, request, watch};
use crate::agent::NewRun;
use crate::llm::openai::messages::joined;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::types::policy::{Layer, Rule};
use crate::types::run::OnConflict;
use crate::types::{CallId, Effect, Event, Message, Outcome, Record, Role, RunStatus, SessionId, StopReason, Tenant};

const WHICH: &str = r#"{"question":"Which one?","options":["red","blue"]}"#;

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// A request of a session whose model may ask the user.
fn asking(messages: Vec<Message>) -> NewRun {
    let tools = Some(vec!["*".to_owned(), "ask_user".to_owned()]);
    NewRun { tools, messages, session: SessionId::parse("s"), ..request() }
}

fn says(text: &str) -> NewRun {
    asking(vec![Message::text(Role::User, text)])
}

fn replica(store: &Arc<dyn Store>, turns: Vec<Say>) -> TestAgent {
    TestAgent::builder().store(store.clone()).turns(turns).begin()
}

async fn play(agent: &TestAgent, new: NewRun) -> Vec<Record> {
    watch(agent.start(new, None).await.unwrap()).await
}

/// A replica on which a run asks the user, and what the run says then.
async fn asked(store: &Arc<dyn Store>) -> (TestAgent, Outcome) {
    let calls = vec![("echo", r#"{"n":1}"#), ("ask_user", WHICH)];
    let agent = replica(store, vec![Say::Calls("There are two.", calls), Say::Text(&["fine"])]);
    let waits = outcome(&play(&agent, says("one, please")).await);
    assert_eq!((waits.reason, waits.status()), (StopReason::AskUser, RunStatus::RequiresAction));
    (agent, waits)
}

fn call(waits: &Outcome) -> CallId {
    assert_eq!(waits.required_calls.len(), 1, "{waits:?}");
    waits.required_calls[0].call.id.clone()
}

/// What the model is sent last.
fn sent(agent: &TestAgent) -> String {
    joined(&agent.model.requests.lock().last().unwrap().conversation)
}

#[tokio::test(start_paused = true)]
async fn a_question_waits_for_the_user_whose_answer_comes_in_words_or_by_its_call() {
    for in_words in [true, false] {
        let store = memory();
        let (first, waits) = asked(&store).await;
        assert_eq!(waits.output_text, "There are two.\n\nWhich one?\n- red\n- blue");
        assert_eq!(*first.journal.lock(), [r#"{"n":1}"#], "the other calls of the turn are made");
        drop(first);
        let second = replica(&store, vec![Say::Text(&["fine"])]);
        let answer = if in_words {
            says("the blue one")
        } else {
            let (run, answered) = (call(&waits).run(), vec![call(&waits)]);
            NewRun { run, answered, ..asking(vec![Message::tool(&call(&waits), "the blue one")]) }
        };
        let records = play(&second, answer).await;
        assert!(matches!(&records[0].event, Event::RunResumed { leg: Some(leg) } if leg.answers.len() == 1));
        let end = outcome(&records);
        assert_eq!((end.reason, end.output_text.as_str(), end.iterations), (StopReason::Done, "fine", 2));
        let sent = sent(&second);
        let result = sent.find("the blue one").expect("the model is told");
        assert!(sent[..result].contains(&format!("\"tool_call_id\":\"{}\"", call(&waits))), "{sent}");
        assert_eq!(sent.matches("the blue one").count(), 1, "it is the result, and no message beside it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_may_leave_a_question_unanswered() {
    let store = memory();
    let (agent, waits) = asked(&store).await;
    let other = NewRun { on_conflict: OnConflict::Interrupt, ..says("never mind") };
    let records = play(&agent, other).await;
    assert!(matches!(records[0].event, Event::RunStarted), "another run begins");
    assert_eq!(outcome(&records).reason, StopReason::Done);
    let tenant = Tenant::default_tenant();
    let head = agent.runs().get(&tenant, &call(&waits).run().unwrap()).await.unwrap().head;
    assert_eq!(head.status, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asks_nothing_is_told_to_the_model() {
    let ask = Layer { ask: vec![Rule::of("*")], ..Layer::default() };
    for policy in [None, Some(Arc::new(ask))] {
        let calls = vec![("ask_user", "{}"), ("ask_user", r#"{"question":" "}"#), ("ask_user", "What?")];
        let agent = replica(&memory(), vec![Say::Calls("", calls), Say::Text(&["sorry"])]);
        let end = outcome(&play(&agent, NewRun { policy, ..says("hello") }).await);
        assert_eq!((end.reason, end.output_text.as_str()), (StopReason::Done, "sorry"));
        let calls = &end.report.steps[0].tool_calls;
        assert_eq!(calls.iter().map(|call| call.skipped).collect::<Vec<_>>(), [true; 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn only_who_is_named_to_ask_is_offered_to_ask() {
    let own = TestAgent::builder().tools(vec![Arc::new(Echo::new("ask_user", Effect::Read, 0))]);
    let plain = || NewRun { tools: None, ..says("hello") };
    for (builder, new, is_known) in
        [(TestAgent::builder(), plain(), false), (TestAgent::builder(), says("hello"), true), (own, plain(), false)]
    {
        let turns = vec![Say::Calls("", vec![("ask_user", WHICH)]), Say::Text(&["done"])];
        let agent = builder.turns(turns).begin();
        let end = outcome(&play(&agent, new).await);
        assert_eq!(end.reason == StopReason::AskUser, is_known, "{end:?}");
    }
}
