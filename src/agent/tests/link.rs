//! A replica's way to a store that it shares with others, which can be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::agent::keys;
use crate::store::memory::MemoryStore;
use crate::store::{
    CommitError, Document, Fence, Key, LogPage, Partition, Rate, Scan, Store, Taken, Topic, Tx, Unavailable, Watch,
};

/// The way of one replica.
#[derive(Debug)]
pub(super) struct Link {
    store: Arc<dyn Store>,
    /// Watched instead of the store by a replica that hears no nudges.
    silence: Option<MemoryStore>,
    cut: AtomicBool,
    /// Whether the index of live runs cannot be written.
    unindexed: AtomicBool,
}

impl Link {
    /// A way to this store.
    pub(super) fn to(store: &Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            silence: None,
            cut: AtomicBool::new(false),
            unindexed: AtomicBool::new(false),
        })
    }

    /// One that no nudge finds.
    pub(super) fn deaf(store: &Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            silence: Some(MemoryStore::default()),
            cut: AtomicBool::new(false),
            unindexed: AtomicBool::new(false),
        })
    }

    /// Nothing passes from now on, or everything again.
    pub(super) fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
    }

    /// The index of live runs cannot be written from now on.
    pub(super) fn lose_index(&self) {
        self.unindexed.store(true, Ordering::Relaxed);
    }

    fn pass(&self) -> Result<&dyn Store, Unavailable> {
        if self.cut.load(Ordering::Relaxed) { Err(Unavailable("the way is cut".into())) } else { Ok(&*self.store) }
    }
}

#[async_trait]
impl Store for Link {
    async fn commit(&self, tx: Tx) -> Result<(), CommitError> {
        if self.unindexed.load(Ordering::Relaxed) && tx.partition == keys::live_partition() {
            return Err(Unavailable("the index is away".into()).into());
        }
        self.pass()?.commit(tx).await
    }

    async fn read_log(&self, place: &Partition, log: &Key, after: u64, limit: usize) -> Result<LogPage, Unavailable> {
        self.pass()?.read_log(place, log, after, limit).await
    }

    async fn get(&self, place: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        self.pass()?.get(place, key).await
    }

    async fn scan(&self, place: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        self.pass()?.scan(place, scan).await
    }

    async fn counter(&self, place: &Partition, key: &Key) -> Result<i64, Unavailable> {
        self.pass()?.counter(place, key).await
    }

    async fn acquire(&self, place: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable> {
        self.pass()?.acquire(place, lease, ttl).await
    }

    async fn renew(
        &self,
        place: &Partition,
        lease: &Key,
        fence: Fence,
        ttl: Duration,
        log: &Key,
    ) -> Result<Option<u64>, Unavailable> {
        self.pass()?.renew(place, lease, fence, ttl, log).await
    }

    async fn release(&self, place: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable> {
        self.pass()?.release(place, lease, fence).await
    }

    async fn take(&self, place: &Partition, bucket: &Key, rate: Rate) -> Result<Taken, Unavailable> {
        self.pass()?.take(place, bucket, rate).await
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn pace(&self) -> Duration {
        self.store.pace()
    }

    fn watch(&self, topic: &Topic) -> Watch {
        self.silence.as_ref().map_or_else(|| self.store.watch(topic), |silence| silence.watch(topic))
    }

    async fn health(&self) -> Result<(), Unavailable> {
        self.pass()?.health().await
    }

    async fn close(&self) {}
}
