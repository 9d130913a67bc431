//! This process among the replicas that share a store.
//!
//! Every run that needs a driver is registered under its replica's name, and every replica holds a lease of its own.
//! If this lease has expired, the replica is dead, or will find that it has lost its runs. The replica that takes
//! over the lease reaps the dead one: it moves the dead replica's registrations to where all replicas look for
//! orphaned runs. A registration is a hint: only the run's own lease decides whether a replica may drive it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::agent::error::unavailable;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::ownership::lease::{Lease, Leases};
use crate::store::pages::scan_pages;
use crate::store::{Check, Document, Fence, Order, Scan, Store, Tx, Unavailable, Write};
use crate::types::clock::now_ms;
use crate::types::pauses::spread;
use crate::types::{RunId, RunSpec, SessionId, Tenant};

/// How long a replica waits for another's registration.
const REGISTERED_SOON: Duration = Duration::from_secs(1);
/// Entries read or moved at a time.
pub(super) const MOVED: usize = 128;

/// The entry of a live run, which tells where the run lies.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Registration {
    /// The run's tenant.
    pub tenant: Tenant,
    /// Its session.
    pub session: Option<SessionId>,
    /// When the entry was made, Unix milliseconds.
    pub since_ms: u64,
}

impl Registration {
    /// The entry of a run of this tenant and session, from now on.
    pub fn new(tenant: Tenant, session: Option<SessionId>) -> Self {
        Self { tenant, session, since_ms: now_ms() }
    }

    /// The entry of this run.
    pub fn of(spec: &RunSpec) -> Self {
        Self::new(spec.tenant.clone(), spec.session.clone())
    }

    /// How long the run has been registered.
    pub fn age(&self) -> Duration {
        Duration::from_millis(now_ms().saturating_sub(self.since_ms))
    }
}

/// This process's name, and its lease once it is registered.
#[derive(Debug)]
pub struct Replica {
    id: String,
    store: Arc<dyn Store>,
    lease: Mutex<Option<Lease>>,
    /// The fence of its lease, while it has one.
    fence: parking_lot::Mutex<Option<Fence>>,
    /// The replicas that were registered when it looked last, without itself.
    others: parking_lot::Mutex<Vec<String>>,
}

