//! What a tenant may store.

mod sent;

use std::sync::Arc;
use std::time::Duration;

use super::fencing::records;
use super::support::{RETENTION, Say, TestAgent, client_tool, outcome, request, watch};
use crate::agent::error::{ForkError, LookupError, StartError, StorageError};
use crate::agent::ledger::keys;
use crate::agent::session::fork::Fork;
use crate::agent::session::{NewSession, SessionPatch};
use crate::agent::{NewRun, Retention};
use crate::store::Store;
use crate::store::embedded::EmbeddedStore;
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::store::redis::tests::servers::RedisServer;
use crate::types::{CallId, Event, Message, Outcome, Role, SessionId, StopReason, Tenant};

const LIMIT: u64 = 1 << 20;
/// Of this size, three fit and a fourth does not.
const EACH: usize = 300 << 10;
/// What three of them take at least.
const TAKEN: u64 = 3 * (300 << 10);

fn agent(turns: Vec<Say>) -> TestAgent {
    limited(turns, LIMIT)
}

fn limited(turns: Vec<Say>, limit: u64) -> TestAgent {
    let retention = Retention { tenant_bytes: limit, run: Duration::from_secs(60), ..RETENTION };
    TestAgent::builder().turns(turns).retention(retention).build()
}

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

fn id(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

async fn create(agent: &TestAgent, tenant: &Tenant, name: &str) -> Result<(), LookupError> {
    let messages = vec![Message::text(Role::User, &"x".repeat(EACH))];
    let new = NewSession { id: Some(id(name)), messages, ..NewSession::default() };
    agent.sessions().create(tenant, new).await.map(drop)
}

fn is_full(result: &Result<(), LookupError>) -> bool {
    matches!(result, Err(LookupError::Storage(StorageError::Full { limit: LIMIT, stored: TAKEN.., .. })))
}

/// Long enough for what is stored to be counted anew.
async fn pause() {
    tokio::time::sleep(Duration::from_secs(61)).await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_full_of_sessions_stores_no_more_and_keeps_no_other_from_it() {
    let agent = agent(vec![Say::Text(&["done"])]);
    for name in ["a", "b"] {
        create(&agent, &tenant(), name).await.unwrap();
    }
    agent.sessions().fork(&tenant(), &id("a"), Fork { id: Some(id("c")), ..Fork::default() }).await.unwrap();
    let refused = create(&agent, &tenant(), "d").await;
    assert!(is_full(&refused), "{refused:?}");
    let forked = agent.sessions().fork(&tenant(), &id("a"), Fork::default()).await.map(drop);
    assert!(matches!(forked, Err(ForkError::Lookup(LookupError::Storage(StorageError::Full { .. })))), "{forked:?}");
    create(&agent, &Tenant::parse("other").unwrap(), "d").await.unwrap();
    agent.sessions().delete(&tenant(), &id("c")).await.unwrap();
    create(&agent, &tenant(), "d").await.unwrap();
    let refused = create(&agent, &tenant(), "e").await;
    assert!(is_full(&refused), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn what_expired_is_found_to_be_free() {
    let agent = agent(vec![Say::Text(&["done"])]);
    for name in ["a", "b", "c"] {
        create(&agent, &tenant(), name).await.unwrap();
    }
    assert!(is_full(&create(&agent, &tenant(), "d").await));
    tokio::time::sleep(RETENTION.session).await;
    for name in ["a", "b", "c"] {
        create(&agent, &tenant(), name).await.unwrap();
    }
    pause().await;
    let refused = create(&agent, &tenant(), "d").await;
    assert!(is_full(&refused), "what is there is counted: {refused:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_run_says_counts_and_a_full_tenant_starts_no_run() {
    let text: &[&str] = vec![&*"x".repeat(EACH).leak()].leak();
    let agent = agent(vec![Say::Text(text)]);
    let mut started = 0;
    let refused = loop {
        match agent.start(request(), None).await {
            Ok(run) => assert_eq!(outcome(&watch(run).await).reason, StopReason::Done),
            Err(error) => break error,
        }
        started += 1;
        assert!(started < 10, "the texts count");
        // Its driver leaves it.
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(matches!(refused, StartError::Storage(StorageError::Full { limit: LIMIT, .. })), "{refused:?}");
    assert!(started >= 1, "the first fits");
    pause().await;
    let again = agent.start(request(), None).await.map(drop);
    assert!(again.is_ok(), "the runs expired: {again:?}");
}

/// The store takes the end of a run in a session, and its answer is lost: the session stands at another version then.
#[tokio::test(start_paused = true)]
async fn what_a_run_says_counts_also_if_the_store_does_not_say_that_it_took_the_end() {
    let text: &[&str] = vec![&*"x".repeat(EACH).leak()].leak();
    let store = Faulty::memory();
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Text(text)]).build();
    agent.sessions().create(&tenant(), NewSession { id: Some(id("a")), ..NewSession::default() }).await.unwrap();
    store.next(records(|event| matches!(event, Event::RunFinished(_))), Fate::FailsAfterwards);
    let run = NewRun { session: Some(id("a")), ..request() };
    assert_eq!(outcome(&watch(agent.start(run, None).await.unwrap()).await).reason, StopReason::Done);
    // Its driver leaves it, and counts what it said.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(store.has_struck());
    let counted = store.counter(&keys::tenant_partition(&tenant()), &keys::stored()).await.unwrap();
    assert!(counted > i64::try_from(EACH).unwrap(), "{counted}");
    let session = agent.sessions().get(&tenant(), &id("a")).await.unwrap().session;
    assert_eq!((session.runs, session.message_count), (1, 2), "it ended once");
}

/// The end was not taken, and the session changed before it was tried again.
#[tokio::test(start_paused = true)]
async fn an_end_that_the_store_did_not_take_goes_into_the_session_as_it_is_then() {
    let store = Faulty::memory();
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Text(&["done"])]).build();
    agent.sessions().create(&tenant(), NewSession { id: Some(id("a")), ..NewSession::default() }).await.unwrap();
    store.next(records(|event| matches!(event, Event::RunFinished(_))), Fate::Fails);
    let run = agent.start(NewRun { session: Some(id("a")), ..request() }, None).await.unwrap();
    store.reached().await;
    agent.sessions().patch(&tenant(), &id("a"), SessionPatch::default()).await.unwrap();
    assert_eq!(outcome(&watch(run).await).reason, StopReason::Done);
    let session = agent.sessions().get(&tenant(), &id("a")).await.unwrap().session;
    assert_eq!((session.runs, session.message_count), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn what_never_fits_is_too_large() {
    const LIMIT: u64 = 512 << 10;
    let agent = limited(vec![Say::Text(&["done"])], LIMIT);
    let large = Message::text(Role::User, &"x".repeat(512 << 10));
    let new = NewSession { messages: vec![large.clone()], ..NewSession::default() };
    let created = agent.sessions().create(&tenant(), new).await.map(drop);
    assert!(matches!(created, Err(LookupError::Storage(StorageError::TooLarge { limit: LIMIT, .. }))), "{created:?}");
    let mut new = request();
    new.messages = vec![large];
    let started = agent.start(new, None).await.map(drop);
    assert!(matches!(started, Err(StartError::Storage(StorageError::TooLarge { limit: LIMIT, .. }))), "{started:?}");
    create(&agent, &tenant(), "a").await.unwrap();
}

/// What every backend must do, by its own clock.
async fn a_store_keeps_tenants_to_their_bound(store: Arc<dyn Store>) {
    const SESSION_TTL: Duration = Duration::from_secs(8);
    let retention = Retention { tenant_bytes: LIMIT, session: SESSION_TTL, ..RETENTION };
    // A log has a text three times: as it came, in its turn, and in the run's end.
    let long: &[&str] = vec![&*"x".repeat(EACH * 3 / 8).leak()].leak();
    let agent = TestAgent::builder().store(store).turns(vec![Say::Text(long)]).retention(retention).build();
    for name in ["a", "b"] {
        create(&agent, &tenant(), name).await.unwrap();
    }
    agent.sessions().fork(&tenant(), &id("a"), Fork { id: Some(id("c")), ..Fork::default() }).await.unwrap();
    let refused = create(&agent, &tenant(), "d").await;
    assert!(is_full(&refused), "{refused:?}");
    create(&agent, &Tenant::parse("other").unwrap(), "d").await.unwrap();
    agent.sessions().delete(&tenant(), &id("c")).await.unwrap();
    assert_eq!(outcome(&watch(agent.start(request(), None).await.unwrap()).await).reason, StopReason::Done);
    // Its driver leaves it, and counts what it said.
    agent.idle(Duration::from_secs(5)).await;
    let refused = create(&agent, &tenant(), "d").await;
    assert!(is_full(&refused), "what the run said counts: {refused:?}");
    // Two of four expire, which is found once all is counted anew.
    tokio::time::sleep(SESSION_TTL).await;
    let again = async {
        while create(&agent, &tenant(), "e").await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), again).await.expect("what expired is free again");
    create(&agent, &tenant(), "f").await.unwrap();
    let refused = create(&agent, &tenant(), "g").await;
    assert!(is_full(&refused), "what is there is counted: {refused:?}");
}

#[tokio::test]
async fn a_file_keeps_tenants_to_their_bound() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory.path()).await.unwrap());
    a_store_keeps_tenants_to_their_bound(store.clone()).await;
    store.close().await;
}

