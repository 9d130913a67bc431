//! Keeps the leases of the runs that this process drives.
//!
//! One task renews them all. A holder loses its lease when another replica has taken it, or when the holder's own
//! clock says that another replica may take it soon. By then the holder has stopped, even if the renewing task
//! failed. The store refuses anything that the holder still tries to write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::agent::ledger::keys;
use crate::agent::ownership::seldom::Seldom;
use crate::failpoint;
use crate::store::{Fence, Key, Partition, Store, Unavailable};
use crate::telemetry::metrics::{LeaseLosses, NoticedBy};
use crate::types::RunSpec;
use crate::types::maps::HashMap;
use crate::types::run::LEASE_TTL;

/// How often leases are renewed.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// How soon they are renewed again if the store did not answer.
const RENEW_AGAIN: Duration = Duration::from_millis(500);
/// A holder stops this long before another replica may acquire the lease.
const MARGIN: Duration = Duration::from_secs(2);
/// How many renewals are under way at once.
const TOGETHER: usize = 512;

/// The leases of this process.
#[derive(Debug)]
pub struct Leases(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    held: Mutex<HashMap<(Partition, Key), Arc<Held>>>,
    cannot_renew: Seldom,
    losses: LeaseLosses,
}

#[derive(Debug)]
struct Held {
    partition: Partition,
    key: Key,
    /// The log whose length each renewal tells.
    inbox: Key,
    fence: Fence,
    /// Until when the lease is certainly valid, by this process's clock; `None` once it is not.
    good_until: watch::Sender<Option<Instant>>,
    /// How long the inbox is, as far as it is known.
    commands: watch::Sender<u64>,
    /// Whether a change may have released the lease.
    is_ending: AtomicBool,
    /// Whether it is counted as lost.
    is_lost: AtomicBool,
    losses: LeaseLosses,
}

impl Held {
    /// Counts the lease as lost, once.
    fn lose(&self, by: NoticedBy) {
        if !self.is_lost.swap(true, Ordering::Relaxed) {
            self.losses.count(by);
        }
    }
}

/// A lease that was granted. If it is dropped without being released, it is no longer renewed and expires.
#[derive(Debug)]
pub struct Lease {
    held: Arc<Held>,
    shared: Arc<Shared>,
}

/// Releases a lease with a change of its partition.
#[derive(Debug)]
pub struct LeaseEnding(Arc<Held>);

impl LeaseEnding {
    /// What a change names that releases the lease. From now on a renewal that is refused is no sign of another holder.
    pub fn begin(&self) -> (Key, Fence) {
        self.0.is_ending.store(true, Ordering::Relaxed);
        (self.0.key.clone(), self.0.fence)
    }

    /// A change under the lease was refused because another replica holds it.
    pub fn lost(&self) {
        self.0.lose(NoticedBy::Commit);
    }

    /// The change was refused, and the lease is held on.
    pub fn put_off(&self) {
        self.0.is_ending.store(false, Ordering::Relaxed);
    }
}

/// How long a lease is certainly valid. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LeaseValidity(watch::Receiver<Option<Instant>>);

impl Lease {
    /// What proves it to the store.
    pub fn fence(&self) -> Fence {
        self.held.fence
    }

    /// Until when it is ours.
    pub fn validity(&self) -> LeaseValidity {
        LeaseValidity(self.held.good_until.subscribe())
    }

    /// How long the inbox is, as far as renewals told.
    pub fn commands(&self) -> watch::Receiver<u64> {
        self.held.commands.subscribe()
    }

    /// Releases the lease with a change.
    pub fn ending(&self) -> LeaseEnding {
        LeaseEnding(self.held.clone())
    }

    /// Gives the lease back.
    pub async fn release(self) -> Result<(), Unavailable> {
        self.shared.forget(&self.held);
        self.shared.store.release(&self.held.partition, &self.held.key, self.held.fence).await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.forget(&self.held);
    }
}

impl LeaseValidity {
    /// Whether the lease is certainly valid now.
    pub fn is_valid(&self) -> bool {
        self.until().is_some_and(|until| Instant::now() < until)
    }

