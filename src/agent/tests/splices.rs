//! Ranges of a session's history that are replaced: as a whole, of a session that is as the caller knows it, and by one of many at once.

use std::sync::Arc;
use std::time::Duration;

use super::contention::Distant;
use super::support::*;
use crate::agent::NewRun;
use crate::agent::error::{LookupError, SpliceError};
use crate::agent::session::NewSession;
use crate::agent::session::fork::Fork;
use crate::agent::session::splice::{Asked, MOST_SPLICED};
use crate::llm::openai::messages::joined;
use crate::store::memory::MemoryStore;
use crate::store::{Order, Store};
use crate::types::context::{SessionContext, Summary, View};
use crate::types::run::OnConflict;
use crate::types::session::Session;
use crate::types::{CallId, Message, Role, SessionId, StopReason, Tenant, ToolCall};

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

fn id() -> SessionId {
    SessionId::parse("s").unwrap()
}

fn says(text: &str) -> Message {
    Message::text(Role::User, text)
}

/// A question, a call with its result, and an answer, so often.
fn talk(turns: usize) -> Vec<Message> {
    let turn = |number: usize| {
        let call = CallId::foreign("call_1");
        let asked = ToolCall { id: call.clone(), name: "echo".into(), arguments: "{}".into() };
        let answer = Message::text(Role::Assistant, &format!("answer {number}"));
        [says(&format!("question {number}")), Message::assistant("", &[asked]), Message::tool(&call, "r"), answer]
    };
    (0..turns).flat_map(turn).collect()
}

async fn agent_over(store: Arc<dyn Store>, messages: Vec<Message>) -> TestAgent {
    let agent = TestAgent::builder().store(store).turns(vec![Say::Text(&["ok"]); 8]).begin();
    let new = NewSession { id: Some(id()), messages, ..NewSession::default() };
    // Another replica may have made it.
    let _ = agent.sessions().create(&tenant(), new).await;
    agent
}

async fn agent(messages: Vec<Message>) -> TestAgent {
    agent_over(Arc::new(MemoryStore::default()), messages).await
}

fn asked(after: u64, remove: u64, messages: Vec<Message>) -> Asked {
    Asked { after, remove, messages, ..Asked::default() }
}

async fn history(agent: &TestAgent) -> Vec<Message> {
    agent.sessions().messages(&tenant(), &id(), 0, 10_000, Order::Ascending).await.unwrap().0
}

async fn session(agent: &TestAgent) -> Session {
    agent.sessions().get(&tenant(), &id()).await.unwrap().session
}

fn in_session(text: &str) -> NewRun {
    NewRun { session: Some(id()), messages: vec![says(text)], ..request() }
}

