//! A store in memory of which one commit goes wrong.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use crate::store::memory::MemoryStore;
use crate::store::{
    CommitError, Document, Fence, Key, LogPage, Partition, Rate, Scan, Store, Taken, Topic, Tx, Unavailable, Watch,
};

/// What becomes of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It does not happen.
    Fail,
    /// It happens, but nobody is told.
    FailAfterwards,
    /// It waits until it is told to go on.
    Hang,
    /// It happens, but is answered only once it is told to go on.
    HangAfterwards,
}

type Plan = (Box<dyn FnMut(&Tx) -> bool + Send>, Fault);

/// The store.
pub(super) struct Unreliable {
    inner: MemoryStore,
    plan: Mutex<Option<Plan>>,
    reached: Semaphore,
    gate: Semaphore,
}

impl Default for Unreliable {
    fn default() -> Self {
        let (inner, plan) = (MemoryStore::default(), Mutex::default());
        Self { inner, plan, reached: Semaphore::new(0), gate: Semaphore::new(0) }
    }
}

impl Unreliable {
    /// The next commit that is `meant` goes wrong.
    pub(super) fn next(&self, meant: impl FnMut(&Tx) -> bool + Send + 'static, fault: Fault) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = Some((Box::new(meant), fault));
    }

    /// Whether it has gone wrong.
    pub(super) fn has_struck(&self) -> bool {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Returns once it has.
    pub(super) async fn reached(&self) {
        self.reached.acquire().await.unwrap().forget();
    }

    /// Lets a commit that hangs go on.
    pub(super) fn go_on(&self) {
        self.gate.add_permits(1);
    }

    fn fault(&self, tx: &Tx) -> Option<Fault> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, fault) = plan.take_if(|(meant, _)| meant(tx))?;
        self.reached.add_permits(1);
        Some(fault)
    }
}

impl fmt::Debug for Unreliable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unreliable").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Unreliable {
    async fn commit(&self, tx: Tx) -> Result<(), CommitError> {
        let away = || CommitError::Unavailable(Unavailable("it is away".to_owned()));
        match self.fault(&tx) {
            None => self.inner.commit(tx).await,
            Some(Fault::Fail) => Err(away()),
            Some(Fault::FailAfterwards) => {
                self.inner.commit(tx).await?;
                Err(away())
            }
            Some(Fault::HangAfterwards) => {
                let done = self.inner.commit(tx).await;
                self.gate.acquire().await.unwrap().forget();
                done
            }
            Some(Fault::Hang) => {
                self.gate.acquire().await.unwrap().forget();
                self.inner.commit(tx).await
            }
        }
    }

    async fn read_log(
        &self,
        partition: &Partition,
        log: &Key,
        after: u64,
        limit: usize,
    ) -> Result<LogPage, Unavailable> {
        self.inner.read_log(partition, log, after, limit).await
    }

    async fn get(&self, partition: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        self.inner.get(partition, key).await
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        self.inner.scan(partition, scan).await
    }

    async fn counter(&self, partition: &Partition, key: &Key) -> Result<i64, Unavailable> {
        self.inner.counter(partition, key).await
    }

    async fn acquire(&self, partition: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable> {
        self.inner.acquire(partition, lease, ttl).await
    }

    async fn renew(
        &self,
        partition: &Partition,
        lease: &Key,
        fence: Fence,
        ttl: Duration,
        log: &Key,
    ) -> Result<Option<u64>, Unavailable> {
        self.inner.renew(partition, lease, fence, ttl, log).await
    }

    async fn release(&self, partition: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable> {
        self.inner.release(partition, lease, fence).await
    }

    async fn take(&self, partition: &Partition, bucket: &Key, rate: Rate) -> Result<Taken, Unavailable> {
        self.inner.take(partition, bucket, rate).await
    }

    fn pace(&self) -> Duration {
        self.inner.pace()
    }

    fn watch(&self, topic: &Topic) -> Watch {
        self.inner.watch(topic)
    }

    async fn health(&self) -> Result<(), Unavailable> {
        self.inner.health().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
