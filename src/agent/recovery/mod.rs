//! Finds orphaned runs, and resumes or fails them.

mod backlog;
mod orphan;
pub(super) mod overdue;
pub(super) mod sweep;
pub(super) mod workspaces;

use std::sync::Arc;

use crate::agent::follow::active::Active;
use crate::agent::generation::Generations;
use crate::agent::launch::Launcher;
use crate::agent::ledger::Ledger;
use crate::agent::lifecycle::Lifecycle;
use crate::agent::ownership::Ownership;
use crate::agent::ownership::seldom::Seldom;
use crate::agent::recovery::backlog::Backlog;

/// Finds orphaned runs, and does what is due.
#[derive(Debug)]
pub struct Recovery {
    ledger: Ledger,
    generations: Arc<Generations>,
    ownership: Arc<Ownership>,
    launcher: Arc<Launcher>,
    active: Arc<Active>,
    lifecycle: Arc<Lifecycle>,
    cannot_sweep: Seldom,
    cannot_resume: Seldom,
    lacks_memory: Seldom,
    cannot_read_due: Seldom,
    pub(super) backlog: Backlog,
}

impl Recovery {
    /// The recovery of runs that this launcher resumes.
    pub(super) fn new(launcher: &Arc<Launcher>) -> Self {
        Self {
            ledger: launcher.ledger.clone(),
            generations: launcher.generations.clone(),
            ownership: launcher.ownership.clone(),
            active: launcher.active.clone(),
            lifecycle: launcher.lifecycle.clone(),
            launcher: launcher.clone(),
            cannot_sweep: Seldom::default(),
            cannot_resume: Seldom::default(),
            lacks_memory: Seldom::default(),
            cannot_read_due: Seldom::default(),
            backlog: Backlog::default(),
        }
    }
}