#[tokio::test(start_paused = true)]
async fn a_range_of_a_history_is_replaced_and_what_stood_there_is_kept() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let here = agent_over(store.clone(), talk(4)).await;
    let there = agent_over(store, Vec::new()).await;
    // Both replicas have the history in memory.
    watch(here.start(in_session("one"), None).await.unwrap()).await;
    watch(there.start(in_session("two"), None).await.unwrap()).await;
    let before = history(&here).await;
    let done = here.sessions().splice(&tenant(), &id(), asked(4, 4, vec![says("other")])).await.unwrap();
    assert_eq!((done.session.session.message_count, done.summary_dropped), (17, false));
    let expected = [&before[..4], &[says("other")], &before[8..]].concat();
    assert_eq!(history(&there).await, expected);
    let kept = there.sessions().splices(&tenant(), &id(), 0, 10).await.unwrap();
    let [splice] = &*kept else { panic!("{kept:?}") };
    assert_eq!((splice.after, splice.inserted, &splice.removed[..]), (4, 1, &before[4..8]));
    for agent in [&there, &here] {
        watch(agent.start(in_session("So?"), None).await.unwrap()).await;
        let sent = joined(&agent.model.requests.lock().last().unwrap().conversation);
        assert!(sent.contains("other") && sent.contains("question 2") && !sent.contains("question 1"), "{sent}");
    }
    // Messages go and come without others in their place, too; each time is kept.
    here.sessions().splice(&tenant(), &id(), asked(4, 1, Vec::new())).await.unwrap();
    here.sessions().splice(&tenant(), &id(), asked(0, 0, vec![says("first")])).await.unwrap();
    assert_eq!(history(&here).await[..6], [&[says("first")], &before[..4], &before[8..9]].concat()[..]);
    let kept = here.sessions().splices(&tenant(), &id(), 1, 10).await.unwrap();
    assert_eq!(kept.iter().map(|splice| (splice.after, splice.inserted)).collect::<Vec<_>>(), [(4, 0), (0, 1)]);
    let fork = Fork { at: Some(5), id: SessionId::parse("f"), round_down: false };
    let fork = here.sessions().fork(&tenant(), &id(), fork).await.unwrap().session;
    assert_eq!((fork.message_count, fork.spliced().times), (5, 0), "a copy has what is there");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_not_as_the_caller_knows_it_is_left_as_it_is() {
    let agent = agent(talk(3)).await;
    let before = history(&agent).await;
    let refused = async |asked: Asked| agent.sessions().splice(&tenant(), &id(), asked).await.unwrap_err().to_string();
    let known = |version, count| Asked { version, count, ..asked(0, 4, Vec::new()) };
    assert!(refused(known(Some(7), None)).await.contains("has version 1 and 12 messages by now"));
    assert!(refused(known(None, Some(11))).await.contains("has version 1 and 12 messages by now"));
    assert!(refused(asked(10, 3, Vec::new())).await.contains("has 12 messages, and so none from 11 to 13"));
    assert!(refused(asked(u64::MAX, 1, Vec::new())).await.contains("has 12 messages"));
    assert!(refused(asked(3, 0, Vec::new())).await.contains("nothing is to be removed"));
    // A call keeps its result.
    assert!(refused(asked(2, 1, Vec::new())).await.contains("message 2 of the history would be a call without all"));
    assert!(refused(asked(1, 1, Vec::new())).await.contains("message 2 of the history would be a result without its"));
    assert!(refused(asked(2, 0, vec![says("between")])).await.contains("message 2 of the history would be a call"));
    let long = vec![says(&"x".repeat(usize::try_from(MOST_SPLICED).unwrap()))];
    assert!(refused(asked(0, 0, long)).await.contains("fork the session instead"));
    assert_eq!((history(&agent).await, session(&agent).await.spliced().times), (before, 0));
    let none = agent.sessions().splice(&tenant(), &SessionId::parse("none").unwrap(), asked(0, 1, Vec::new())).await;
    assert!(matches!(none, Err(SpliceError::Lookup(LookupError::SessionNotFound(_)))));
    let other = agent.sessions().splice(&Tenant::parse("other").unwrap(), &id(), asked(0, 1, Vec::new())).await;
    assert!(matches!(other, Err(SpliceError::Lookup(LookupError::SessionNotFound(_)))));
}

