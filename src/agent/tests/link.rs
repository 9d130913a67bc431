//! A replica's way to a store that it shares with others, which can be cut, wholly or to one place.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

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
    cut: Mutex<Cut>,
}

/// What does not pass.
#[derive(Debug, Clone, Default)]
enum Cut {
    #[default]
    Nothing,
    /// What is about this partition.
    Place(Partition),
    Everything,
}

impl Link {
    /// A way to this store.
    pub(super) fn to(store: &Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store: store.clone(), silence: None, cut: Mutex::default() })
    }

    /// One that no nudge finds.
    pub(super) fn deaf(store: &Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store: store.clone(), silence: Some(MemoryStore::default()), cut: Mutex::default() })
    }

    /// Nothing passes from now on, or everything again.
    pub(super) fn cut(&self, cut: bool) {
        *self.cut.lock().unwrap() = if cut { Cut::Everything } else { Cut::Nothing };
    }

    /// Nothing that is about this partition passes from now on.
    pub(super) fn cut_off(&self, place: Partition) {
        *self.cut.lock().unwrap() = Cut::Place(place);
    }

    async fn pass(&self, place: &Partition) -> Result<&dyn Store, Unavailable> {
        // Others may come in between, as over a network.
        tokio::task::yield_now().await;
        match &*self.cut.lock().unwrap() {
            Cut::Nothing => Ok(&*self.store),
            Cut::Place(cut) if cut != place => Ok(&*self.store),
            Cut::Place(_) | Cut::Everything => Err(Unavailable("the way is cut".into())),
        }
    }
}

#[async_trait]
impl Store for Link {
    async fn commit(&self, tx: Tx) -> Result<(), CommitError> {
        self.pass(&tx.partition).await?.commit(tx).await
    }

    async fn read_log(&self, place: &Partition, log: &Key, after: u64, limit: usize) -> Result<LogPage, Unavailable> {
        self.pass(place).await?.read_log(place, log, after, limit).await
    }

    async fn get(&self, place: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        self.pass(place).await?.get(place, key).await
    }

    async fn scan(&self, place: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        self.pass(place).await?.scan(place, scan).await
    }

    async fn counter(&self, place: &Partition, key: &Key) -> Result<i64, Unavailable> {
        self.pass(place).await?.counter(place, key).await
    }

    async fn acquire(&self, place: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable> {
        self.pass(place).await?.acquire(place, lease, ttl).await
    }

    async fn renew(
        &self,
        place: &Partition,
        lease: &Key,
        fence: Fence,
        ttl: Duration,
        log: &Key,
    ) -> Result<Option<u64>, Unavailable> {
        self.pass(place).await?.renew(place, lease, fence, ttl, log).await
    }

    async fn release(&self, place: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable> {
        self.pass(place).await?.release(place, lease, fence).await
    }

    async fn take(&self, place: &Partition, bucket: &Key, rate: Rate) -> Result<Taken, Unavailable> {
        self.pass(place).await?.take(place, bucket, rate).await
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
        self.store.health().await
    }

    async fn close(&self) {}
}
