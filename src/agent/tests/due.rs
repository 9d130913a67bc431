//! What the due index promises of runs that wait for their client.

use std::sync::Arc;
use std::time::Duration;

use super::support::{Say, TestAgent, client_tool, outcome, request, watch};
use crate::agent::NewRun;
use crate::agent::error::{LookupError, StartError};
use crate::agent::ledger::due;
use crate::agent::ledger::keys;
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::{Store, Tx, Write};
use crate::types::clock::now_ms;
use crate::types::run::OnConflict;
use crate::types::{CallId, Event, Message, RunId, RunStatus, SessionId, Tenant};

/// As `support` has it: how long a run may wait, and how long it is kept after its end.
const WAIT: Duration = Duration::from_secs(3600);
const RUN: Duration = Duration::from_secs(600);

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

fn turns() -> Vec<Say> {
    vec![Say::Calls("", vec![("ask", "{}")]), Say::Text(&["thanks"])]
}

fn shared() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

fn replica(store: Arc<dyn Store>) -> TestAgent {
    TestAgent::builder().store(store).turns(turns()).begin()
}

/// A request whose model calls a tool of the client's.
fn asking(session: Option<&str>) -> NewRun {
    let client_tools = vec![client_tool("ask")];
    NewRun { client_tools, session: session.map(|id| SessionId::parse(id).unwrap()), ..request() }
}

/// Starts a run that waits for its client, and the call that it waits for.
async fn waiting(agent: &TestAgent, session: Option<&str>) -> (RunId, CallId) {
    let started = agent.start(asking(session), None).await.unwrap();
    let run = started.head.id.clone();
    let outcome = outcome(&watch(started).await);
    assert_eq!(outcome.status(), RunStatus::RequiresAction);
    (run, outcome.required_calls[0].call.id.clone())
}

async fn answer(agent: &TestAgent, run: &RunId, call: &CallId) -> Result<String, StartError> {
    let messages = vec![Message::tool(call, "yes")];
    let new = NewRun { run: Some(run.clone()), answered: vec![call.clone()], messages, ..request() };
    Ok(outcome(&watch(agent.start(new, None).await?).await).output_text)
}

async fn status(agent: &TestAgent, run: &RunId) -> RunStatus {
    agent.runs().get(&tenant(), run).await.unwrap().head.status
}

async fn entries(store: &Arc<dyn Store>) -> Vec<due::Due> {
    due::until(&**store, u64::MAX).await.unwrap()
}

/// How often the run's log says that it was cancelled.
async fn ends(agent: &TestAgent, run: &RunId) -> usize {
    let mut follower = agent.runs().follow(&tenant(), run, 0).await.unwrap().follower.unwrap();
    let mut ends = 0;
    while let Some(page) = follower.next().await.unwrap() {
        let is_end = |event: &Event| matches!(event, Event::RunFinished(outcome) if outcome.status().is_final());
        ends += page.iter().filter(|record| is_end(&record.event)).count();
    }
    ends
}

