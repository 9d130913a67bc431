//! A driver whose lease may be another's begins nothing and changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::link::Link;
use super::replicas::{shared, tenant};
use super::support::{Say, TestAgent, request};
use crate::agent::ledger::{keys, log};
use crate::agent::ownership::lease::Leases;
use crate::store::faulty::{Fate, Faulty};
use crate::store::layer::StoreLayer;
use crate::store::memory::MemoryStore;
use crate::store::{Partition, Store, Tx, Unavailable, Write};
use crate::telemetry::metrics::{Figures, Format, LeaseLosses, Metrics};
use crate::types::{Event, RunId};

/// For so long a holder relies on a lease that it does not renew: two seconds less than others cannot acquire it.
const RELIES: Duration = Duration::from_secs(8);
const HOLDS: Duration = Duration::from_secs(10);
/// Just before and just after that.
const AROUND: [Duration; 2] = [Duration::from_millis(7_500), Duration::from_millis(8_500)];
const SECOND: Duration = Duration::from_secs(1);

/// Whether a commit records such an event.
pub(super) fn records(is_it: fn(&Event) -> bool) -> impl Fn(&Tx) -> bool + Send + 'static {
    move |tx| {
        let appended = tx.writes.iter().filter_map(|write| match write {
            Write::Append { entries, .. } => Some(entries),
            _ => None,
        });
        appended.flatten().any(|entry| log::decode(entry).is_ok_and(|record| is_it(&record.event)))
    }
}

/// A process that renews no lease, where the answer to the first such commit takes so long. Returns it once the run has
/// had a second for what follows.
async fn late(turns: Vec<Say>, is_it: fn(&Event) -> bool, delay: Duration) -> TestAgent {
    let store = Faulty::new(Link::to(&shared()), |_| Fate::Happens);
    store.next(records(is_it), Fate::HangsAfterwards);
    let agent = TestAgent::builder().store(store.clone()).turns(turns).build();
    // A run's first step is recorded before the caller hears of the run.
    let answer_late = async {
        store.reached().await;
        tokio::time::sleep(delay).await;
        store.go_on();
    };
    let (started, ()) = tokio::join!(agent.start(request(), None), answer_late);
    started.unwrap();
    tokio::time::sleep(SECOND).await;
    agent
}

#[tokio::test(start_paused = true)]
async fn no_model_is_asked_once_another_replica_may_soon_acquire_the_lease() {
    for (delay, asked) in AROUND.into_iter().zip([1, 0]) {
        let is_it = |event: &Event| matches!(event, Event::StepStarted { .. });
        let agent = late(vec![Say::Stall(&["x"])], is_it, delay).await;
        assert_eq!(agent.model.requests.lock().len(), asked, "after {delay:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_tool_is_called_once_another_replica_may_soon_acquire_the_lease() {
    for (delay, called) in AROUND.into_iter().zip([1, 0]) {
        let is_it = |event: &Event| matches!(event, Event::ToolStarted { .. });
        let turns = vec![Say::Calls("", vec![("echo", "{}")]), Say::Text(&["done"])];
        let agent = late(turns, is_it, delay).await;
        assert_eq!(agent.journal.lock().len(), called, "after {delay:?}");
    }
}

async fn length(store: &Arc<dyn Store>, run: &RunId) -> u64 {
    let partition = keys::run_partition(&tenant(), None, run);
    store.read_log(&partition, &keys::events(run), u64::MAX, 0).await.unwrap().head
}

/// The log is as long as the driver expects: only the fence tells it from the new holder.
#[tokio::test(start_paused = true)]
async fn a_commit_that_arrives_after_another_replica_acquired_the_lease_changes_nothing() {
    let inner = shared();
    let store = Faulty::new(inner.clone(), |_| Fate::Happens);
    store.next(records(|event| matches!(event, Event::TextDelta { .. })), Fate::Hangs);
    let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Stall(&["late"])]).build();
    let run = agent.start(request(), None).await.unwrap().head.id;
    store.reached().await;
    let before = length(&inner, &run).await;
    tokio::time::sleep(HOLDS + SECOND).await;
    let partition = keys::run_partition(&tenant(), None, &run);
    let acquired = inner.acquire(&partition, &keys::lease(&run), HOLDS).await.unwrap();
    assert!(acquired.is_some(), "nobody renews the first one");
    store.go_on();
    tokio::time::sleep(SECOND).await;
    assert_eq!((length(&inner, &run).await, agent.active_runs()), (before, 0));
}

