//! For tests: a layer around a store that watches, delays, refuses or changes some of the calls.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    CommitError, Document, Fence, Key, LogPage, Partition, Rate, RateDecision, Scan, Store, Topic, Tx, Unavailable,
    Watch, Write,
};

/// A layer around a store. It is a store itself; a layer implements only the methods in which it differs
/// from the store behind it.
#[async_trait]
pub(crate) trait StoreLayer: Send + Sync + fmt::Debug + 'static {
    /// The store behind it.
    fn inner(&self) -> &dyn Store;

    /// Runs before every operation, with the partition that the operation is about, or `None` if it is about
    /// the whole store. An error is the operation's result.
    async fn pass(&self, _partition: Option<&Partition>) -> Result<(), Unavailable> {
        Ok(())
    }

    /// Counts an operation and the bytes of values that it sent or received.
    fn answered(&self, _bytes: usize) {}

    /// Makes a commit that [`pass`](Self::pass) let through.
    async fn on_commit(&self, tx: Tx) -> Result<(), CommitError> {
        self.inner().commit(tx).await
    }

    /// Reads a document, where [`pass`](Self::pass) let it through.
    async fn on_get(&self, partition: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        self.inner().get(partition, key).await
    }

    /// Makes a scan that [`pass`](Self::pass) let through.
    async fn on_scan(&self, partition: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        self.inner().scan(partition, scan).await
    }

    /// Takes a token that [`pass`](Self::pass) let through.
    async fn on_take(&self, partition: &Partition, bucket: &Key, rate: Rate) -> Result<RateDecision, Unavailable> {
        self.inner().take(partition, bucket, rate).await
    }

    /// The store whose nudges are delivered.
    fn listen(&self) -> &dyn Store {
        self.inner()
    }

    /// Whether other processes share the store.
    fn has_others(&self) -> bool {
        self.inner().is_shared()
    }
}

/// Yields to other tasks, as a call over a network does, and then asks the layer whether the operation may pass.
async fn reach(layer: &impl StoreLayer, partition: Option<&Partition>) -> Result<(), Unavailable> {
    tokio::task::yield_now().await;
    layer.pass(partition).await
}

fn size(write: &Write) -> usize {
    match write {
        Write::Put { value, .. } => value.len(),
        Write::Append { entries, .. } => entries.iter().map(Bytes::len).sum(),
        Write::Add { .. } => 8,
        Write::Delete { .. }
        | Write::DeleteLog { .. }
        | Write::ExpireLog { .. }
        | Write::DeleteCounter { .. }
        | Write::ExpireCounter { .. } => 0,
    }
}

#[async_trait]
impl<L: StoreLayer> Store for L {
    async fn commit(&self, tx: Tx) -> Result<(), CommitError> {
        reach(self, Some(&tx.partition)).await?;
        self.answered(tx.writes.iter().map(size).sum());
        self.on_commit(tx).await
    }

    async fn read_log(
        &self,
        partition: &Partition,
        log: &Key,
        after: u64,
        limit: usize,
    ) -> Result<LogPage, Unavailable> {
        reach(self, Some(partition)).await?;
        let page = self.inner().read_log(partition, log, after, limit).await?;
        self.answered(page.entries.iter().map(Bytes::len).sum());
        Ok(page)
    }

    async fn get(&self, partition: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        reach(self, Some(partition)).await?;
        let found = self.on_get(partition, key).await?;
        self.answered(found.as_ref().map_or(0, |document| document.value.len()));
        Ok(found)
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        reach(self, Some(partition)).await?;
        let found = self.on_scan(partition, scan).await?;
        self.answered(found.iter().map(|(_, document)| document.value.len()).sum());
        Ok(found)
    }

    async fn counter(&self, partition: &Partition, key: &Key) -> Result<i64, Unavailable> {
        reach(self, Some(partition)).await?;
        self.answered(8);
        self.inner().counter(partition, key).await
    }

    async fn acquire(&self, partition: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable> {
        reach(self, Some(partition)).await?;
        self.answered(0);
        self.inner().acquire(partition, lease, ttl).await
    }

    async fn renew(
        &self,
        partition: &Partition,
        lease: &Key,
        fence: Fence,
        ttl: Duration,
        log: &Key,
    ) -> Result<Option<u64>, Unavailable> {
        reach(self, Some(partition)).await?;
        self.answered(0);
        self.inner().renew(partition, lease, fence, ttl, log).await
    }

    async fn release(&self, partition: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable> {
        reach(self, Some(partition)).await?;
        self.answered(0);
        self.inner().release(partition, lease, fence).await
    }

    async fn take(&self, partition: &Partition, bucket: &Key, rate: Rate) -> Result<RateDecision, Unavailable> {
        reach(self, Some(partition)).await?;
        self.answered(0);
        self.on_take(partition, bucket, rate).await
    }

    fn is_shared(&self) -> bool {
        self.has_others()
    }

    fn pace(&self) -> Duration {
        self.inner().pace()
    }

    fn now_ms(&self) -> u64 {
        self.inner().now_ms()
    }

    fn watch(&self, topic: &Topic) -> Watch {
        self.listen().watch(topic)
    }

    async fn health(&self) -> Result<(), Unavailable> {
        reach(self, None).await?;
        self.inner().health().await
    }

    async fn close(&self) {
        if reach(self, None).await.is_ok() {
            self.inner().close().await;
        }
    }
}
