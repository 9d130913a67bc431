//! Which replica drives which run: leases, the registry of replicas, and what a driver does while its store does not
//! answer.

pub mod lease;
pub(super) mod registry;
pub(super) mod retry;
pub(super) mod seldom;
pub(super) mod watch;

use std::sync::Arc;
use std::time::Duration;

use crate::agent::ledger::keys;
use crate::agent::lifecycle::Lifecycle;
use crate::agent::ownership::lease::{Lease, Leases};
use crate::agent::ownership::registry::{Registration, Replica};
use crate::agent::ownership::seldom::Seldom;
use crate::store::{Partition, Store, Unavailable};
use crate::telemetry::metrics::LeaseLosses;
use crate::types::{RunId, RunSpec, SessionId, Tenant};

/// How soon it is tried again to orphan a run that could not be.
const ORPHAN_AGAIN: Duration = Duration::from_millis(500);
/// How often that is tried once this process leaves its runs.
const ATTEMPTS_AT_THE_END: u32 = 3;

/// This replica's leases, and its place among the others.
#[derive(Debug)]
pub struct Ownership {
    pub(super) leases: Leases,
    pub(super) replica: Replica,
    lifecycle: Arc<Lifecycle>,
    cannot_orphan: Seldom,
    cannot_watch: Seldom,
}

impl Ownership {
    /// A replica of a name that none had before, without a lease.
    pub(super) fn new(store: &Arc<dyn Store>, lifecycle: Arc<Lifecycle>, losses: LeaseLosses) -> Self {
        let (leases, replica) = (Leases::new(store.clone(), losses), Replica::new(store.clone()));
        Self { leases, replica, lifecycle, cannot_orphan: Seldom::default(), cannot_watch: Seldom::default() }
    }

    /// Registers this replica, so that other replicas find its runs after its death.
    pub(super) async fn join(&self) -> Result<(), Unavailable> {
        self.replica.join(&self.leases).await
    }

    /// Takes a run's lease; `None` while another process holds it.
    pub(super) async fn acquire(&self, spec: &RunSpec) -> Result<Option<Lease>, Unavailable> {
        self.leases.acquire(spec).await
    }

    /// Takes the lease of a run of which little is known; `None` while another process holds it.
    pub(super) async fn acquire_run(&self, partition: &Partition, run: &RunId) -> Result<Option<Lease>, Unavailable> {
        self.leases.acquire_named(partition.clone(), keys::lease(run), keys::inbox(run)).await
    }

    /// Wakes a queued run: names it where all replicas look for runs to be driven.
    pub(super) async fn wake(&self, tenant: &Tenant, session: &SessionId, run: &RunId) -> Result<(), Unavailable> {
        let entry = Registration::new(tenant.clone(), Some(session.clone()));
        self.replica.enqueue(run, &entry).await
    }

    /// Wakes the run that is next in the session of this one, if there is any.
    pub(super) async fn wake_next(&self, entry: &Registration, next: Option<&RunId>) -> Result<(), Unavailable> {
        match next.zip(entry.session.as_ref()) {
            Some((next, session)) => self.wake(&entry.tenant, session, next).await,
            None => Ok(()),
        }
    }

    /// Unregisters a run that has ended or waits, once the next in its session is awake.
    pub(super) async fn unregister(
        &self,
        run: &RunId,
        entry: &Registration,
        next: Option<&RunId>,
    ) -> Result<(), Unavailable> {
        self.wake_next(entry, next).await?;
        self.replica.unregister(run).await
    }

    /// The same of a run that may never have begun.
    pub(super) async fn unregister_idle(&self, spec: &RunSpec, next: Option<&RunId>) -> Result<(), Unavailable> {
        self.wake_next(&Registration::of(spec), next).await?;
        self.replica.unregister_queued(spec).await
    }

    /// Makes sure that a replica finds the run. This process tries as long as it lives; after its death, the
    /// replica that reaps its registrations finds the run.
    pub(super) async fn orphan(&self, run: &RunId, entry: &Registration) {
        let mut attempts_at_the_end = 0;
        while let Err(error) = self.replica.orphan(run, entry).await {
            if self.cannot_orphan.is_due() {
                tracing::warn!(%run, %error, "could not mark the run, and perhaps others, as orphaned; trying again");
            }
            attempts_at_the_end += u32::from(self.lifecycle.is_leaving());
            if attempts_at_the_end == ATTEMPTS_AT_THE_END {
                return;
            }
            tokio::time::sleep(ORPHAN_AGAIN).await;
        }
    }
}
