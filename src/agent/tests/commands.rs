use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::fencing::records;
use super::link::Link;
use super::replicas::{over, replica, status};
use super::support::{Say, TestAgent, outcome, request, watch};
use crate::agent::error::{ClaimError, LookupError};
use crate::agent::ledger::keys;
use crate::agent::request_key::{RequestKey, RequestKeyKind};
use crate::agent::{NewRun, Started};
use crate::llm::openai::messages::joined;
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::{Store, Tx, Write};
use crate::types::{Event, Message, Role, RunId, RunStatus, SessionId, Tenant};

fn once() -> RequestKey {
    RequestKey { name: "name".into(), fingerprint: "fingerprint".into(), kind: RequestKeyKind::Key }
}

fn say(text: &str) -> Vec<Message> {
    vec![Message::text(Role::User, text)]
}

/// A replica and a run that waits for a tool for a while.
async fn busy(store: &Arc<dyn Store>) -> (TestAgent, Started) {
    let turns = vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["done"])];
    let agent = TestAgent::builder().store(store.clone()).turns(turns).build();
    let started = agent.start(NewRun { session: SessionId::parse("s"), ..request() }, None).await.unwrap();
    (agent, started)
}

/// Leaves the text once, and returns the run's status and whether it was there.
async fn steer(agent: &TestAgent, run: &RunId, text: &str, key: &RequestKey) -> Result<(RunStatus, bool), LookupError> {
    let steered = agent.runs().steer(&Tenant::default_tenant(), run, say(text), Some(key)).await;
    steered.map(|(head, was_there)| (head.status, was_there))
}

/// How often the last request to the model has this text.
fn heard(agent: &TestAgent, text: &str) -> usize {
    joined(&agent.model.requests.lock().last().unwrap().conversation).matches(text).count()
}

/// Before the run's task has begun, so that nothing here knows the run yet.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_as_soon_as_it_is_stored_stops_at_once() {
    let faulty = Faulty::memory();
    let agent = TestAgent::builder().store(faulty.clone()).turns(vec![Say::Stall(&[])]).begin();
    faulty.next(records(|event| matches!(event, Event::RunStarted)), Fate::HangsAfterwards);
    let (tenant, new) = (Tenant::default_tenant(), request());
    let run = new.id.clone();
    let cancelling = async {
        faulty.reached().await;
        let began = Instant::now();
        let told_late = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            faulty.go_on();
        };
        let (cancelled, ()) = tokio::join!(agent.runs().cancel(&tenant, &run), told_late);
        (cancelled.unwrap().head.status, began.elapsed())
    };
    let (started, (status, took)) = tokio::join!(agent.start(new, None), cancelling);
    assert!(started.is_ok() && status == RunStatus::Cancelled, "{started:?} {status:?}");
    assert!(took < Duration::from_millis(200), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_command_sent_twice_under_a_key_is_applied_once() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (agent, started) = busy(&store).await;
    let other = TestAgent::builder().store(store.clone()).build();
    let run = started.head.id.clone();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..10 {
        let (agent, run) = (if number % 2 == 0 { &agent } else { &other }.clone(), run.clone());
        tasks.spawn(async move {
            agent.runs().steer(&Tenant::default_tenant(), &run, say("rather this"), Some(&once())).await.unwrap().1
        });
    }
    let new = tasks.join_all().await.into_iter().filter(|was_there| !was_there).count();
    assert_eq!(new, 1);
    let reused = steer(&agent, &run, "that", &RequestKey { fingerprint: "other".into(), ..once() }).await;
    assert!(matches!(reused, Err(LookupError::Claim(ClaimError::Reused))), "{reused:?}");
    let another = RequestKey { name: "another".into(), ..once() };
    assert_eq!(steer(&agent, &run, "and that", &another).await.unwrap(), (RunStatus::InProgress, false));
    assert_eq!(outcome(&watch(started).await).output_text, "done");
    assert_eq!((heard(&agent, "rather this"), heard(&agent, "and that")), (1, 1));

    assert_eq!(
        steer(&other, &run, "rather this", &once()).await.unwrap(),
        (RunStatus::Completed, true),
        "it has ended"
    );
    let reused = steer(&other, &run, "that", &RequestKey { fingerprint: "other".into(), ..once() }).await;
    assert!(matches!(reused, Err(LookupError::Claim(ClaimError::Reused))), "{reused:?}");
    let late = steer(&other, &run, "late", &RequestKey { name: "late".into(), ..once() }).await;
    assert!(matches!(late, Err(LookupError::NotLive(_))), "{late:?}");
    let foreign = Tenant::parse("other").unwrap();
    let foreign = other.runs().steer(&foreign, &run, say("rather this"), Some(&once())).await;
    assert!(matches!(foreign, Err(LookupError::RunNotFound(_))), "{foreign:?}");
}

