//! A run gets its driver here: a new run, a queued run whose turn has come, or a run that is resumed.

pub(super) mod compactions;
mod count;
mod fail;
pub(super) mod queued;
pub(super) mod ready;
pub(super) mod requeue;
pub(super) mod resume;
pub(super) mod task;
mod tell;
mod tell_parent;
mod tools;
pub(super) mod uncounted;
mod wake;

use std::sync::Arc;

use crate::agent::documents::Documents;
use crate::agent::drive::handing_over::Successors;
use crate::agent::follow::Followers;
use crate::agent::follow::active::Active;
use crate::agent::generation::Generations;
use crate::agent::launch::compactions::Compactions;
use crate::agent::launch::uncounted::UncountedRuns;
use crate::agent::ledger::Ledger;
use crate::agent::ledger::offers::Offers;
use crate::agent::lifecycle::Lifecycle;
use crate::agent::limits::Limits;
use crate::agent::outbox::Outbox;
use crate::agent::ownership::Ownership;
use crate::agent::run_memory::RunMemory;
use crate::agent::session::Sessions;
use crate::agent::usage::Usage;
use crate::telemetry::run::Telemetry;

/// Gives runs their drivers.
#[derive(Debug)]
pub struct Launcher {
    pub(super) ledger: Ledger,
    pub(super) offers: Offers,
    pub(super) generations: Arc<Generations>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) documents: Arc<Documents>,
    pub(super) limits: Arc<Limits>,
    pub(super) ownership: Arc<Ownership>,
    pub(super) active: Arc<Active>,
    pub(super) memory: Arc<RunMemory>,
    pub(super) followers: Arc<Followers>,
    pub(super) lifecycle: Arc<Lifecycle>,
    pub(super) usage: Arc<Usage>,
    pub(super) uncounted: UncountedRuns,
    pub(super) telemetry: Telemetry,
    pub(super) outbox: Outbox,
    pub(super) compactions: Compactions,
    pub(super) handing_over: Arc<Successors>,
}
