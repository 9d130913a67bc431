//! What a run is and how it moves.
//!
//! [`machine`] decides, [`drive`] does, [`follow`] reads. [`Agent`] is all that
//! the outside sees. Knows nothing of HTTP, of dialects, or of which store or model it has.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

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
pub mod ownership;
mod recovery;
mod request;
pub mod session;
#[cfg(test)]
pub(crate) mod tests;

pub use admission::start::Started;
pub use catalog::Catalog;
pub use generation::Generation;
pub use ledger::head::Head;
pub use ledger::retention::Retention;
pub use ledger::session::Versioned;
pub use limits::quota::Quotas;
pub use request::{Kind, LimitsPatch, NewRun, Once};

use crate::agent::follow::active::Active;
use crate::agent::generation::Generations;
use crate::agent::limits::rate::Rates;
use crate::agent::ownership::lease::Leases;
use crate::agent::ownership::registry::Replica;
use crate::agent::session::history::Histories;
use crate::store::{Store, Unavailable};

/// How often a draining process looks whether its runs have ended.
const IDLE_POLL: Duration = Duration::from_millis(20);

/// Starts, follows, cancels and recovers runs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Agent(Arc<Inner>);

/// What all runs of this process share.
#[derive(Debug)]
pub struct Inner {
    store: Arc<dyn Store>,
    generations: Generations,
    retention: Retention,
    rates: Rates,
    active: Arc<Active>,
    leases: Leases,
    replica: Replica,
    histories: Histories,
    tasks: TaskTracker,
    /// Whoever follows a run through this process.
    readers: TaskTracker,
    /// The process is about to end, and says so when asked.
    draining: CancellationToken,
    /// No new runs are taken.
    refusing: CancellationToken,
    /// Runs are to go on elsewhere from their next step.
    handing_over: CancellationToken,
    /// Runs are to be left where they are.
    leaving: CancellationToken,
}

impl std::ops::Deref for Agent {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Agent {
    /// An agent over these parts. Call [`Agent::begin`] once it runs inside a runtime.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, generation: Generation, retention: Retention) -> Self {
        let (leases, replica) = (Leases::new(store.clone()), Replica::new(store.clone()));
        let rates = Rates::new(store.clone());
        Self(Arc::new(Inner {
            store,
            generations: Generations::new(generation),
            retention,
            rates,
            active: Arc::default(),
            leases,
            replica,
            handing_over: CancellationToken::new(),
            readers: TaskTracker::new(),
            histories: Histories::new(retention.history_bytes),
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
            refusing: CancellationToken::new(),
            leaving: CancellationToken::new(),
        }))
    }

    /// Begins the work that goes on beside all runs: keeping leases and lists of models, taking up
    /// runs that nobody drives, and giving slots back that are nobody's. It ends when the agent has drained.
    pub fn begin(&self) {
        // Each in a task of its own: what fails in one leaves the others be.
        let agents = [(); 4].map(|()| self.clone());
        let [keeper, sweeper, freer, reader] = agents;
        self.while_running(async move { keeper.leases.keep().await });
        self.while_running(async move { sweeper.sweep().await });
        self.while_running(async move { freer.sweep_slots().await });
        self.while_running(async move { reader.generations.keep_models_fresh().await });
    }

    /// Does work in a task until it ends or the agent has drained.
    fn while_running<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) {
        let leaving = self.leaving.clone();
        self.tasks.spawn(async move { leaving.run_until_cancelled(work).await.map(drop) });
    }

    /// Says from now on that the process is about to end. New runs are still taken; where others can go
    /// on with them, runs are handed over before their next step.
    pub fn announce_end(&self) {
        self.draining.cancel();
        if self.store.is_shared() {
            self.handing_over.cancel();
        }
    }

    /// Takes no new runs from now on.
    pub fn refuse(&self) {
        self.draining.cancel();
        self.refusing.cancel();
    }

    /// Returns once no run is driven and followed here, or after `timeout`.
    pub async fn idle(&self, timeout: Duration) {
        let idle = async {
            while self.active.len() > 0 || !self.readers.is_empty() {
                tokio::time::sleep(IDLE_POLL).await;
            }
        };
        if tokio::time::timeout(timeout, idle).await.is_err() {
            tracing::warn!(
                runs = self.active.len(),
                readers = self.readers.len(),
                "leaving runs that did not end in time"
            );
        }
    }

    /// Leaves the runs that are still driven where they are: their logs are their checkpoints, and
    /// whoever opens the store next goes on with them. Then brings the store to rest.
    pub async fn close(&self) {
        self.refuse();
        self.leaving.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        if let Err(error) = self.replica.retire().await {
            tracing::warn!(%error, "this replica is still named; others will find that it is gone");
        }
        self.store.close().await;
    }

    /// Whether the process is about to end.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Whether the store takes commits.
    pub async fn health(&self) -> Result<(), Unavailable> {
        self.store.health().await
    }

    /// How many runs are driven here.
    #[must_use]
    pub fn active_runs(&self) -> usize {
        self.active.len()
    }

    /// What the configuration says now.
    #[must_use]
    pub fn generation(&self) -> Arc<Generation> {
        self.generations.current()
    }

    /// Serves what begins from now on by `next`. Requests and runs that have begun keep what they have.
    pub fn replace_generation(&self, next: Generation) {
        self.generations.replace(next);
    }

    /// The generation that a request is served by.
    fn generation_of(&self, new: &NewRun) -> Arc<Generation> {
        new.generation.clone().unwrap_or_else(|| self.generation())
    }
}
