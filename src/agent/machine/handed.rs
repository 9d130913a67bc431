//! What a run knows of its handoffs, as its records tell. Data.

use std::sync::Arc;

use crate::types::RunSpec;
use crate::types::succession::Handoff;

/// What a run knows of its handoffs.
#[derive(Debug, Clone, Default)]
pub(super) struct Handoffs {
    /// The one that takes effect once the calls of the step are answered.
    pub(super) pending: Option<Box<Handoff>>,
    /// What the run was when it began; `None` until it becomes something else.
    pub(super) first: Option<Arc<RunSpec>>,
    /// Whether no step has named the model yet that it calls since.
    pub(super) is_unnamed: bool,
}
