//! For tests: what stands between an agent and a store, and meddles with some of what passes.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    CommitError, Document, Fence, Key, LogPage, Partition, Rate, Scan, Store, Taken, Topic, Tx, Unavailable, Watch,
    Write,
};

/// Something between an agent and a store. It is a store itself, and says only where it differs from the
/// one behind it.
#[async_trait]
pub(crate) trait Between: Send + Sync + fmt::Debug + 'static {
    /// The store behind it.
    fn inner(&self) -> &dyn Store;

    /// Comes before everything that is asked: about this partition, or about the store as a whole.
    async fn pass(&self, _place: Option<&Partition>) -> Result<(), Unavailable> {
        Ok(())
    }

    /// Something was asked, and so many bytes of values went to or fro.
    fn answered(&self, _bytes: usize) {}

    /// A commit that has passed.
    async fn on_commit(&self, tx: Tx) -> Result<(), CommitError> {
        self.inner().commit(tx).await
    }

    /// One that has passed is to be taken from a bucket.
    async fn on_take(&self, place: &Partition, bucket: &Key, rate: Rate) -> Result<Taken, Unavailable> {
        self.inner().take(place, bucket, rate).await
    }

    /// Where nudges come from.
    fn listen(&self) -> &dyn Store {
        self.inner()
    }

    /// Whether others are at the same store.
    fn has_others(&self) -> bool {
        self.inner().is_shared()
    }
}

/// Lets others come in between, as over a network, and then asks whether this may pass.
async fn reach(between: &impl Between, place: Option<&Partition>) -> Result<(), Unavailable> {
    tokio::task::yield_now().await;
    between.pass(place).await
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
impl<B: Between> Store for B {
    async fn commit(&self, tx: Tx) -> Result<(), CommitError> {
        reach(self, Some(&tx.partition)).await?;
        self.answered(tx.writes.iter().map(size).sum());
        self.on_commit(tx).await
    }

    async fn read_log(&self, place: &Partition, log: &Key, after: u64, limit: usize) -> Result<LogPage, Unavailable> {
        reach(self, Some(place)).await?;
        let page = self.inner().read_log(place, log, after, limit).await?;
        self.answered(page.entries.iter().map(Bytes::len).sum());
        Ok(page)
    }

    async fn get(&self, place: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        reach(self, Some(place)).await?;
        let found = self.inner().get(place, key).await?;
        self.answered(found.as_ref().map_or(0, |document| document.value.len()));
        Ok(found)
    }

    async fn scan(&self, place: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        reach(self, Some(place)).await?;
        let found = self.inner().scan(place, scan).await?;
        self.answered(found.iter().map(|(_, document)| document.value.len()).sum());
        Ok(found)
    }

    async fn counter(&self, place: &Partition, key: &Key) -> Result<i64, Unavailable> {
        reach(self, Some(place)).await?;
        self.answered(8);
        self.inner().counter(place, key).await
    }

    async fn acquire(&self, place: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable> {
        reach(self, Some(place)).await?;
        self.answered(0);
        self.inner().acquire(place, lease, ttl).await
    }

    async fn renew(
        &self,
        place: &Partition,
        lease: &Key,
        fence: Fence,
        ttl: Duration,
        log: &Key,
    ) -> Result<Option<u64>, Unavailable> {
        reach(self, Some(place)).await?;
        self.answered(0);
        self.inner().renew(place, lease, fence, ttl, log).await
    }

    async fn release(&self, place: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable> {
        reach(self, Some(place)).await?;
        self.answered(0);
        self.inner().release(place, lease, fence).await
    }

    async fn take(&self, place: &Partition, bucket: &Key, rate: Rate) -> Result<Taken, Unavailable> {
        reach(self, Some(place)).await?;
        self.answered(0);
        self.on_take(place, bucket, rate).await
    }

    fn is_shared(&self) -> bool {
        self.has_others()
    }

    fn pace(&self) -> Duration {
        self.inner().pace()
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