impl Replica {
    /// A replica of a name that none had before.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            id: Uuid::now_v7().simple().to_string(),
            store,
            lease: Mutex::default(),
            fence: parking_lot::Mutex::default(),
            others: parking_lot::Mutex::default(),
        }
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Registers this replica, so that other replicas find its runs after its death.
    pub async fn join(&self, leases: &Leases) -> Result<(), Unavailable> {
        // Another task may be registering. Its result comes soon, unless the store does not answer.
        let held = tokio::time::timeout(REGISTERED_SOON, self.lease.lock()).await;
        let mut held = held.map_err(|_| Unavailable("this replica could not be registered yet".to_owned()))?;
        if held.as_ref().is_some_and(|lease| lease.validity().is_valid()) {
            return Ok(());
        }
        let (partition, key) = (keys::live_partition(), keys::replica(&self.id));
        let lease = leases.acquire_named(partition.clone(), key.clone(), key.clone()).await?;
        let lease = lease
            .ok_or_else(|| Unavailable("another replica is settling what this one was cut off from".to_owned()))?;
        let tx = Tx::new(partition).write(Write::Put { key, value: Vec::new().into(), ttl: None });
        if let Err(error) = self.store.commit(tx).await {
            lease.release().await?;
            return Err(unavailable(error));
        }
        *self.fence() = Some(lease.fence());
        *held = Some(lease);
        Ok(())
    }

    /// Leaves the other replicas. The runs that are still registered under its name become orphans.
    pub async fn retire(&self) -> Result<(), Unavailable> {
        let Some(lease) = self.lease.lock().await.take() else { return Ok(()) };
        self.reap(&self.id, &lease).await?;
        lease.release().await
    }

    /// Registers a new run as this replica's.
    pub fn register_new(&self, run: &RunId, entry: &Registration) -> Tx {
        let put = Write::Put { key: keys::live_entry(&self.id, run), value: encode(entry), ttl: None };
        let tx = Tx::new(keys::live_partition()).write(put);
        match *self.fence() {
            // A run that is registered after this replica was reaped would never be found.
            Some(fence) => tx.check(Check::Fence { lease: keys::replica(&self.id), fence }),
            None => tx,
        }
    }

    fn fence(&self) -> parking_lot::MutexGuard<'_, Option<Fence>> {
        self.fence.lock()
    }

    /// Registers an orphaned run as this replica's.
    pub fn register(&self, run: &RunId, entry: &Registration) -> Tx {
        self.register_new(run, entry).write(Write::Delete { key: keys::live_entry(keys::ORPHANED, run) })
    }

    /// Registers a queued run as this replica's. The replica that accepted the run forgets it.
    pub fn register_queued(&self, spec: &RunSpec) -> Tx {
        self.forget_queued(self.register(&spec.id, &Registration::of(spec)), spec)
    }

    /// Forgets a run that this replica need not drive any more.
    pub async fn unregister(&self, run: &RunId) -> Result<(), Unavailable> {
        let tx = Tx::new(keys::live_partition()).write(Write::Delete { key: keys::live_entry(&self.id, run) });
        self.store.commit(tx).await.map_err(unavailable)
    }

    /// Forgets runs that have ended and are never driven again.
    pub async fn unregister_all(&self, runs: &[RunId]) -> Result<(), Unavailable> {
        for some in runs.chunks(MOVED) {
            let deletions = some.iter().map(|run| Write::Delete { key: keys::live_entry(&self.id, run) });
            // One that is lost is found by the sweep, which sees that its run has ended.
            let tx = deletions.fold(Tx::new(keys::live_partition()).written(), Tx::write);
            self.store.commit(tx).await.map_err(unavailable)?;
        }
        Ok(())
    }

    /// Forgets a run that ended and may never have begun. So does the replica that accepted it.
    pub async fn unregister_queued(&self, spec: &RunSpec) -> Result<(), Unavailable> {
        let tx = Tx::new(keys::live_partition()).write(Write::Delete { key: keys::live_entry(&self.id, &spec.id) });
        self.store.commit(self.forget_queued(tx, spec)).await.map_err(unavailable)
    }

    fn forget_queued(&self, tx: Tx, spec: &RunSpec) -> Tx {
        match spec.queued_at.as_ref().filter(|replica| ***replica != *self.id) {
            Some(replica) => tx.write(Write::Delete { key: keys::live_entry(replica, &spec.id) }),
            None => tx,
        }
    }

    /// Registers a run as orphaned, and wakes the replicas that can drive it.
    pub async fn enqueue(&self, run: &RunId, entry: &Registration) -> Result<(), Unavailable> {
        let key = keys::live_entry(keys::ORPHANED, run);
        let tx = Tx {
            notify: Some(keys::orphans_topic()),
            ..Tx::new(keys::live_partition()).write(Write::Put { key, value: encode(entry), ttl: None })
        };
        self.store.commit(tx).await.map_err(unavailable)
    }

    /// Marks a run of this replica as orphaned, and wakes the replicas that can drive it.
    pub async fn orphan(&self, run: &RunId, entry: &Registration) -> Result<(), Unavailable> {
        let tx = Tx {
            notify: Some(keys::orphans_topic()),
            ..Tx::new(keys::live_partition())
                .write(Write::Delete { key: keys::live_entry(&self.id, run) })
                .write(Write::Put { key: keys::live_entry(keys::ORPHANED, run), value: encode(entry), ttl: None })
        };
        self.store.commit(tx).await.map_err(unavailable)
    }

    /// The entries under this replica's name.
    pub async fn own_entries(&self) -> Result<Vec<(String, Document)>, Unavailable> {
        let prefix = keys::live_entries(&self.id);
        let scan = Scan { prefix, after: None, limit: MOVED, order: Order::Ascending };
        scan_pages(&*self.store, &keys::live_partition(), scan).try_concat().await
    }

    /// The name of the replica that a run is registered with; `None` while none drives it.
    pub async fn driver_of(&self, run: &RunId) -> Result<Option<String>, Unavailable> {
        let scan = Scan { prefix: keys::REPLICAS.to_owned(), after: None, limit: MOVED, order: Order::Ascending };
        let all = scan_pages(&*self.store, &keys::live_partition(), scan).try_concat().await?;
        let ids = all.iter().filter_map(|(name, _)| name.strip_prefix(keys::REPLICAS));
        let looked = ids.map(|id| async move {
            let entry = self.store.get(&keys::live_partition(), &keys::live_entry(id, run)).await?;
            Ok::<_, Unavailable>(entry.map(|_| id.to_owned()))
        });
        Ok(try_join_all(looked).await?.into_iter().flatten().next())
    }

    /// Whether a replica of this name is registered: one that died is found out some seconds later.
    pub async fn is_registered(&self, id: &str) -> Result<bool, Unavailable> {
        Ok(self.store.get(&keys::live_partition(), &keys::replica(id)).await?.is_some())
    }

    /// Reads which other replicas there are.
    pub async fn read_others(&self) -> Result<(), Unavailable> {
        let scan = Scan { prefix: keys::REPLICAS.to_owned(), after: None, limit: MOVED, order: Order::Ascending };
        let all = scan_pages(&*self.store, &keys::live_partition(), scan).try_concat().await?;
        let ids = all.iter().filter_map(|(name, _)| name.strip_prefix(keys::REPLICAS));
        let (behind, before): (Vec<_>, Vec<_>) =
            ids.filter(|id| *id != self.id).map(str::to_owned).partition(|id| *id > self.id);
        *self.others.lock() = behind.into_iter().chain(before).collect();
        Ok(())
    }

    /// The other replicas, beginning with the one next to this in the order of names.
    pub(super) fn others(&self) -> Vec<String> {
        self.others.lock().clone()
    }

    /// Drops another replica that is gone.
    pub(super) fn forget(&self, id: &str) {
        self.others.lock().retain(|other| other != id);
    }

    /// How many replicas there are, as far as this one knows, itself among them.
    pub fn count(&self) -> usize {
        1 + self.others.lock().len()
    }

    /// When it is this replica's turn to do what all of them together do once in `period`, on average.
    pub fn next_turn(&self, period: Duration) -> Duration {
        let replicas = u32::try_from(self.count()).unwrap_or(u32::MAX);
        // `spread` takes a quarter off on average.
        spread(period.saturating_mul(replicas).mul_f64(4.0 / 3.0))
    }

    /// Where it is registered.
    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }
}
