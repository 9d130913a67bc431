//! The other one of a step's two calls. Pure data.

use std::sync::Arc;

use crate::types::Used;
use crate::types::event::Reservation;
use crate::types::price::StepModel;

/// A step's call beside the one whose answer it waits for, or went on with.
#[derive(Debug, Clone, Default)]
pub(super) struct Beside {
    /// What is set aside for it.
    pub(super) reserved: Reservation,
    /// The model that it asks while it is under way.
    pub(super) asked: Option<Arc<StepModel>>,
    /// What the run was charged for it, once it was dropped.
    pub(super) used: Used,
    /// What it may have taken beyond that.
    pub(super) unconfirmed: Used,
}