#[tokio::test]
async fn redis_keeps_tenants_to_their_bound() {
    let server = RedisServer::start().await;
    let store = RedisStore::open(&server.url().parse().unwrap()).await.unwrap();
    a_store_keeps_tenants_to_their_bound(Arc::new(store)).await;
}

/// A request that says this, with a tool that its client executes.
fn asking(says: &str) -> NewRun {
    NewRun { client_tools: vec![client_tool("ask")], messages: vec![Message::text(Role::User, says)], ..request() }
}

/// Starts or continues a run, and returns how it ends or waits once its driver has left it.
async fn leg(agent: &TestAgent, new: NewRun) -> Outcome {
    let outcome = outcome(&watch(agent.start(new, None).await.unwrap()).await);
    agent.idle(Duration::from_secs(5)).await;
    outcome
}

/// What is counted for the tenant, and what counting it anew would come to.
async fn counted(agent: &TestAgent) -> (i64, i64) {
    let ledger = &agent.rooms.ledger;
    let counter = ledger.store().counter(&keys::tenant_partition(&tenant()), &keys::stored()).await.unwrap();
    (counter, i64::try_from(ledger.stored(&tenant()).await.unwrap()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_full_of_runs_that_wait_starts_no_more_however_often_it_is_counted() {
    let agent = agent(vec![Say::Calls("", vec![("ask", "{}")])]);
    let large = "x".repeat(EACH);
    for _ in 0..3 {
        assert_eq!(leg(&agent, asking(&large)).await.reason, StopReason::ClientTools);
    }
    for _ in 0..3 {
        let refused = agent.start(asking(&large), None).await.map(drop);
        let full =
            matches!(refused, Err(StartError::Storage(StorageError::Full { limit: LIMIT, stored: TAKEN.., .. })));
        assert!(full, "{refused:?}");
        pause().await;
    }
}

/// What every backend must do with a run that its client continues. It subtracts what an ended run takes less, or finds
/// that when all is counted anew.
async fn each_leg_of_a_run_is_counted_once(store: Arc<dyn Store>, ended_bytes: Option<u64>) {
    const LEGS: usize = 4;
    const ANSWER: usize = EACH / 8;
    let retention = Retention { ended_bytes, ..RETENTION };
    let turns = std::iter::repeat_n(Say::Calls("", vec![("ask", "{}")]), LEGS).chain([Say::Text(&["done"])]);
    let agent = TestAgent::builder().store(store).turns(turns.collect()).retention(retention).build();
    let mut outcome = leg(&agent, asking(&"x".repeat(EACH))).await;
    let mut before = 0;
    for number in 1..=LEGS {
        assert_eq!(outcome.reason, StopReason::ClientTools, "leg {number}");
        let (counter, stored) = counted(&agent).await;
        assert_eq!(counter, stored, "leg {number}");
        // Its request, and the answers so far, which its log has.
        let said = i64::try_from(EACH + (number - 1) * ANSWER).unwrap();
        assert!((said..said + (16 << 10)).contains(&stored), "leg {number}: {stored}");
        before = counter;
        let call: CallId = outcome.required_calls[0].call.id.clone();
        let messages = vec![Message::tool(&call, &"y".repeat(ANSWER))];
        outcome = leg(&agent, NewRun { answered: vec![call], messages, ..request() }).await;
    }
    assert_eq!(outcome.reason, StopReason::Done);
    let (counter, stored) = counted(&agent).await;
    let log = i64::try_from(LEGS * ANSWER).unwrap();
    assert!((log..before).contains(&stored), "its request is gone, its log is not: {stored}");
    // The last answer was counted before it was stored.
    let most = before + i64::try_from(ANSWER + (1 << 10)).unwrap();
    let counts = if ended_bytes.is_some() { stored..=stored } else { before..=most };
    assert!(counts.contains(&counter), "{counter}, of which {stored} are there");
}

#[tokio::test(start_paused = true)]
async fn memory_counts_each_leg_of_a_run_once() {
    each_leg_of_a_run_is_counted_once(Arc::new(MemoryStore::default()), Some(8 << 20)).await;
}

#[tokio::test]
async fn a_file_counts_each_leg_of_a_run_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory.path()).await.unwrap());
    each_leg_of_a_run_is_counted_once(store.clone(), None).await;
    store.close().await;
}

#[tokio::test]
async fn redis_counts_each_leg_of_a_run_once() {
    let server = RedisServer::start().await;
    let store = RedisStore::open(&server.url().parse().unwrap()).await.unwrap();
    each_leg_of_a_run_is_counted_once(Arc::new(store), None).await;
}
