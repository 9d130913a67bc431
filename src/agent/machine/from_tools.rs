//! What a run got of its tools beside results.

use crate::types::ToolOutcome;
use crate::types::conversation::Part;

/// What a run got of its tools beside results.
#[derive(Debug, Clone, Default)]
pub(super) struct FromTools {
    /// How many bytes of pictures, sound and files the results hold.
    pub(super) media: usize,
}

impl FromTools {
    /// Counts what came of a call.
    pub(super) fn add(&mut self, outcome: &ToolOutcome) {
        self.media += outcome.parts.iter().filter(|part| part.is_media()).map(Part::bytes).sum::<usize>();
    }
}