    /// Until when the lease is surely ours; `None` if it was lost.
    pub fn until(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Returns once [`until`](Self::until) may say something else.
    pub async fn changed(&mut self) {
        // The sender lives with the lease; once that is dropped nothing prolongs it.
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns once the lease is no longer certainly valid.
    pub async fn expired(&mut self) {
        while let Some(until) = self.until().filter(|until| Instant::now() < *until) {
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = self.changed() => {}
            }
        }
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, HashMap<(Partition, Key), Arc<Held>>> {
        self.held.lock()
    }

    /// Stops renewing this lease; a later one of the same name stays.
    fn forget(&self, lease: &Held) {
        let (mut held, name) = (self.held(), (lease.partition.clone(), lease.key.clone()));
        if held.get(&name).is_some_and(|held| held.fence == lease.fence) {
            held.remove(&name);
        }
    }
}

impl Leases {
    /// No leases yet.
    pub fn new(store: Arc<dyn Store>, losses: LeaseLosses) -> Self {
        Self(Arc::new(Shared { store, held: Mutex::default(), cannot_renew: Seldom::default(), losses }))
    }

    /// Takes a run's lease; `None` while another process holds it.
    pub async fn acquire(&self, spec: &RunSpec) -> Result<Option<Lease>, Unavailable> {
        self.acquire_named(keys::partition_of(spec), keys::lease(&spec.id), keys::inbox(&spec.id)).await
    }

    /// Takes any lease; its renewals tell the length of `inbox`.
    pub async fn acquire_named(
        &self,
        partition: Partition,
        key: Key,
        inbox: Key,
    ) -> Result<Option<Lease>, Unavailable> {
        let asked = Instant::now();
        let Some(fence) = self.0.store.acquire(&partition, &key, LEASE_TTL).await? else { return Ok(None) };
        let good_until = watch::Sender::new(Some(asked + LEASE_TTL - MARGIN));
        let commands = watch::Sender::new(0);
        let names = (partition.clone(), key.clone());
        let (is_ending, is_lost, losses) = (AtomicBool::new(false), AtomicBool::new(false), self.0.losses.clone());
        let held = Held { partition, key, inbox, fence, good_until, commands, is_ending, is_lost, losses };
        let held = Arc::new(held);
        self.0.held().insert(names, held.clone());
        Ok(Some(Lease { held, shared: self.0.clone() }))
    }

    /// Renews what is held, for ever.
    pub async fn keep(&self) {
        loop {
            failpoint::hit("leases.before_renewal");
            let held: Vec<_> = self.0.held().values().cloned().collect();
            let renewals = futures_util::stream::iter(held).map(|held| async move { self.renew(&held).await });
            let all_answered = renewals.buffer_unordered(TOGETHER).fold(true, |all, one| async move { all && one });
            let pause = if all_answered.await { RENEW_EVERY } else { RENEW_AGAIN };
            tokio::time::sleep(pause).await;
        }
    }

    /// Renews one lease; `false` if the store did not answer.
    async fn renew(&self, held: &Held) -> bool {
        let Held { partition, key, inbox, fence, .. } = held;
        let asked = Instant::now();
        match self.0.store.renew(partition, key, *fence, LEASE_TTL, inbox).await {
            Ok(Some(commands)) => {
                held.good_until.send_modify(|until| *until = until.map(|until| until.max(asked + LEASE_TTL - MARGIN)));
                held.commands.send_if_modified(|known| commands > std::mem::replace(known, commands.max(*known)));
            }
            // Whether the change that was to release it happened is for its driver to find out.
            Ok(None) if held.is_ending.load(Ordering::Relaxed) => self.0.forget(held),
            Ok(None) => {
                tracing::warn!(lease = %key, "another replica holds the lease now");
                held.lose(NoticedBy::Renewal);
                held.good_until.send_replace(None);
                self.0.forget(held);
            }
            Err(error) => {
                if self.0.cannot_renew.is_due() {
                    tracing::warn!(lease = %key, %error, "could not renew the lease, and perhaps others; trying again");
                }
                return false;
            }
        }
        true
    }
}
