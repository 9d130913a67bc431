//! How much may be sent to a run, how it is read, and that nothing of it is left.

use std::sync::Arc;
use std::time::Duration;

use super::metered::Metered;
use super::support::{RETENTION, Say, TestAgent, client_tool, outcome, request, watch};
use crate::agent::error::LookupError;
use crate::agent::ledger::keys;
use crate::agent::{NewRun, Retention, Started};
use crate::llm::openai::messages::joined;
use crate::store::embedded::EmbeddedStore;
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::store::redis::tests::servers::RedisServer;
use crate::store::{PAGE_BYTES, Store};
use crate::types::{Message, Role, RunId, RunStatus, Tenant};

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

fn say(number: usize, bytes: usize) -> Vec<Message> {
    vec![Message::text(Role::User, &format!("<{number}>{}", "x".repeat(bytes)))]
}

/// An agent over this store, and its run that is busy for a while.
async fn busy(store: Arc<dyn Store>) -> (TestAgent, Started) {
    let turns = vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["done"])];
    let agent = TestAgent::builder().store(store).turns(turns).build();
    let started = agent.start(request(), None).await.unwrap();
    (agent, started)
}

/// How many bytes are counted as left for a run.
async fn counted(store: &dyn Store, run: &RunId) -> i64 {
    store.counter(&keys::run_partition(&tenant(), None, run), &keys::inbox_bytes(run)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_to_a_live_run_is_bounded_in_bytes() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (agent, started) = busy(store.clone()).await;
    let run = started.head.id.clone();
    let large = agent.runs().steer(&tenant(), &run, say(0, 2 << 20), None).await;
    assert!(matches!(large, Err(LookupError::CommandTooLarge { limit: 1_048_576, .. })), "{large:?}");
    agent.runs().steer(&tenant(), &run, say(1, 600 << 10), None).await.unwrap();
    let further = agent.runs().steer(&tenant(), &run, say(2, 600 << 10), None).await;
    assert!(matches!(further, Err(LookupError::InboxFull(_))), "{further:?}");
    agent.runs().steer(&tenant(), &run, say(3, 10), None).await.unwrap();
    assert!(counted(&*store, &run).await > 600 << 10);
    agent.runs().cancel(&tenant(), &run).await.unwrap();
    assert_eq!(outcome(&watch(started).await).status(), RunStatus::Cancelled, "it hears of that in any case");
    assert_eq!(counted(&*store, &run).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_to_a_live_run_is_bounded_in_number() {
    let (agent, started) = busy(Arc::new(MemoryStore::default())).await;
    let run = started.head.id.clone();
    for number in 0..1_024 {
        agent.runs().steer(&tenant(), &run, say(number, 1), None).await.unwrap();
    }
    let further = agent.runs().steer(&tenant(), &run, say(1_024, 1), None).await;
    assert!(matches!(further, Err(LookupError::InboxFull(_))), "{further:?}");
    let later = agent.runs().cancel_after_step(&tenant(), &run).await;
    assert!(
        matches!(later, Err(LookupError::InboxFull(_))),
        "only what stops the run at once has room always: {later:?}"
    );
    agent.runs().cancel(&tenant(), &run).await.unwrap();
    assert_eq!(outcome(&watch(started).await).status(), RunStatus::Cancelled, "it hears of that in any case");
}

#[tokio::test(start_paused = true)]
async fn a_driver_reads_and_records_its_inbox_in_pages() {
    const EACH: usize = 120 << 10;
    let store = Metered::new();
    let (agent, started) = busy(store.clone()).await;
    for number in 0..6 {
        agent.runs().steer(&tenant(), &started.head.id, say(number, EACH), None).await.unwrap();
    }
    assert_eq!(outcome(&watch(started).await).output_text, "done");
    let heard = joined(&agent.model.requests.lock().last().unwrap().conversation);
    for number in 0..6 {
        assert_eq!(heard.matches(&format!("<{number}>")).count(), 1);
    }
    assert!(store.largest() < PAGE_BYTES + 2 * EACH, "{} bytes at once", store.largest());
}

/// A run that waits is sent something, and expires with it though no sweep ends its wait.
async fn nothing_is_left_of_a_run_that_waited(store: Arc<dyn Store>) {
    let retention = Retention { run: Duration::from_millis(300), wait: Duration::from_millis(300), ..RETENTION };
    let turns = vec![Say::Calls("", vec![("ask", "{}")])];
    let agent = TestAgent::builder().store(store.clone()).turns(turns).retention(retention).build();
    let started = agent.start(NewRun { client_tools: vec![client_tool("ask")], ..request() }, None).await.unwrap();
    let run = started.head.id.clone();
    watch(started).await;
    agent.runs().steer(&tenant(), &run, say(0, 1_000), None).await.unwrap();
    assert!(counted(&*store, &run).await > 1_000);
    let partition = keys::run_partition(&tenant(), None, &run);
    let left = async || {
        let documents = [keys::spec(&run), keys::head(&run)];
        let logs = [keys::events(&run), keys::inbox(&run)];
        let mut left = counted(&*store, &run).await != 0;
        for document in &documents {
            left |= store.get(&partition, document).await.unwrap().is_some();
        }
        for log in &logs {
            left |= store.read_log(&partition, log, 0, 0).await.unwrap().head > 0;
        }
        left
    };
    assert!(left().await);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while left().await {
        assert!(tokio::time::Instant::now() < deadline, "something of the run is kept for ever");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn memory_keeps_nothing_of_a_run_that_waited() {
    nothing_is_left_of_a_run_that_waited(Arc::new(MemoryStore::default())).await;
}

#[tokio::test]
async fn a_file_keeps_nothing_of_a_run_that_waited() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory.path()).await.unwrap());
    nothing_is_left_of_a_run_that_waited(store.clone()).await;
    store.close().await;
}

#[tokio::test]
async fn redis_keeps_nothing_of_a_run_that_waited() {
    let server = RedisServer::start().await;
    nothing_is_left_of_a_run_that_waited(Arc::new(RedisStore::open(&server.url().parse().unwrap()).await.unwrap()))
        .await;
}
