//! What the runs of a tenant took, by UTC day, key, agent, model and user.
//!
//! A run is counted when it ends or waits for its client, with a marker that says how much of it is counted. Marker
//! and rows lie in one partition and change in one commit, so a run is counted once, however many replicas count it and
//! however often. The registration of a run is removed only after the run was counted. So if the replica dies in between, the
//! replica that finds the registration counts the run: [`Usage::count_found`].
//!
//! A row belongs to one process, which alone writes it and keeps its sums at hand. So a row is seldom read to be changed,
//! and no two replicas change the same one. A [`report`] adds the rows up.

mod change;
mod count;
mod counted_run;
pub mod report;
pub mod row;
mod rows;
mod tallies;

use std::sync::Arc;

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::agent::ledger::head::Head;
use crate::agent::ledger::{Ledger, ReadError, keys};
use crate::agent::usage::count::Tally;
pub use crate::agent::usage::counted_run::CountedRun;
use crate::agent::usage::row::Day;
use crate::agent::usage::rows::RowWriter;
use crate::agent::usage::tallies::Tallies;
use crate::store::{Partition, Unavailable};
use crate::types::{Event, RunStatus, Tenant};

/// Reports that are made at once. Others wait, as each reads all rows of its days.
const REPORTS: usize = 8;
/// Runs that are looked at together before they are deleted.
const AT_ONCE: usize = 32;

/// Counts what runs took, and reports it.
#[derive(Debug)]
pub struct Usage {
    rows: RowWriter,
    tenants: Mutex<Tallies>,
    reports: Semaphore,
}

impl Usage {
    /// What this ledger's runs take.
    pub(super) fn new(ledger: Ledger) -> Self {
        Self { rows: RowWriter::new(ledger), tenants: Mutex::default(), reports: Semaphore::new(REPORTS) }
    }

    /// Counts a run that has ended or waits. What is counted of it already is not counted again.
    pub(in crate::agent) async fn count(&self, tenant: &Tenant, run: CountedRun) -> Result<(), Unavailable> {
        self.count_all(tenant, [run]).await
    }

    /// Counts several such runs of one tenant.
    pub(in crate::agent) async fn count_all(
        &self,
        tenant: &Tenant,
        runs: impl IntoIterator<Item = CountedRun>,
    ) -> Result<(), Unavailable> {
        self.count_each(tenant, runs).await.into_iter().collect()
    }

    /// The same. Returns what became of each.
    pub(in crate::agent) async fn count_each(
        &self,
        tenant: &Tenant,
        runs: impl IntoIterator<Item = CountedRun>,
    ) -> Vec<Result<(), Unavailable>> {
        self.tally(tenant).count(&self.rows, runs).await
    }

    /// Counts a run that another process may have counted, as the store has the run. A run under way is not counted.
    pub(in crate::agent) async fn count_found(
        &self,
        tenant: &Tenant,
        partition: &Partition,
        head: &Head,
    ) -> Result<(), Unavailable> {
        if head.is_under_way() {
            return Ok(());
        }
        let outcome = match self.ledger().last_record(partition, &head.id).await {
            Ok(record) => match record.map(|record| record.event) {
                Some(Event::RunFinished(outcome)) => Some(outcome),
                _ => None,
            },
            // What such a run took is not known, as its end says.
            Err(ReadError::Damaged(_)) => None,
            Err(ReadError::Store(error)) => return Err(error),
        };
        if outcome.is_none() && head.status == RunStatus::RequiresAction {
            return Ok(());
        }
        let now_ms = self.ledger().store().now_ms();
        self.count(tenant, CountedRun::found(head, outcome.as_deref(), now_ms)).await
    }

    /// Counts those of these runs that are not counted as far as they came, which are about to be deleted.
    pub(in crate::agent) async fn count_before_deletion(
        &self,
        tenant: &Tenant,
        partition: &Partition,
        heads: &[Head],
    ) -> Result<(), Unavailable> {
        let index = keys::tenant_partition(tenant);
        for few in heads.chunks(AT_ONCE) {
            let counting = few.iter().map(|head| async {
                let marker = keys::usage_counted(&head.id);
                // Of a run that its client continued, an earlier part alone may be counted.
                if head.leg == 0 && self.ledger().store().get(&index, &marker).await?.is_some() {
                    return Ok(());
                }
                self.count_found(tenant, partition, head).await
            });
            try_join_all(counting).await?;
        }
        Ok(())
    }

    /// How many rows of all tenants are kept at hand.
    #[cfg(test)]
    pub(in crate::agent) fn rows_at_hand(&self) -> usize {
        self.rows.rows_at_hand()
    }

    /// What this process has counted for a tenant.
    fn tally(&self, tenant: &Tenant) -> Arc<Tally> {
        self.tenants.lock().of(tenant, &self.rows)
    }

    /// The day of UTC that it is, by the clock that all replicas go by.
    #[must_use]
    pub fn today(&self) -> Day {
        Day::of(self.ledger().store().now_ms())
    }

    fn ledger(&self) -> &Ledger {
        &self.rows.ledger
    }
}