#[tokio::test(start_paused = true)]
async fn a_session_with_a_run_that_has_not_ended_is_left_as_it_is() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let turns = vec![Say::Calls("", vec![("hang", "{}")]); 2];
    let agent = TestAgent::builder().store(store).turns(turns).begin();
    let new = NewSession { id: Some(id()), messages: talk(3), ..NewSession::default() };
    agent.sessions().create(&tenant(), new).await.unwrap();
    for on_conflict in [OnConflict::Reject, OnConflict::Concurrent] {
        let started = agent.start(NewRun { on_conflict, ..in_session("Go.") }, None).await.unwrap();
        let run = started.head.id.clone();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let refused = agent.sessions().splice(&tenant(), &id(), asked(0, 4, Vec::new())).await;
        let busy =
            matches!(&refused, Err(SpliceError::Lookup(LookupError::SessionBusy { run: busy, .. })) if *busy == run);
        assert!(busy, "{refused:?}");
        agent.runs().cancel(&tenant(), &run).await.unwrap();
        assert_eq!(outcome(&watch(started).await).reason, StopReason::Cancelled);
        agent.model.requests.lock().clear();
    }
    agent.sessions().splice(&tenant(), &id(), asked(0, 4, Vec::new())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_many_at_once_each_finds_the_history_that_the_one_before_left() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    agent_over(store.clone(), talk(1)).await;
    let distant: Arc<dyn Store> = Arc::new(Distant(store.clone()));
    let agents = [agent_over(distant.clone(), Vec::new()).await, agent_over(distant, Vec::new()).await];
    let splicing = (0..6_usize).map(|number| {
        let agent = agents[number % 2].clone();
        async move {
            let inserted = vec![says(&format!("inserted {number}"))];
            agent.sessions().splice(&tenant(), &id(), asked(0, 0, inserted)).await
        }
    });
    let done = futures_util::future::join_all(splicing).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    let found = history(&agents[0]).await;
    assert_eq!((found.len(), session(&agents[0]).await.spliced().times), (10, 6));
    for number in 0..6 {
        assert_eq!(found.iter().filter(|found| **found == says(&format!("inserted {number}"))).count(), 1);
    }
    // Of those who know how many messages there are, one is first.
    let first = async |agent: &TestAgent| {
        let asked = Asked { count: Some(10), ..asked(0, 1, Vec::new()) };
        agent.sessions().splice(&tenant(), &id(), asked).await
    };
    let (first, second) = tokio::join!(first(&agents[0]), first(&agents[1]));
    assert_eq!((first.is_ok(), second.is_ok()), (second.is_err(), first.is_err()));
    assert_eq!(history(&agents[0]).await.len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_summary_of_what_is_replaced_is_dropped_and_all_is_shown_again() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = agent_over(store.clone(), Vec::new()).await;
    let covering = |covers| {
        let summary = Summary { version: 1, method: crate::types::context::Method::Llm, text: "SUMMARY".into() };
        let view = View { covers, kept: vec![0], summary: Some(Arc::new(summary)), ..View::default() };
        Some(Box::new(SessionContext { view, flushed: covers, ..SessionContext::default() }))
    };
    for (after, dropped) in [(4, true), (8, false)] {
        let name = SessionId::parse(&format!("with-{after}")).unwrap();
        let session = Session { context: covering(8), ..Session::new(name.clone()) };
        agent.sessions().import(&tenant(), session, talk(4), Arc::default()).await.unwrap();
        let new = vec![says("other")];
        let done = agent.sessions().splice(&tenant(), &name, asked(after, 4, new)).await.unwrap();
        assert_eq!(done.summary_dropped, dropped);
        let flushed = done.session.session.context.as_ref().map_or(0, |context| context.flushed);
        assert_eq!(flushed, if dropped { 5 } else { 8 });
        let run = NewRun { session: Some(name), ..in_session("So?") };
        watch(agent.start(run, None).await.unwrap()).await;
        let sent = joined(&agent.model.requests.lock().last().unwrap().conversation);
        assert!(sent.contains("other") && sent.contains("SUMMARY") != dropped, "{sent}");
        assert_eq!(sent.contains("answer 0"), dropped, "{sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_replaced_goes_with_its_session_and_is_counted() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = agent_over(store.clone(), talk(3)).await;
    let before = session(&agent).await;
    agent.sessions().splice(&tenant(), &id(), asked(0, 4, Vec::new())).await.unwrap();
    let after = session(&agent).await;
    assert!(after.bytes < before.bytes && after.spliced().bytes > 0, "{after:?}");
    agent.sessions().delete(&tenant(), &id()).await.unwrap();
    let again = agent_over(store, talk(1)).await;
    assert_eq!(again.sessions().splices(&tenant(), &id(), 0, 10).await.unwrap(), []);
    again.sessions().splice(&tenant(), &id(), asked(0, 4, Vec::new())).await.unwrap();
    assert_eq!(again.sessions().splices(&tenant(), &id(), 0, 10).await.unwrap().len(), 1);
}
