//! What replicas that have nothing to do ask of their store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;

use super::support::TestAgent;
use crate::agent::ledger::keys;
use crate::store::layer::StoreLayer;
use crate::store::memory::MemoryStore;
use crate::store::{Partition, Store, Unavailable};

/// How many replicas there are, in turn.
const REPLICAS: [u32; 4] = [1, 3, 8, 20];
/// How long they are counted.
const WHILE: u32 = 3000;

/// Counts what is asked, and what of it is about the due index.
#[derive(Debug, Default)]
struct Counted {
    inner: MemoryStore,
    asked: AtomicU32,
    due: AtomicU32,
}

#[async_trait]
impl StoreLayer for Counted {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn has_others(&self) -> bool {
        true
    }

    async fn pass(&self, partition: Option<&Partition>) -> Result<(), Unavailable> {
        self.asked.fetch_add(1, Relaxed);
        self.due.fetch_add(u32::from(partition == Some(&keys::due_partition())), Relaxed);
        Ok(())
    }
}

/// What so many idle replicas ask together in [`WHILE`] seconds: everything, and what is about the due index.
async fn asked_by(replicas: u32) -> (u32, u32) {
    let store = Arc::new(Counted::default());
    let replica = |_| TestAgent::builder().store(store.clone()).begin();
    let idle: Vec<TestAgent> = (0..replicas).map(replica).collect();
    // They know of each other after a while.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (asked, due) = (store.asked.swap(0, Relaxed), store.due.swap(0, Relaxed));
    assert!(asked > 0 && due > 0);
    tokio::time::sleep(Duration::from_secs(WHILE.into())).await;
    drop(idle);
    (store.asked.load(Relaxed), store.due.load(Relaxed))
}

#[tokio::test(start_paused = true)]
async fn each_of_many_idle_replicas_asks_no_more_than_one_alone() {
    let (alone, _) = asked_by(1).await;
    assert!(alone <= 3 * WHILE, "one alone asks {alone}");
    for replicas in REPLICAS {
        let (asked, _) = asked_by(replicas).await;
        // Pauses are drawn, so no two counts are the same.
        let most = replicas * (alone + alone / 20);
        assert!(asked <= most, "{replicas} replicas ask {asked}, one alone {alone}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_replicas_read_the_due_index_together_as_often_as_one() {
    for replicas in REPLICAS {
        // Each sweep of an index in which nothing is due is one read, and there is one in five seconds.
        let (_, due) = asked_by(replicas).await;
        assert!((WHILE / 6..=WHILE / 4).contains(&due), "{replicas} replicas read {due}");
    }
}
