//! How the agent begins, drains and ends with its process.

use std::time::Duration;

use crate::agent::Agent;
use crate::store::Unavailable;

/// How often a draining process looks whether its runs have ended.
const IDLE_POLL: Duration = Duration::from_millis(20);

impl Agent {
    /// Begins the work that goes on beside all runs: keeping leases and lists of models, taking up
    /// runs that nobody drives, doing what is due, and giving slots back that are nobody's. It ends when the agent has drained.
    pub fn begin(&self) {
        // Each in a task of its own: what fails in one leaves the others be.
        let [keeper, watcher, sweeper, timer, freer, reader] = [(); 6].map(|()| self.0.clone());
        let lifecycle = &self.0.lifecycle;
        lifecycle.spawn_until_leaving(async move { keeper.ownership.leases.keep().await });
        lifecycle.spawn_until_leaving(async move { watcher.ownership.watch_replicas().await });
        lifecycle.spawn_until_leaving(async move { sweeper.recovery.sweep().await });
        lifecycle.spawn_until_leaving(async move { timer.recovery.sweep_due().await });
        lifecycle.spawn_until_leaving(async move { freer.limits.sweep_slots(&freer.generations).await });
        lifecycle.spawn_until_leaving(async move { reader.generations.keep_models_fresh().await });
    }

    /// Says from now on that the process is about to end. New runs are still taken; where others can go
    /// on with them, runs are handed over before their next step.
    pub fn announce_end(&self) {
        self.0.lifecycle.announce_end();
    }

    /// Takes no new runs from now on.
    pub fn refuse(&self) {
        self.0.lifecycle.refuse();
    }

    /// Returns once no run is driven and followed here, or after `timeout`.
    pub async fn idle(&self, timeout: Duration) {
        let (active, lifecycle) = (&self.0.active, &self.0.lifecycle);
        let idle = async {
            while active.len() > 0 || lifecycle.readers() > 0 {
                tokio::time::sleep(IDLE_POLL).await;
            }
        };
        if tokio::time::timeout(timeout, idle).await.is_err() {
            let (runs, readers) = (active.len(), lifecycle.readers());
            tracing::warn!(runs, readers, "runs did not end within drain_timeout; they are resumed later");
        }
    }

    /// Leaves the runs that are still driven where they are: their logs are their checkpoints, and
    /// whoever opens the store next goes on with them. Then brings the store to rest.
    pub async fn close(&self) {
        self.0.lifecycle.leave().await;
        if let Err(error) = self.0.ownership.replica.retire().await {
            tracing::warn!(%error, "could not unregister this replica; the others will find that it is gone");
        }
        self.0.ledger.store().close().await;
    }

    /// Whether the process is about to end.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.lifecycle.is_ending()
    }

    /// Whether the store takes commits.
    pub async fn health(&self) -> Result<(), Unavailable> {
        self.0.ledger.store().health().await
    }

    /// How many runs are driven here.
    #[must_use]
    pub fn active_runs(&self) -> usize {
        self.0.active.len()
    }
}
