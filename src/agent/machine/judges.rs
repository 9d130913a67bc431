//! What was asked about texts of a run. Pure data.

use crate::types::Used;
use crate::types::event::Reservation;
use crate::types::guard::{Judged, Judging};

/// What was asked about texts.
#[derive(Debug, Clone, Default)]
pub(super) struct Judges {
    /// The call that is under way.
    pub(super) open: Option<Judging>,
    /// What is set aside for the calls of the present step.
    pub(super) reserved: Reservation,
    /// What the run was charged for those that are over.
    pub(super) used: Used,
    /// What these may have taken beyond that.
    pub(super) unconfirmed: Used,
    /// What was said, as far as it may be asked for again.
    pub(super) verdicts: Vec<Judged>,
}

impl Judges {
    pub(super) fn begin(&mut self, judging: &Judging) {
        self.reserved = self.reserved.and(judging.set_aside);
        self.open = Some(judging.clone());
    }
}
