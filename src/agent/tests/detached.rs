use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::idempotency::answers::{handed_over, handing_over};
use super::support::{Say, TestAgent, outcome, request, watch, with_options};
use crate::agent::control::Filter;
use crate::agent::error::{ClaimError, StartError};
use crate::agent::ledger::keys;
use crate::agent::{Head, NewRun};
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::{Store, Tx, Write};
use crate::types::run::OnDisconnect;
use crate::types::{RunStatus, SessionId, Tenant};

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

async fn runs(agent: &TestAgent) -> Vec<Head> {
    agent.runs().list(&tenant(), &Filter { limit: 10, ..Filter::default() }).await.unwrap().found
}

/// Starts `new` and drops the request while its `nth` commit, counted from 0, hangs. Returns `false` if
/// it came to its end before that.
async fn dropped_at(faulty: &Faulty, agent: &TestAgent, new: NewRun, nth: usize, fate: Fate) -> bool {
    let mut left = nth;
    let is_nth = move |_: &Tx| {
        left = left.wrapping_sub(1);
        left == usize::MAX
    };
    faulty.next(is_nth, fate);
    tokio::select! {
        biased;
        started = agent.start(new, None) => {
            started.unwrap();
            return false;
        }
        () = faulty.reached() => {}
    }
    faulty.go_on();
    true
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_client_left_during_its_creation_starts_at_once() {
    for fate in [Fate::Hangs, Fate::HangsAfterwards] {
        let mut commits = 0;
        loop {
            let faulty = Faulty::memory();
            let store: Arc<dyn Store> = faulty.clone();
            // Nothing sweeps here: what is not driven stays so.
            let agent = TestAgent::builder().store(store).turns(vec![Say::Text(&["hello"])]).build();
            let new = NewRun { session: SessionId::parse("s"), ..request() };
            if !dropped_at(&faulty, &agent, new, commits, fate).await {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            let runs = runs(&agent).await;
            assert_eq!((runs.len(), runs[0].status), (1, RunStatus::Completed), "{fate:?} at commit {commits}");
            assert_eq!(agent.active_runs(), 0, "{fate:?} at commit {commits}");
            commits += 1;
        }
        assert!(commits >= 4, "there were only {commits}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_run_whose_client_left_while_answering_resumes_at_once() {
    for fate in [Fate::Hangs, Fate::HangsAfterwards] {
        let mut commits = 0;
        loop {
            let faulty = Faulty::memory();
            let store: Arc<dyn Store> = faulty.clone();
            let agent = handing_over(&store);
            let (run, _, answer) = handed_over(&agent, SessionId::parse("s")).await;
            // What is noted beside the first answer is not meant.
            tokio::time::sleep(Duration::from_secs(1)).await;
            if !dropped_at(&faulty, &agent, answer, commits, fate).await {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            let view = agent.runs().get(&tenant(), &run).await.unwrap();
            assert_eq!(view.head.status, RunStatus::Completed, "{fate:?} at commit {commits}");
            assert_eq!(view.outcome.unwrap().output_text, "rain it is");
            commits += 1;
        }
        assert!(commits >= 3, "there were only {commits}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_never_had_a_reader_ends_like_an_abandoned_one() {
    let faulty = Faulty::memory();
    let agent = TestAgent::builder().store(faulty.clone()).turns(vec![Say::Stall(&["x"])]).begin();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let new = with_options(|options| options.on_disconnect = OnDisconnect::Cancel);
    assert!(dropped_at(&faulty, &agent, new, 0, Fate::Hangs).await);
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(runs(&agent).await[0].status, RunStatus::InProgress);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(runs(&agent).await[0].status, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_run_created_by_a_request_that_failed_is_found_at_once() {
    let faulty = Faulty::memory();
    let agent = TestAgent::builder().store(faulty.clone()).turns(vec![Say::Text(&["hello"])]).begin();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let makes_it = |tx: &Tx| tx.writes.iter().any(|write| matches!(write, Write::Append { after: 0, .. }));
    faulty.next(makes_it, Fate::FailsAfterwards);
    let failed = agent.start(request(), None).await;
    assert!(matches!(failed, Err(StartError::Store(_))), "{failed:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(runs(&agent).await[0].status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn the_drain_waits_for_runs_that_are_being_created() {
    let faulty = Faulty::memory();
    let store: Arc<dyn Store> = faulty.clone();
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Stall(&["x"])]).build();
    faulty.next(|tx: &Tx| tx.writes.iter().any(|write| matches!(write, Write::Append { .. })), Fate::Hangs);
    tokio::select! {
        biased;
        _ = agent.start(request(), None) => panic!("the commit hangs"),
        () = faulty.reached() => {}
    }
    let close = agent.close();
    tokio::pin!(close);
    tokio::time::timeout(Duration::from_secs(5), &mut close).await.expect_err("the run is not made yet");
    faulty.go_on();
    close.await;
    let successor = TestAgent::builder().store(store).turns(vec![Say::Text(&["hello"])]).begin();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(runs(&successor).await[0].status, RunStatus::Completed, "the next replica finds it");
}

#[tokio::test(start_paused = true)]
async fn an_answer_waits_until_a_dead_process_lease_has_run_out() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = handing_over(&store);
    let (run, _, answer) = handed_over(&agent, None).await;
    let (partition, lease) = (keys::run_partition(&tenant(), None, &run), keys::lease(&run));
    tokio::time::sleep(Duration::from_secs(1)).await;
    store.acquire(&partition, &lease, Duration::from_secs(10)).await.unwrap().unwrap();
    let since = Instant::now();
    let started = agent.start(NewRun { run: Some(run.clone()), ..answer }, None).await.unwrap();
    assert!((10_000..10_500).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
    assert_eq!(started.head.id, run);
    assert_eq!(outcome(&watch(started).await).output_text, "rain it is");
}

#[tokio::test(start_paused = true)]
async fn of_two_answers_one_resumes_the_run_and_the_other_learns_it() {
    for session in [None, SessionId::parse("s")] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let (one, two) = (handing_over(&store), handing_over(&store));
        let (run, _, answer) = handed_over(&one, session.clone()).await;
        let (partition, lease) = (keys::run_partition(&tenant(), session.as_ref(), &run), keys::lease(&run));
        tokio::time::sleep(Duration::from_secs(1)).await;
        store.acquire(&partition, &lease, Duration::from_secs(5)).await.unwrap().unwrap();
        let (first, second) = tokio::join!(one.start(answer.clone(), None), two.start(answer, None));
        let (started, refused) = if first.is_ok() { (first, second) } else { (second, first) };
        assert!(matches!(&refused, Err(StartError::NotWaiting(which)) if *which == run), "{refused:?}");
        assert_eq!(outcome(&watch(started.unwrap()).await).output_text, "rain it is");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_run_whose_lease_is_held_is_to_be_retried() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = handing_over(&store);
    let (run, _, answer) = handed_over(&agent, None).await;
    let (partition, lease) = (keys::run_partition(&tenant(), None, &run), keys::lease(&run));
    tokio::time::sleep(Duration::from_secs(1)).await;
    store.acquire(&partition, &lease, Duration::from_secs(60)).await.unwrap().unwrap();
    let refused = agent.start(answer, None).await;
    assert!(matches!(refused, Err(StartError::Claim(ClaimError::Busy))), "{refused:?}");
    assert_eq!(agent.runs().get(&tenant(), &run).await.unwrap().head.status, RunStatus::RequiresAction);
}