#[tokio::test(start_paused = true)]
async fn a_command_whose_answer_was_lost_is_not_sent_twice() {
    let faulty = Faulty::memory();
    let store: Arc<dyn Store> = faulty.clone();
    let (agent, started) = busy(&store).await;
    let run = started.head.id.clone();
    let leaves = |write: &Write| matches!(write, Write::Append { log, entries, .. } if log.starts_with("inbox/") && !entries.is_empty());
    let is_letter = move |tx: &Tx| tx.writes.iter().any(leaves);
    for (fate, was_there) in [(Fate::Fails, false), (Fate::FailsAfterwards, true)] {
        let named = RequestKey { name: format!("{fate:?}"), ..once() };
        faulty.next(is_letter, fate);
        let failed = steer(&agent, &run, "rather this", &named).await;
        assert!(matches!(failed, Err(LookupError::Store(_))), "{failed:?}");
        assert_eq!(steer(&agent, &run, "rather this", &named).await.unwrap().1, was_there, "{fate:?}");
    }
    watch(started).await;
    assert_eq!(heard(&agent, "rather this"), 2, "one for each key");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_forgotten_after_a_day() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Stall(&["x"])]).build();
    let run = agent.start(request(), None).await.unwrap().head.id;
    assert!(!steer(&agent, &run, "this", &once()).await.unwrap().1);
    let partition = keys::run_partition(&Tenant::default_tenant(), None, &run);
    let note = keys::receipt(&run, "name");
    tokio::time::sleep(Duration::from_secs(24 * 3600 - 1)).await;
    assert!(store.get(&partition, &note).await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(store.get(&partition, &note).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_is_applied_though_earlier_commands_were_lost() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Stall(&["x"])]).build();
    let started = agent.start(request(), None).await.unwrap();
    let run = started.head.id.clone();
    for number in 0..3 {
        steer(&agent, &run, "this", &RequestKey { name: number.to_string(), ..once() }).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (tenant, partition) = (Tenant::default_tenant(), keys::run_partition(&Tenant::default_tenant(), None, &run));
    let lose = Write::DeleteLog { log: keys::inbox(&run) };
    store.commit(Tx::new(partition).write(lose)).await.unwrap();
    let other = TestAgent::builder().store(store).build();
    let cancelled = tokio::time::timeout(Duration::from_secs(5), other.runs().cancel(&tenant, &run)).await;
    assert_eq!(cancelled.unwrap().unwrap().head.status, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_command_of_another_version_does_not_stop_a_run() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (agent, started) = busy(&store).await;
    let run = started.head.id.clone();
    let partition = keys::run_partition(&Tenant::default_tenant(), SessionId::parse("s").as_ref(), &run);
    let entries = vec![Bytes::from_static(br#"{"approve":{"call":1}}"#)];
    let leave = Write::Append { log: keys::inbox(&run), after: 0, entries };
    store.commit(Tx::new(partition).write(leave)).await.unwrap();
    steer(&agent, &run, "rather this", &once()).await.unwrap();
    assert_eq!(outcome(&watch(started).await).output_text, "done");
    assert_eq!(heard(&agent, "rather this"), 1);
}

/// It learns of both commands when it takes the run up, while it is leaving itself.
#[tokio::test(start_paused = true)]
async fn a_replica_that_hands_a_run_over_does_not_forget_a_cancellation() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let tenant = Tenant::default_tenant();
    let first = replica(Link::deaf(&store), vec![Say::Stall(&["x"])]);
    let run = first.agent.start(request(), None).await.unwrap().head.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.link.cut(true);
    let between = TestAgent::builder().store(Link::to(&store)).build();
    let cancelled = tokio::time::timeout(Duration::from_secs(1), between.runs().cancel(&tenant, &run)).await;
    assert!(cancelled.is_err(), "nobody who hears of it drives the run");
    between.runs().steer(&tenant, &run, say("rather this"), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(12)).await;
    between.rooms.lifecycle.leave().await;
    let head = between.runs().get(&tenant, &run).await.unwrap().head;
    let idle = between.rooms.launcher.acquire_idle(&tenant, &head).await.unwrap().expect("nobody drives it");
    let memory = between.rooms.launcher.memory.begin();
    drop(between.rooms.launcher.resume(idle, None, between.generation(), memory).await.unwrap());
    between.close().await;
    let last = replica(Link::to(&store), vec![Say::Text(&["done"])]);
    over(&last, &run).await;
    assert_eq!(status(&last, &run).await, RunStatus::Cancelled);
    assert!(last.agent.model.requests.lock().is_empty());
}
