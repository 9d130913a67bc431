//! A store whose operations are counted and timed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{
    CommitError, Document, Fence, Key, LogPage, Partition, Rate, RateDecision, Scan, Store, Topic, Tx, Unavailable,
    Watch,
};
use crate::telemetry::metrics::{StoreFailure, StoreMetrics, StoreOperation};

/// The store behind it, watched.
#[derive(Debug)]
pub struct Measured {
    inner: Arc<dyn Store>,
    metrics: Arc<StoreMetrics>,
}

impl Measured {
    /// Counts what `inner` does.
    pub fn new(inner: Arc<dyn Store>, metrics: Arc<StoreMetrics>) -> Self {
        Self { inner, metrics }
    }

    /// Counts an operation that began at `since`.
    fn count<T>(&self, operation: StoreOperation, since: Instant, result: &Result<T, Unavailable>) {
        self.metrics.answered(operation, since.elapsed());
        if result.is_err() {
            self.metrics.failed(operation, StoreFailure::Unavailable);
        }
    }
}

/// What a commit failed by.
fn failure(error: &CommitError) -> StoreFailure {
    match error {
        CommitError::Unavailable(_) => StoreFailure::Unavailable,
        CommitError::Fenced { .. } => StoreFailure::Refused("fenced"),
        CommitError::VersionConflict { .. } => StoreFailure::Refused("version_conflict"),
        CommitError::SequenceConflict { .. } => StoreFailure::Refused("sequence_conflict"),
        CommitError::CeilingReached { .. } => StoreFailure::Refused("ceiling_reached"),
    }
}

#[async_trait]
impl Store for Measured {
    async fn commit(&self, tx: Tx) -> Result<(), CommitError> {
        let since = Instant::now();
        let result = self.inner.commit(tx).await;
        self.metrics.answered(StoreOperation::Commit, since.elapsed());
        if let Err(error) = &result {
            self.metrics.failed(StoreOperation::Commit, failure(error));
        }
        result
    }

    async fn read_log(
        &self,
        partition: &Partition,
        log: &Key,
        after: u64,
        limit: usize,
    ) -> Result<LogPage, Unavailable> {
        let since = Instant::now();
        let result = self.inner.read_log(partition, log, after, limit).await;
        self.count(StoreOperation::ReadLog, since, &result);
        result
    }

    async fn get(&self, partition: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        let since = Instant::now();
        let result = self.inner.get(partition, key).await;
        self.count(StoreOperation::Get, since, &result);
        result
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        let since = Instant::now();
        let result = self.inner.scan(partition, scan).await;
        self.count(StoreOperation::Scan, since, &result);
        result
    }

    async fn counter(&self, partition: &Partition, key: &Key) -> Result<i64, Unavailable> {
        let since = Instant::now();
        let result = self.inner.counter(partition, key).await;
        self.count(StoreOperation::Counter, since, &result);
        result
    }

    async fn acquire(&self, partition: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable> {
        let since = Instant::now();
        let result = self.inner.acquire(partition, lease, ttl).await;
        self.count(StoreOperation::Acquire, since, &result);
        result
    }

    async fn renew(
        &self,
        partition: &Partition,
        lease: &Key,
        fence: Fence,
        ttl: Duration,
        log: &Key,
    ) -> Result<Option<u64>, Unavailable> {
        let since = Instant::now();
        let result = self.inner.renew(partition, lease, fence, ttl, log).await;
        self.count(StoreOperation::Renew, since, &result);
        result
    }

    async fn release(&self, partition: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable> {
        let since = Instant::now();
        let result = self.inner.release(partition, lease, fence).await;
        self.count(StoreOperation::Release, since, &result);
        result
    }

    async fn take(&self, partition: &Partition, bucket: &Key, rate: Rate) -> Result<RateDecision, Unavailable> {
        let since = Instant::now();
        let result = self.inner.take(partition, bucket, rate).await;
        self.count(StoreOperation::Take, since, &result);
        result
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn pace(&self) -> Duration {
        self.inner.pace()
    }

    fn now_ms(&self) -> u64 {
        self.inner.now_ms()
    }

    fn watch(&self, topic: &Topic) -> Watch {
        self.inner.watch(topic)
    }

    async fn health(&self) -> Result<(), Unavailable> {
        let since = Instant::now();
        let result = self.inner.health().await;
        self.count(StoreOperation::Health, since, &result);
        result
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
