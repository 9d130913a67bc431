//! What a run got of its tools beside results.

use crate::types::ToolOutcome;
use crate::types::conversation::Part;
use crate::types::run::ToolSearch;
use crate::types::tool::FoundTool;

/// What a run got of its tools beside results.
#[derive(Debug, Clone, Default)]
pub(super) struct FromTools {
    /// How many bytes of pictures, sound and files the results hold.
    pub(super) media: usize,
    /// The tools that it found, the latest last.
    pub(super) found: Vec<FoundTool>,
}

impl FromTools {
    /// Counts what came of a call. Returns how many bytes of text more the next request has, about, than without it.
    pub(super) fn add(&mut self, outcome: &ToolOutcome, search: Option<ToolSearch>) -> usize {
        self.media += outcome.parts.iter().filter(|part| part.is_media()).map(Part::bytes).sum::<usize>();
        let Some(search) = search else { return 0 };
        let mut weight = 0;
        for found in &outcome.found {
            if !self.found.iter().any(|known| known.name == found.name) {
                weight += found.weight as usize;
                self.found.push(found.clone());
            }
        }
        let above = self.found.len().saturating_sub(search.most as usize);
        self.found.drain(..above);
        weight
    }
}
