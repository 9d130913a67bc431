//! How many runs of a key, of an agent and of a user are under way at once, on all replicas.
//!
//! A run's slot is a document beside the counters that count the run, and they change in one commit: a counter never passes its
//! limit, and a slot is never released twice. A run keeps its slots while another replica resumes it. It releases them just before it
//! ends, so that a client that waits for its end can start the next run. The other replicas release the slots of a replica that died:
//! they look twice, and a slot without a live run both times is released.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use tokio::time::MissedTickBehavior;

use crate::agent::error::StartError;
use crate::agent::generation::Generations;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::agent::limits::Limits;
use crate::agent::limits::quota::Account;
use crate::agent::limits::shares::{Counted, full};
use crate::agent::limits::slot::release;
use crate::agent::quotas::Quotas;
use crate::store::pages::scan_pages;
use crate::store::{Key, Order, Partition, Scan, Unavailable};
use crate::types::{RunId, RunSpec, SessionId, Tenant};

/// How often slots without a run under way are looked for. No slot is acquired so long before its run is created.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Slots read at a time.
const PAGE: usize = 256;

/// Slots of runs that are not under way, with the versions at which they were seen.
type Suspects = HashMap<(Partition, RunId), u64>;

/// Reads what a slot says: the session of its run, and where the run is counted.
type Reads = fn(&Bytes) -> Result<(Option<SessionId>, Vec<Key>), Unavailable>;

impl Limits {
    /// The account of a run that is to begin or to be resumed, with a slot for the run.
    pub(in crate::agent) async fn take_slot(
        &self,
        spec: &RunSpec,
        quotas: &Quotas,
    ) -> Result<Option<Box<Account>>, StartError> {
        let Some(mut account) = self.account(spec, quotas) else { return Ok(None) };
        // One that another run begins has its place with that: it would wait for itself.
        let refused = match account.acquire_slots(spec.parent.is_none()).await {
            Ok(None) => return Ok(Some(Box::new(account))),
            Ok(Some(counter)) if counter == keys::slots_taken() => {
                StartError::TooManyRuns(account.quota.max_concurrent_runs.unwrap_or(0))
            }
            Ok(Some(counter)) => full(spec, &counter),
            Err(error) => error.into(),
        };
        // It may have one of two.
        Box::pin(account.return_new_slot()).await;
        Err(refused)
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
                let swept = self.sweep_slots_of((&partition, tenant), of_key, &suspects, &mut found).await;
                warn_of(swept.map(drop));
            }
            let sharing: Vec<Tenant> = self.sharing.lock().iter().cloned().collect();
            for tenant in sharing {
                let partition = keys::shares_partition(&tenant);
                match self.sweep_slots_of((&partition, &tenant), of_shares, &suspects, &mut found).await {
                    Ok(0) => drop(self.sharing.lock().remove(&tenant)),
                    swept => warn_of(swept.map(drop)),
                }
            }
            suspects = found;
        }
    }

    /// Releases those slots of a partition that were `suspects` and still are; `found` gets the other slots whose runs are
    /// not under way. Returns how many slots there were.
    async fn sweep_slots_of(
        &self,
        (partition, tenant): (&Partition, &Tenant),
        reads: Reads,
        suspects: &Suspects,
        found: &mut Suspects,
    ) -> Result<usize, Unavailable> {
        let scan = Scan { prefix: keys::SLOTS.to_owned(), after: None, limit: PAGE, order: Order::Ascending };
        let mut pages = pin!(scan_pages(&**self.ledger.store(), partition, scan));
        let mut count = 0;
        while let Some(page) = pages.try_next().await? {
            count += page.len();
            for (key, document) in page {
                let Some(run) = key.strip_prefix(keys::SLOTS).and_then(RunId::parse) else { continue };
                let (session, counters) = reads(&document.value)?;
                if self.is_under_way(tenant, session, &run).await? {
                    continue;
                }
                let place = (partition.clone(), run);
                if suspects.get(&place) == Some(&document.version) {
                    let run = &place.1;
                    tracing::info!(%run, "releasing the slot of a run that is not live");
                    let slot = (keys::slot(run), document.version);
                    release(&**self.ledger.store(), partition, slot, counters.into_iter()).await?;
                } else {
                    found.insert(place, document.version);
                }
            }
        }
        Ok(count)
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

fn of_key(value: &Bytes) -> Result<(Option<SessionId>, Vec<Key>), Unavailable> {
    Ok((decode(value)?, vec![keys::slots_taken()]))
}

fn of_shares(value: &Bytes) -> Result<(Option<SessionId>, Vec<Key>), Unavailable> {
    let Counted { session, counters } = decode(value)?;
    Ok((session, counters))
}

fn warn_of(swept: Result<(), Unavailable>) {
    if let Err(error) = swept {
        tracing::warn!(%error, "could not look for slots whose run has ended");
    }
}

impl Account {
    /// Takes the run's slots; the counter that is full, if one is.
    async fn acquire_slots(&mut self, bounded: bool) -> Result<Option<Key>, Unavailable> {
        for slot in &mut self.slots {
            if let Some(full) = slot.acquire(bounded).await? {
                return Ok(Some(full));
            }
        }
        Ok(None)
    }

    /// Makes the run's slots this driver's, so that no other driver releases them. A slot that was released is acquired
    /// again, even without room: the run is under way.
    pub async fn keep_slot(&mut self) -> Result<(), Unavailable> {
        self.acquire_slots(false).await.map(drop)
    }

    /// Gives the slots back. What fails here is made up for later.
    pub async fn free_slot(&mut self) {
        for slot in &mut self.slots {
            slot.free().await;
        }
    }

    /// Gives back the slots of a run that does not begin, unless another request for the same run had acquired them
    /// before: that run may be under way.
    pub async fn return_new_slot(&mut self) {
        for slot in &mut self.slots {
            slot.free_new().await;
        }
    }
}
