//! The state that handlers share.

use crate::agent::Agent;
use crate::api::access::MetricsAccess;

/// What handlers work with.
#[derive(Debug, Clone)]
pub struct Api {
    /// Starts, follows and cancels runs.
    pub agent: Agent,
    /// Who may read the metrics here.
    pub metrics: MetricsAccess,
}
