//! A run's slot: a document beside the counters that count the run, which change with it in one commit.

use std::sync::Arc;

use bytes::Bytes;

use crate::agent::error::unavailable;
use crate::agent::ledger::keys;
use crate::store::retry::RetryConflicts;
use crate::store::{Check, CommitError, Key, Partition, Store, Tx, Unavailable, Write};
use crate::types::RunId;

/// The version of a slot that was acquired once.
const FIRST_VERSION: u64 = 1;

/// A run's slot in one partition.
#[derive(Debug)]
pub(in crate::agent) struct Slot {
    store: Arc<dyn Store>,
    partition: Partition,
    run: RunId,
    /// What the document says: enough for others to release it.
    value: Bytes,
    /// The counters, and how many runs each may count.
    counters: Vec<(Key, u32)>,
    /// The version of the document, if the run is known to have it.
    version: Option<u64>,
}

impl Slot {
    /// The slot of this run, which it may not have yet.
    pub fn new(
        store: &Arc<dyn Store>,
        partition: Partition,
        run: &RunId,
        (value, counters): (Bytes, Vec<(Key, u32)>),
    ) -> Self {
        Self { store: store.clone(), partition, run: run.clone(), value, counters, version: None }
    }

    /// Takes the slot, if the run has none. Where it is `bounded`, no counter passes what it may count: the first that would is
    /// returned.
    pub async fn acquire(&mut self, bounded: bool) -> Result<Option<Key>, Unavailable> {
        let key = keys::slot(&self.run);
        let mut version = self.version.unwrap_or(0);
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            let mut tx = Tx::new(self.partition.clone()).put_at(key.clone(), version, self.value.clone(), None);
            if version == 0 {
                for (counter, most) in &self.counters {
                    let ceiling = bounded.then_some(i64::from(*most));
                    tx = tx.write(Write::Add { counter: counter.clone(), delta: 1, ceiling });
                }
            }
            match self.store.commit(tx).await {
                Ok(()) => {
                    self.version = Some(version + 1);
                    return Ok(None);
                }
                Err(CommitError::CeilingReached { counter, .. }) => return Ok(Some(counter)),
                Err(CommitError::VersionConflict { actual, .. }) => version = actual,
                Err(error) => return Err(unavailable(error)),
            }
        }
        Err(Unavailable(format!("the slot of {} is being changed by others", self.run)))
    }

    /// Gives the slot back. What fails here is made up for later.
    pub async fn free(&mut self) {
        let Some(version) = self.version.take() else { return };
        let counters = self.counters.iter().map(|(counter, _)| counter.clone());
        if let Err(error) = release(&*self.store, &self.partition, (keys::slot(&self.run), version), counters).await {
            tracing::warn!(run = %self.run, %error, "could not release the run's slot");
        }
    }

    /// Gives back the slot of a run that does not begin, unless another request for the same run had acquired it before.
    pub async fn free_new(&mut self) {
        if self.version == Some(FIRST_VERSION) {
            self.free().await;
        }
    }
}

/// Gives a slot back that stands at this version; nothing happens if it is another's or gone.
pub(super) async fn release(
    store: &dyn Store,
    partition: &Partition,
    (slot, version): (Key, u64),
    counters: impl Iterator<Item = Key>,
) -> Result<(), Unavailable> {
    let mut tx = Tx::new(partition.clone())
        .check(Check::Version { key: slot.clone(), version })
        .write(Write::Delete { key: slot });
    for counter in counters {
        tx = tx.write(Write::Add { counter, delta: -1, ceiling: None });
    }
    match store.commit(tx).await {
        Ok(()) | Err(CommitError::VersionConflict { .. }) => Ok(()),
        Err(error) => Err(unavailable(error)),
    }
}
