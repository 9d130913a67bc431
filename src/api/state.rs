//! What handlers work with.

use crate::agent::Agent;

/// What handlers work with.
#[derive(Debug, Clone)]
pub struct Api {
    /// Starts, follows and cancels runs.
    pub agent: Agent,
}
