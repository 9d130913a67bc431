//! The state that handlers share.

use crate::agent::Agent;

/// What handlers work with.
#[derive(Debug, Clone)]
pub struct Api {
    /// Starts, follows and cancels runs.
    pub agent: Agent,
}