/// A way to the store on which each request takes two seconds, until it is cut.
#[derive(Debug)]
struct Slow {
    inner: MemoryStore,
    cut: AtomicBool,
}

#[async_trait]
impl StoreLayer for Slow {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn pass(&self, _: Option<&Partition>) -> Result<(), Unavailable> {
        tokio::time::sleep(2 * SECOND).await;
        if self.cut.load(Ordering::Relaxed) { Err(Unavailable("the way is cut".into())) } else { Ok(()) }
    }
}

/// When the store granted it, the holder cannot know: at the earliest when the holder asked.
#[tokio::test(start_paused = true)]
async fn a_lease_is_relied_on_from_when_it_was_asked_for() {
    let store = Arc::new(Slow { inner: MemoryStore::default(), cut: AtomicBool::new(false) });
    let leases = Leases::new(store.clone(), LeaseLosses::default());
    let run = RunId::mint();
    let partition = keys::run_partition(&tenant(), None, &run);
    let began = Instant::now();
    let lease = leases.acquire_named(partition, keys::lease(&run), keys::inbox(&run)).await.unwrap().unwrap();
    // The first renewal is asked for now, and the second finds the way cut.
    let asked = began.elapsed();
    let expired = async {
        tokio::time::sleep(3 * SECOND).await;
        store.cut.store(true, Ordering::Relaxed);
        lease.validity().expired().await;
    };
    tokio::select! {
        () = leases.keep() => {}
        () = expired => {}
    }
    let relied = began.elapsed();
    assert!(relied <= asked + RELIES + Duration::from_millis(1), "asked after {asked:?}, relied on until {relied:?}");
    assert!(relied >= asked + RELIES, "it was renewed");
}

/// However many renewals and changes are refused, it is one loss.
#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_counted_once_by_what_noticed_it_first() {
    for by_renewal in [true, false] {
        let (store, metrics, run) = (shared(), Metrics::new(false), RunId::mint());
        let leases = Leases::new(store.clone(), metrics.lease_losses());
        let names = || (keys::run_partition(&tenant(), None, &run), keys::lease(&run), keys::inbox(&run));
        let (partition, key, inbox) = names();
        let lease = leases.acquire_named(partition, key, inbox).await.unwrap().unwrap();
        tokio::time::sleep(HOLDS + SECOND).await;
        let (partition, key, inbox) = names();
        let other = Leases::new(store, LeaseLosses::default());
        let _other = other.acquire_named(partition, key, inbox).await.unwrap().expect("it has expired");
        let renewed = async || tokio::time::timeout(4 * SECOND, leases.keep()).await;
        if by_renewal {
            assert!(renewed().await.is_err());
            lease.ending().lost();
        } else {
            lease.ending().lost();
            assert!(renewed().await.is_err());
        }
        let text = metrics.write(Format::Prometheus, Figures::default()).unwrap().unwrap();
        let of = |by: &str| format!("loopgate_lease_losses_total{{noticed_by=\"{by}\"}} ");
        let (renewals, commits) = if by_renewal { (1, 0) } else { (0, 1) };
        for (by, count) in [("renewal", renewals), ("commit", commits)] {
            assert!(text.contains(&format!("{}{count}\n", of(by))), "{by}: {text}");
        }
    }
}
