//! Keeps the leases of the runs that this process drives.
//!
//! One task renews them all. A lease that was taken over, or that could not be renewed in time, is
//! given up: its run's driver is told to leave, and the store refuses what it still tries to write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::keys;
use crate::store::{Fence, Partition, Store, Unavailable};
use crate::types::{RunId, RunSpec};

/// How long a lease lasts without renewal.
const TTL: Duration = Duration::from_secs(10);
/// How often leases are renewed.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// A holder gives up this long before others may take over.
const MARGIN: Duration = Duration::from_secs(2);

/// The leases of this process.
#[derive(Debug)]
pub struct Leases(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    held: Mutex<HashMap<RunId, Held>>,
}

#[derive(Debug, Clone)]
struct Held {
    partition: Partition,
    fence: Fence,
    lost: CancellationToken,
    good_until: Instant,
}

/// A lease that was granted. Dropped without being released, it is no longer renewed and runs out.
#[derive(Debug)]
pub struct Lease {
    /// What proves it to the store.
    pub fence: Fence,
    /// Fires when it is no longer ours.
    pub lost: CancellationToken,
    run: RunId,
    shared: Arc<Shared>,
}

impl Lease {
    /// Gives the lease back.
    pub async fn release(self) -> Result<(), Unavailable> {
        match self.shared.take(&self.run, self.fence) {
            Some(held) => self.shared.store.release(&held.partition, &keys::lease(&self.run), held.fence).await,
            None => Ok(()),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.take(&self.run, self.fence);
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, HashMap<RunId, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops renewing this lease; a later one of the same run stays.
    fn take(&self, run: &RunId, fence: Fence) -> Option<Held> {
        let mut held = self.held();
        if held.get(run).is_some_and(|held| held.fence == fence) { held.remove(run) } else { None }
    }
}

impl Leases {
    /// No leases yet.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self(Arc::new(Shared { store, held: Mutex::default() }))
    }

    /// Takes a run's lease; `None` while another process holds it.
    pub async fn acquire(&self, spec: &RunSpec) -> Result<Option<Lease>, Unavailable> {
        let partition = keys::partition_of(spec);
        let good_until = Instant::now() + TTL - MARGIN;
        let Some(fence) = self.0.store.acquire(&partition, &keys::lease(&spec.id), TTL).await? else {
            return Ok(None);
        };
        let lost = CancellationToken::new();
        let held = Held { partition, fence, lost: lost.clone(), good_until };
        self.0.held().insert(spec.id.clone(), held);
        Ok(Some(Lease { fence, lost, run: spec.id.clone(), shared: self.0.clone() }))
    }

    /// Renews what is held, for ever.
    pub async fn keep(&self) {
        let mut tick = tokio::time::interval(RENEW_EVERY);
        loop {
            tick.tick().await;
            let held: Vec<_> = self.0.held().iter().map(|(run, held)| (run.clone(), held.clone())).collect();
            for (run, held) in held {
                self.renew(&run, held).await;
            }
        }
    }

    async fn renew(&self, run: &RunId, held: Held) {
        let good_until = Instant::now() + TTL - MARGIN;
        let renewed = self.0.store.renew(&held.partition, &keys::lease(run), held.fence, TTL, &keys::mail(run)).await;
        let lost = match renewed {
            Ok(Some(_)) => {
                if let Some(held) = self.0.held().get_mut(run) {
                    held.good_until = good_until;
                }
                false
            }
            Ok(None) => true,
            Err(error) => {
                tracing::warn!(%run, %error, "a lease could not be renewed");
                Instant::now() >= held.good_until
            }
        };
        if lost {
            tracing::warn!(%run, "the lease is lost; leaving the run to others");
            held.lost.cancel();
        }
    }
}
