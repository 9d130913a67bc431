//! Runs that nobody drives are found, and gone on with or failed.

pub(super) mod fail;
pub(super) mod sweep;

use std::sync::Arc;

use crate::agent::follow::active::Active;
use crate::agent::generation::Generations;
use crate::agent::launch::Launcher;
use crate::agent::ledger::Ledger;
use crate::agent::lifecycle::Lifecycle;
use crate::agent::ownership::Ownership;

/// Finds runs that nobody drives.
#[derive(Debug)]
pub struct Recovery {
    pub(super) ledger: Ledger,
    pub(super) generations: Arc<Generations>,
    pub(super) ownership: Arc<Ownership>,
    pub(super) launcher: Arc<Launcher>,
    pub(super) active: Arc<Active>,
    pub(super) lifecycle: Arc<Lifecycle>,
}
