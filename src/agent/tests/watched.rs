//! A store that counts what it is asked for, and can be made to fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;

use crate::store::memory::MemoryStore;
use crate::store::{
    CommitError, Document, Fence, Key, LogPage, Partition, Rate, Scan, Store, Taken, Topic, Tx, Unavailable, Watch,
    Write,
};

/// The memory store behind counters.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) inner: MemoryStore,
    calls: AtomicUsize,
    bytes: AtomicUsize,
    /// How many more commits succeed.
    commits_left: AtomicUsize,
}

impl Watched {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::default(),
            calls: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            commits_left: AtomicUsize::new(usize::MAX),
        })
    }

    /// Calls and bytes, to and fro, since this was asked last.
    pub(super) fn cost(&self) -> (usize, usize) {
        (self.calls.swap(0, Relaxed), self.bytes.swap(0, Relaxed))
    }

    /// Lets so many commits succeed, and none after them.
    pub(super) fn allow_commits(&self, count: usize) {
        self.commits_left.store(count, Relaxed);
    }

    fn count(&self, bytes: usize) {
        self.calls.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

fn size(write: &Write) -> usize {
    match write {
        Write::Put { value, .. } => value.len(),
        Write::Append { entries, .. } => entries.iter().map(bytes::Bytes::len).sum(),
        Write::Delete { .. }
        | Write::DeleteLog { .. }
        | Write::ExpireLog { .. }
        | Write::Add { .. }
        | Write::DeleteCounter { .. }
        | Write::ExpireCounter { .. } => 0,
    }
}

#[async_trait]
impl Store for Watched {
    async fn commit(&self, tx: Tx) -> Result<(), CommitError> {
        let took = self.commits_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        took.map_err(|_| Unavailable("the test says so".to_owned()))?;
        self.count(tx.writes.iter().map(size).sum());
        // Others may come in between, as over a network.
        tokio::task::yield_now().await;
        self.inner.commit(tx).await
    }

    async fn read_log(&self, place: &Partition, log: &Key, after: u64, limit: usize) -> Result<LogPage, Unavailable> {
        tokio::task::yield_now().await;
        let page = self.inner.read_log(place, log, after, limit).await?;
        self.count(page.entries.iter().map(bytes::Bytes::len).sum());
        Ok(page)
    }

    async fn get(&self, place: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        let found = self.inner.get(place, key).await?;
        self.count(found.as_ref().map_or(0, |document| document.value.len()));
        Ok(found)
    }

    async fn scan(&self, place: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        let found = self.inner.scan(place, scan).await?;
        self.count(found.iter().map(|(_, document)| document.value.len()).sum());
        Ok(found)
    }

    async fn counter(&self, place: &Partition, key: &Key) -> Result<i64, Unavailable> {
        self.count(8);
        self.inner.counter(place, key).await
    }

    async fn acquire(&self, place: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable> {
        self.count(0);
        self.inner.acquire(place, lease, ttl).await
    }

    async fn renew(
        &self,
        place: &Partition,
        lease: &Key,
        fence: Fence,
        ttl: Duration,
        log: &Key,
    ) -> Result<Option<u64>, Unavailable> {
        self.inner.renew(place, lease, fence, ttl, log).await
    }

    async fn release(&self, place: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable> {
        self.count(0);
        self.inner.release(place, lease, fence).await
    }

    async fn take(&self, place: &Partition, bucket: &Key, rate: Rate) -> Result<Taken, Unavailable> {
        self.inner.take(place, bucket, rate).await
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