/// The time, Unix milliseconds, when a wait that has just begun is over.
fn wait_over() -> u64 {
    now_ms() + u64::try_from(WAIT.as_millis()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_waiting_run_outlives_the_time_that_ended_runs_are_kept() {
    for session in [None, Some("s")] {
        let store = shared();
        let agent = replica(store.clone());
        let (run, call) = waiting(&agent, session).await;
        tokio::time::sleep(5 * RUN).await;
        assert_eq!(status(&agent, &run).await, RunStatus::RequiresAction);
        assert_eq!(answer(&agent, &run, &call).await.unwrap(), "thanks");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(entries(&store).await, [], "nothing is left of the wait");
        tokio::time::sleep(RUN).await;
        let gone = agent.runs().get(&tenant(), &run).await.unwrap_err();
        assert!(matches!(gone, LookupError::RunNotFound(_)), "{gone}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_client_never_answers_is_cancelled() {
    let store = shared();
    let agent = replica(store.clone());
    let (run, call) = waiting(&agent, Some("s")).await;
    agent.rooms.recovery.do_what_is_due(now_ms()).await.unwrap();
    assert_eq!(status(&agent, &run).await, RunStatus::RequiresAction, "it is not due yet");
    agent.rooms.recovery.do_what_is_due(wait_over()).await.unwrap();
    assert_eq!(status(&agent, &run).await, RunStatus::Cancelled);
    assert_eq!(entries(&store).await, []);
    let refused = answer(&agent, &run, &call).await.unwrap_err();
    assert!(matches!(refused, StartError::NotWaiting(_)), "{refused}");
    // Its session is free, and has a result for the call.
    let next = NewRun { session: SessionId::parse("s"), on_conflict: OnConflict::Reject, ..request() };
    assert_eq!(outcome(&watch(agent.start(next, None).await.unwrap()).await).output_text, "thanks");
}

#[tokio::test(start_paused = true)]
async fn replicas_find_by_themselves_what_is_due() {
    let store = shared();
    let replicas = [(); 3].map(|()| replica(store.clone()));
    let (run, _) = waiting(&replicas[0], None).await;
    // As if it had waited for its whole time: the index and the head say the same.
    let [entry] = &entries(&store).await[..] else { panic!("one entry") };
    let partition = keys::run_partition(&tenant(), None, &run);
    let document = store.get(&partition, &keys::head(&run)).await.unwrap().unwrap();
    let mut head: crate::agent::Head = serde_json::from_slice(&document.value).unwrap();
    let passed = due::Due { at_ms: now_ms(), ..entry.clone() };
    head.waits_until_ms = Some(passed.at_ms);
    let value = serde_json::to_vec(&head).unwrap().into();
    store.commit(Tx::new(partition).put_at(keys::head(&run), document.version, value, None)).await.unwrap();
    entry.remove(&*store).await.unwrap();
    store.commit(passed.put()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(status(&replicas[1], &run).await, RunStatus::Cancelled);
    assert_eq!(ends(&replicas[2], &run).await, 1);
    assert_eq!(entries(&store).await, []);
}

#[tokio::test(start_paused = true)]
async fn replicas_that_sweep_at_once_end_a_wait_once() {
    let store = shared();
    let replicas = [(); 3].map(|()| replica(Faulty::new(store.clone(), |_| Fate::Happens)));
    let (run, _) = waiting(&replicas[0], None).await;
    let now = wait_over();
    let sweeps = replicas.each_ref().map(|replica| replica.rooms.recovery.do_what_is_due(now));
    for swept in futures_util::future::join_all(sweeps).await {
        swept.unwrap();
    }
    // Who came second leaves the entry to the next sweep.
    replicas[1].rooms.recovery.do_what_is_due(now).await.unwrap();
    assert_eq!(status(&replicas[2], &run).await, RunStatus::Cancelled);
    assert_eq!(ends(&replicas[2], &run).await, 1);
    assert_eq!(entries(&store).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_in_the_index_wherever_its_replica_dies() {
    for fate in [Fate::DiesBefore, Fate::DiesAfter] {
        let store = shared();
        let dying = Faulty::new(store.clone(), |_| Fate::Happens);
        let begins_to_wait = |tx: &Tx| {
            tx.writes.iter().any(|write| match write {
                Write::Append { entries, .. } => {
                    entries.iter().any(|entry| String::from_utf8_lossy(entry).contains("run_finished"))
                }
                _ => false,
            })
        };
        dying.next(begins_to_wait, fate);
        let (first, second) = (replica(dying.clone()), replica(store.clone()));
        let run = first.start(asking(None), None).await.unwrap().head.id;
        let before = wait_over();
        // The entry came first, whatever became of the rest.
        while !dying.is_dead() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(entries(&store).await.len(), 1, "{fate:?}");
        while status(&second, &run).await != RunStatus::RequiresAction {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if fate == Fate::DiesAfter {
            // The dead replica's lease lasts for a while. Until then the entry stays.
            second.rooms.recovery.do_what_is_due(wait_over()).await.unwrap();
            assert_eq!((entries(&store).await.len(), status(&second, &run).await), (1, RunStatus::RequiresAction));
        }
        tokio::time::sleep(Duration::from_secs(15)).await;
        // Where the run waits anew, what is due of the wait that never began is dropped.
        let expected = if fate == Fate::DiesBefore { 2 } else { 1 };
        let found = entries(&store).await;
        assert_eq!(found.len(), expected, "{fate:?}");
        let last = found.last().unwrap().at_ms;
        if expected == 2 {
            second.rooms.recovery.do_what_is_due(before.max(found[0].at_ms).min(last - 1)).await.unwrap();
            assert_eq!(status(&second, &run).await, RunStatus::RequiresAction);
            assert_eq!(entries(&store).await, found[1..]);
        }
        second.rooms.recovery.do_what_is_due(last).await.unwrap();
        assert_eq!((status(&second, &run).await, ends(&second, &run).await), (RunStatus::Cancelled, 1), "{fate:?}");
        assert_eq!(entries(&store).await, []);
    }
}

#[tokio::test(start_paused = true)]
async fn runs_that_wait_for_their_client_are_counted_by_every_replica() {
    let store = shared();
    let (a, b) = (replica(store.clone()), replica(store.clone()));
    let (run, call) = waiting(&a, None).await;
    waiting(&a, Some("s")).await;
    let figures = async || {
        // Each counts at its turn to sweep the index, after 30 s at the earliest.
        tokio::time::sleep(Duration::from_secs(60)).await;
        [&a, &b].map(|replica| replica.figures().waiting_runs)
    };
    assert_eq!(figures().await, [2, 2]);
    answer(&b, &run, &call).await.unwrap();
    assert_eq!(figures().await, [1, 1]);
}
