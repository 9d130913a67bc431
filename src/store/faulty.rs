//! For tests: a store as one process sees it, which dies, or whose buckets no longer answer, while the
//! store itself goes on for others.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::{
    CommitError, Document, Fence, Key, LogPage, Partition, Rate, Scan, Store, Taken, Topic, Tx, Unavailable, Watch,
};

/// What becomes of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It happens.
    Happens,
    /// The process dies before it.
    DiesBefore,
    /// The process dies after it and never learns of it.
    DiesAfter,
}

/// A store as one process sees it.
pub(crate) struct Faulty {
    inner: Arc<dyn Store>,
    fate: Box<dyn Fn(&Tx) -> Fate + Send + Sync>,
    dead: AtomicBool,
    counts_nothing: bool,
}

impl Faulty {
    /// One that dies by a commit as `fate` says. A dead process's calls never return.
    pub(crate) fn new(inner: Arc<dyn Store>, fate: impl Fn(&Tx) -> Fate + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { inner, fate: Box::new(fate), dead: AtomicBool::new(false), counts_nothing: false })
    }

    /// One whose buckets never answer.
    pub(crate) fn without_buckets(inner: Arc<dyn Store>) -> Arc<Self> {
        let (fate, dead) = (Box::new(|_: &Tx| Fate::Happens), AtomicBool::new(false));
        Arc::new(Self { inner, fate, dead, counts_nothing: true })
    }

    /// Lets the process die.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    /// Whether the process has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    async fn live(&self) -> &Arc<dyn Store> {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
        &self.inner
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Faulty {
    async fn commit(&self, tx: Tx) -> Result<(), CommitError> {
        let store = self.live().await;
        match (self.fate)(&tx) {
            Fate::Happens => return store.commit(tx).await,
            Fate::DiesBefore => self.die(),
            Fate::DiesAfter => {
                self.die();
                let _ = store.commit(tx).await;
            }
        }
        std::future::pending().await
    }

    async fn read_log(
        &self,
        partition: &Partition,
        log: &Key,
        after: u64,
        limit: usize,
    ) -> Result<LogPage, Unavailable> {
        self.live().await.read_log(partition, log, after, limit).await
    }

    async fn get(&self, partition: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        self.live().await.get(partition, key).await
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        self.live().await.scan(partition, scan).await
    }

    async fn counter(&self, partition: &Partition, key: &Key) -> Result<i64, Unavailable> {
        self.live().await.counter(partition, key).await
    }

    async fn acquire(&self, partition: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable> {
        self.live().await.acquire(partition, lease, ttl).await
    }

    async fn renew(
        &self,
        partition: &Partition,
        lease: &Key,
        fence: Fence,
        ttl: Duration,
        log: &Key,
    ) -> Result<Option<u64>, Unavailable> {
        self.live().await.renew(partition, lease, fence, ttl, log).await
    }

    async fn release(&self, partition: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable> {
        self.live().await.release(partition, lease, fence).await
    }

    async fn take(&self, partition: &Partition, bucket: &Key, rate: Rate) -> Result<Taken, Unavailable> {
        if self.counts_nothing {
            std::future::pending::<()>().await;
        }
        self.live().await.take(partition, bucket, rate).await
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn pace(&self) -> Duration {
        self.inner.pace()
    }

    fn watch(&self, topic: &Topic) -> Watch {
        self.inner.watch(topic)
    }

    async fn health(&self) -> Result<(), Unavailable> {
        self.live().await.health().await
    }

    async fn close(&self) {
        self.live().await.close().await;
    }
}
