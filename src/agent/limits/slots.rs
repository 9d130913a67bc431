//! How many runs of a key are under way at once, on all replicas.
//!
//! A run's slot is a document beside the counter of taken slots, and both change in one commit: the
//! counter never passes the limit, and a slot is never released twice. A run keeps its slot while
//! another replica resumes it. It releases the slot just before it ends, so that a client that waits for its
//! end can start the next run. The other replicas release the slots of a replica that died: they look twice, and
//! a slot without a live run both times is released.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use tokio::time::MissedTickBehavior;

use crate::agent::error::{StartError, unavailable};
use crate::agent::generation::Generations;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::agent::limits::Limits;
use crate::agent::limits::quota::Account;
use crate::agent::quotas::Quotas;
use crate::store::pages::scan_pages;
use crate::store::retry::RetryConflicts;
use crate::store::{Check, CommitError, Key, Order, Partition, Scan, Store, Tx, Unavailable, Write};
use crate::types::{RunId, RunSpec, SessionId, Tenant};

/// How often slots without a run under way are looked for. No slot is acquired so long before its run is created.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// The version of a slot that was acquired once.
const FIRST_VERSION: u64 = 1;
/// Slots read at a time.
const PAGE: usize = 256;

impl Limits {
    /// The account of a run that is to begin or to be resumed, with a slot for the run.
    pub(in crate::agent) async fn take_slot(
        &self,
        spec: &RunSpec,
        quotas: &Quotas,
    ) -> Result<Option<Box<Account>>, StartError> {
        let Some(mut account) = self.account(spec, quotas) else { return Ok(None) };
        if let Some(most) = account.quota.max_concurrent_runs
            // One that another run begins has its place with that: it would wait for itself.
            && !account.acquire_slot(spec.parent.is_none().then_some(most.into())).await?
        {
            return Err(StartError::TooManyRuns(most));
        }
        Ok(Some(Box::new(account)))
    }

    /// Releases slots whose runs are not under way, for ever.
    pub(in crate::agent) async fn sweep_slots(&self, generations: &Generations) {
        let mut tick = tokio::time::interval(SWEEP_EVERY);
        // Two looks are never closer to each other, however long the first one took.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut suspects = HashMap::new();
        loop {
            tick.tick().await;
            let mut found = HashMap::new();
            for (partition, tenant) in generations.current().quotas.with_slots() {
                if let Err(error) = self.sweep_slots_of(&partition, tenant, &suspects, &mut found).await {
                    tracing::warn!(%error, "could not look for slots whose run has ended");
                }
            }
            suspects = found;
        }
    }

    /// Releases those slots of a key that were `suspects` and still are; `found` gets the other slots whose runs are
    /// not under way.
    async fn sweep_slots_of(
        &self,
        partition: &Partition,
        tenant: &Tenant,
        suspects: &HashMap<RunId, u64>,
        found: &mut HashMap<RunId, u64>,
    ) -> Result<(), Unavailable> {
        let scan = Scan { prefix: keys::SLOTS.to_owned(), after: None, limit: PAGE, order: Order::Ascending };
        let mut pages = pin!(scan_pages(&**self.ledger.store(), partition, scan));
        while let Some(page) = pages.try_next().await? {
            for (key, document) in page {
                let Some(run) = key.strip_prefix(keys::SLOTS).and_then(RunId::parse) else { continue };
                let session = decode(&document.value)?;
                if self.is_under_way(tenant, session, &run).await? {
                    continue;
                }
                if suspects.get(&run) == Some(&document.version) {
                    tracing::info!(%run, "releasing the slot of a run that is not live");
                    release_slot(&**self.ledger.store(), partition, keys::slot(&run), document.version).await?;
                } else {
                    found.insert(run, document.version);
                }
            }
        }
        Ok(())
    }

    async fn is_under_way(
        &self,
        tenant: &Tenant,
        session: Option<SessionId>,
        run: &RunId,
    ) -> Result<bool, Unavailable> {
        if self.active.get(run).is_some() {
            return Ok(true);
        }
        let partition = keys::run_partition(tenant, session.as_ref(), run);
        let head = self.ledger.head(&partition, run).await?;
        Ok(head.is_some_and(|head| head.is_under_way()))
    }
}

impl Account {
    /// Makes the run's slot this driver's, so that no other driver releases it. A slot that was released is acquired
    /// again, even without room: the run is under way.
    pub async fn keep_slot(&mut self) -> Result<(), Unavailable> {
        if self.quota.max_concurrent_runs.is_some() {
            self.acquire_slot(None).await?;
        }
        Ok(())
    }

    /// Gives the slot back. What fails here is made up for later.
    pub async fn free_slot(&mut self) {
        if let Some(version) = self.slot.take()
            && let Err(error) = release_slot(&*self.store, &self.partition, keys::slot(&self.run), version).await
        {
            tracing::warn!(run = %self.run, %error, "could not release the run's slot");
        }
    }

    /// Gives back the slot of a run that does not begin, unless another request for the same run had acquired the slot
    /// before: that run may be under way.
    pub async fn return_new_slot(&mut self) {
        if self.slot == Some(FIRST_VERSION) {
            self.free_slot().await;
        }
    }

    /// Takes the run's slot, if it has none and there is one within `ceiling`.
    async fn acquire_slot(&mut self, ceiling: Option<i64>) -> Result<bool, Unavailable> {
        let key = keys::slot(&self.run);
        let mut version = self.slot.unwrap_or(0);
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            let mut tx = Tx::new(self.partition.clone()).put_at(key.clone(), version, encode(&self.session), None);
            if version == 0 {
                tx = tx.write(Write::Add { counter: keys::slots_taken(), delta: 1, ceiling });
            }
            match self.store.commit(tx).await {
                Ok(()) => {
                    self.slot = Some(version + 1);
                    return Ok(true);
                }
                Err(CommitError::CeilingReached { .. }) => return Ok(false),
                Err(CommitError::VersionConflict { actual, .. }) => version = actual,
                Err(error) => return Err(unavailable(error)),
            }
        }
        Err(Unavailable(format!("the slot of {} is being changed by others", self.run)))
    }
}

/// Gives a slot back that stands at `version`; nothing happens if it is another's or gone.
async fn release_slot(store: &dyn Store, partition: &Partition, slot: Key, version: u64) -> Result<(), Unavailable> {
    let tx = Tx::new(partition.clone())
        .check(Check::Version { key: slot.clone(), version })
        .write(Write::Delete { key: slot })
        .write(Write::Add { counter: keys::slots_taken(), delta: -1, ceiling: None });
    match store.commit(tx).await {
        Ok(()) | Err(CommitError::VersionConflict { .. }) => Ok(()),
        Err(error) => Err(unavailable(error)),
    }
}
