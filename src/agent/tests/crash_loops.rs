//! Runs whose driver dies again and again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::link::Link;
use super::support::{Say, TestAgent, request};
use crate::agent::control::RunView;
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::{Store, Tx, Write};
use crate::types::{Micros, RunStatus, StopReason};

/// More processes than any run here should need.
const MANY: usize = 20;

/// How many events of this name a driver's commit records, but for calls that were not made.
fn records(tx: &Tx, name: &str) -> usize {
    let entries = tx.writes.iter().flat_map(|write| match write {
        Write::Append { entries, .. } => entries.as_slice(),
        _ => &[],
    });
    let ours = |entry: &str| !entry.contains("\"ending\":") && !entry.contains("ended without a driver");
    let meant = |entry: &str| entry.contains(&format!("\"e\":{{\"{name}\"")) && ours(entry);
    entries.filter(|entry| meant(&String::from_utf8_lossy(entry))).count()
}

/// Lets one process after the other drive a run, each of which dies at its `nth` record of an event, and
/// returns how it ended and how many died.
async fn driven_to_its_end(turns: Vec<Say>, event: &'static str, nth: usize, death: Fate) -> (RunView, usize) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let new = request();
    let (tenant, run) = (new.tenant.clone(), new.id.clone());
    let mut new = Some(new);
    for died in 0..MANY {
        let mut seen = 0;
        let faulty = Faulty::new(Link::to(&store), move |tx| {
            seen += records(tx, event);
            if seen >= nth { death } else { Fate::Happens }
        });
        let agent = TestAgent::builder().store(faulty.clone()).turns(turns.clone()).begin();
        let start = new.take().map(|new| agent.start(new, None));
        if let Some(start) = start {
            start.await.unwrap();
        }
        let since = Instant::now();
        while !faulty.is_dead() {
            assert!(since.elapsed() < Duration::from_secs(60), "nobody goes on with the run");
            tokio::time::sleep(Duration::from_millis(100)).await;
            if faulty.is_dead() {
                break;
            }
            let view = agent.runs().get(&tenant, &run).await.unwrap();
            if view.head.status.is_final() {
                return (view, died);
            }
        }
    }
    panic!("{MANY} processes died of it");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_tool_kills_every_replica_ends_after_three_takeovers() {
    let turns = vec![Say::Calls("", vec![("echo", "{}"), ("echo", r#"{"n":1}"#)])];
    let (view, died) = driven_to_its_end(turns, "tool_finished", 1, Fate::DiesBefore).await;
    assert_eq!((view.head.status, view.head.reason), (RunStatus::Failed, Some(StopReason::CrashLoop)));
    assert_eq!(died, 4);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_model_kills_every_replica_ends_after_three_takeovers() {
    let (view, died) = driven_to_its_end(vec![Say::Text(&["x"])], "turn_finished", 1, Fate::DiesBefore).await;
    assert_eq!((view.head.status, view.head.reason), (RunStatus::Failed, Some(StopReason::CrashLoop)));
    assert_eq!(died, 4);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_ending_kills_every_replica_is_failed_without_being_driven() {
    let (view, died) = driven_to_its_end(vec![Say::Text(&["x"])], "run_finished", 1, Fate::DiesBefore).await;
    assert_eq!((view.head.status, view.head.reason), (RunStatus::Failed, Some(StopReason::CrashLoop)));
    assert_eq!(died, 6);
    // Its log has what it took, and so have its end and what its tenant used.
    let ended = view.outcome.unwrap();
    assert!(ended.usage.total() > 0 && ended.cost > Micros(0), "{ended:?}");
    assert!(!ended.warnings.iter().any(|warning| warning.contains("unknown")), "{:?}", ended.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_makes_progress_is_taken_over_any_number_of_times() {
    // Such a call is answered without being made.
    let mut turns = vec![Say::Calls("", vec![("nope", "{}")]); 7];
    turns.push(Say::Text(&["done"]));
    let (view, died) = driven_to_its_end(turns, "step_started", 2, Fate::DiesAfter).await;
    assert_eq!((view.head.status, view.outcome.unwrap().output_text.as_str()), (RunStatus::Completed, "done"));
    assert_eq!(died, 7);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_replicas_leave_by_order_is_in_no_crash_loop() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let new = request();
    let (tenant, run) = (new.tenant.clone(), new.id.clone());
    let mut new = Some(new);
    for _ in 0..6 {
        let agent = TestAgent::builder().store(Link::to(&store)).turns(vec![Say::Stall(&["x"])]).begin();
        if let Some(new) = new.take() {
            agent.start(new, None).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(agent.runs().get(&tenant, &run).await.unwrap().head.status, RunStatus::InProgress);
        agent.announce_end();
        agent.close().await;
    }
    let agent = TestAgent::builder().store(Link::to(&store)).turns(vec![Say::Text(&["done"])]).begin();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let view = agent.runs().get(&tenant, &run).await.unwrap();
    assert_eq!((view.head.status, view.outcome.unwrap().output_text.as_str()), (RunStatus::Completed, "done"));
}
