//! What a run is and how it moves.
//!
//! [`machine`] decides, [`drive`] does, [`follow`] reads. [`Agent`] is all that the outside sees: it holds
//! the rooms, each of which knows only those below it. From the top:
//!
//! - [`admission`]: a request becomes a run.
//! - [`control`], [`recovery`]: runs are read, steered and cancelled; those that nobody drives are found.
//! - [`launch`]: a run gets its driver here.
//! - [`drive`]: one run's task.
//! - [`session`], [`limits`]: conversations, and what callers may take together.
//! - [`ownership`], [`follow`], [`context`], [`inbox`], [`generation`]: which replica drives what, readers,
//!   model requests, what is sent to a run, the configuration.
//! - [`ledger`], [`machine`], [`lifecycle`]: what is stored, what a run is, how the process ends.
//!
//! Knows nothing of HTTP, of dialects, or of which store or model it has.

pub mod admission;
pub mod catalog;
pub mod context;
pub mod control;
pub mod drive;
pub mod error;
pub mod follow;
pub mod generation;
mod inbox;
mod launch;
mod ledger;
mod lifecycle;
pub mod limits;
pub mod machine;
pub mod own_tool;
pub mod ownership;
mod quotas;
mod recovery;
mod request;
mod request_key;
mod rooms;
pub mod session;
#[cfg(test)]
pub(crate) mod tests;
mod verbs;

use std::sync::Arc;
use std::time::Duration;

pub use admission::Started;
pub use catalog::Catalog;
pub use generation::Generation;
pub use ledger::head::Head;
pub use ledger::retention::Retention;
pub use ledger::session::Versioned;
pub use quotas::Quotas;
pub use request::{LimitsPatch, NewRun};
pub use request_key::{Kind, RequestKey};

use crate::agent::rooms::Rooms;
use crate::store::{Store, Unavailable};

/// How often a draining process looks whether its runs have ended.
const IDLE_POLL: Duration = Duration::from_millis(20);

/// Starts, follows, cancels and recovers runs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Agent(Arc<Rooms>);

impl Agent {
    /// An agent over these parts. Call [`Agent::begin`] once it runs inside a runtime.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, generation: Generation, retention: Retention) -> Self {
        Self(Arc::new(Rooms::new(store, generation, retention)))
    }

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

    /// What the configuration says now.
    #[must_use]
    pub fn generation(&self) -> Arc<Generation> {
        self.0.generations.current()
    }

    /// Serves what begins from now on by `next`. Requests and runs that have begun keep what they have.
    pub fn replace_generation(&self, next: Generation) {
        self.0.generations.replace(next);
    }
}
