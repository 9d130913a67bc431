//! Makes room for a run that has ended, where ended runs take this process's memory.

use bytes::Bytes;
use futures_util::TryStreamExt;

use crate::agent::error::unavailable;
use crate::agent::ledger::ended::{EndedRun, EndedRuns};
use crate::agent::ledger::{Ledger, commits, keys, outbox, stored};
use crate::store::pages::log_pages;
use crate::store::{Partition, Tx, Unavailable, Write};
use crate::types::{RunId, Tenant};

/// Entries of a log that are weighed together.
const PAGE: usize = 512;

impl Ledger {
    /// Notes that a run has ended whose log has so many bytes, if that is known; the oldest runs go if that makes too many
    /// for the memory that they take. Does nothing where runs do not lie in memory.
    pub(in crate::agent) async fn note_end(
        &self,
        tenant: &Tenant,
        partition: &Partition,
        run: &RunId,
        log_bytes: Option<u64>,
    ) {
        let Some(ended) = &self.ended else { return };
        let noted = async {
            let log_bytes = match log_bytes {
                Some(bytes) => bytes,
                // Boxed, as it is rare.
                None => Box::pin(self.weigh_log(partition, run)).await?,
            };
            let bytes = stored::of_ended_run(log_bytes);
            let newest = EndedRun { tenant: tenant.clone(), partition: partition.clone(), run: run.clone(), bytes };
            self.make_room(ended, newest).await
        };
        if let Err(error) = noted.await {
            tracing::warn!(%run, %error, "could not drop old runs from memory");
        }
    }

    async fn weigh_log(&self, partition: &Partition, run: &RunId) -> Result<u64, Unavailable> {
        let pages = log_pages(&*self.store, partition, keys::events(run), 0..u64::MAX, PAGE);
        let weigh =
            |sum, page: Vec<Bytes>| async move { Ok(sum + page.iter().map(|entry| entry.len() as u64).sum::<u64>()) };
        pages.try_fold(0, weigh).await
    }

    async fn make_room(&self, ended: &EndedRuns, newest: EndedRun) -> Result<(), Unavailable> {
        let mut dropped = 0;
        for EndedRun { tenant, partition, run, bytes } in ended.add(newest) {
            // A run that expired or was deleted needs no deletion.
            let is_there = self.head(&partition, &run).await?.is_some();
            dropped += u64::from(is_there);
            let freed = if is_there { bytes } else { 0 };
            let index = Tx::new(keys::tenant_partition(&tenant))
                .write(Write::Delete { key: keys::run_entry(&run) })
                .write(Write::Delete { key: keys::usage_counted(&run) })
                .write(stored::uncount(freed));
            let documents = commits::delete_run(Tx::new(partition), &run);
            outbox::delete_messages(&*self.store, &documents.partition, Some(&run)).await?;
            for tx in [documents, index] {
                self.commit(tx).await.map_err(unavailable)?;
            }
        }
        ended.tell(dropped);
        Ok(())
    }
}
