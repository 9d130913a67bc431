//! What of a session a run sends to its model, and what reading it costs.

use std::sync::Arc;

use super::metered::Metered;
use super::support::*;
use crate::agent::NewRun;
use crate::agent::ledger::keys;
use crate::agent::session::NewSession;
use crate::llm::openai::messages::joined;
use crate::store::memory::MemoryStore;
use crate::store::{Document, Store, Tx, Write};
use crate::types::{CallId, Message, Role, RunSpec, SessionId, Tenant};

fn session() -> SessionId {
    SessionId::parse("s").unwrap()
}

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

/// A session with as many messages.
fn filled(count: usize) -> NewSession {
    let messages = (0..count).map(|number| Message::text(Role::User, &format!("message {number:06}"))).collect();
    NewSession { id: Some(session()), messages, ..NewSession::default() }
}

fn ask(text: &str) -> NewRun {
    NewRun { session: Some(session()), messages: vec![Message::text(Role::User, text)], ..request() }
}

/// Asks a question and returns the contents that the model was sent last.
async fn asked(agent: &TestAgent, text: &str) -> Vec<String> {
    watch(agent.start(ask(text), None).await.unwrap()).await;
    sent(agent)
}

fn sent(agent: &TestAgent) -> Vec<String> {
    let request = joined(&agent.model.requests.lock().last().unwrap().conversation);
    let messages: Vec<serde_json::Value> = serde_json::from_str(&format!("[{request}]")).unwrap();
    messages.iter().map(|message| message["content"].as_str().unwrap_or("-").to_owned()).collect()
}

fn says(text: &'static [&'static str], store: &Arc<dyn Store>) -> TestAgent {
    TestAgent::builder().store(store.clone()).turns(vec![Say::Text(text)]).build()
}

#[tokio::test(start_paused = true)]
async fn appending_a_message_costs_the_same_in_long_and_short_sessions() {
    let mut costs = Vec::new();
    for count in [20, 2_000] {
        let store = Metered::new();
        let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Text(&["answer"])]).build();
        agent.sessions().create(&tenant(), filled(count)).await.unwrap();
        assert_eq!(asked(&agent, "first").await.len(), count + 1);
        store.cost();
        assert_eq!(asked(&agent, "second").await.len(), count + 3);
        costs.push(store.cost());
    }
    assert_eq!(costs[0].0, costs[1].0, "calls: {costs:?}");
    assert!(costs[1].1.abs_diff(costs[0].1) < 32, "bytes, but for the digits of counts: {costs:?}");
}

#[tokio::test(start_paused = true)]
async fn every_replica_sees_what_others_wrote() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (here, there) = (says(&["here"], &store), says(&["there"], &store));
    assert_eq!(asked(&here, "1").await, ["1"]);
    assert_eq!(asked(&there, "2").await, ["1", "here", "2"]);
    assert_eq!(asked(&there, "3").await, ["1", "here", "2", "there", "3"]);
    assert_eq!(asked(&here, "4").await, ["1", "here", "2", "there", "3", "there", "4"]);
}

#[tokio::test(start_paused = true)]
async fn a_recreated_session_has_nothing_of_the_old_one() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (here, there) = (says(&["here"], &store), says(&["there"], &store));
    asked(&here, "secret").await;
    asked(&here, "known here").await;
    there.sessions().delete(&tenant(), &session()).await.unwrap();
    asked(&there, "a").await;
    asked(&there, "b").await;
    asked(&there, "c").await;
    assert_eq!(asked(&here, "d").await, ["a", "there", "b", "there", "c", "there", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_its_last_writes_overrides_the_cache() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (here, there) = (says(&["here"], &store), says(&["there"], &store));
    asked(&here, "1").await;
    let partition = keys::session_partition(&tenant(), &session());
    let Document { value, .. } = store.get(&partition, &keys::session()).await.unwrap().unwrap();
    let kept = store.read_log(&partition, &keys::messages(), 0, 100).await.unwrap().entries;
    asked(&here, "lost").await;
    asked(&here, "lost too").await;
    let back = Tx::new(partition)
        .write(Write::DeleteLog { log: keys::messages() })
        .write(Write::Append { log: keys::messages(), after: 0, entries: kept })
        .write(Write::Put { key: keys::session(), value, ttl: None });
    store.commit(back).await.unwrap();
    asked(&there, "2").await;
    asked(&there, "3").await;
    assert_eq!(asked(&here, "4").await, ["1", "here", "2", "there", "3", "there", "4"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_resumed_elsewhere_has_the_history_it_began_with() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let turns = || vec![Say::Text(&["one"]), Say::Calls("", vec![("pick", "{}")]), Say::Text(&["picked"])];
    let here = TestAgent::builder().store(store.clone()).turns(turns()).build();
    let there = TestAgent::builder().store(store.clone()).turns(turns()).build();
    asked(&here, "1").await;
    let client_tools = vec![client_tool("pick")];
    let waits = watch(here.start(NewRun { client_tools, ..ask("2") }, None).await.unwrap()).await;
    let call: CallId = outcome(&waits).required_calls[0].call.id.clone();
    let spec = keys::spec(&call.run().unwrap());
    let spec = store.get(&keys::session_partition(&tenant(), &session()), &spec).await.unwrap().unwrap();
    let spec: RunSpec = serde_json::from_slice(&spec.value).unwrap();
    for history_len in 0..=2 {
        let began = there.rooms.sessions.history_of(&RunSpec { history_len, ..spec.clone() }).await.unwrap();
        assert_eq!(began.count(), history_len, "whatever the session has by now");
    }
    let messages = vec![Message::tool(&call, "this one")];
    let answer = NewRun { answered: vec![call], messages, ..ask("") };
    watch(there.start(answer, None).await.unwrap()).await;
    assert_eq!(sent(&there), ["1", "one", "2", "-", "this one"]);
}
