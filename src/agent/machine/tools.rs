//! What a run knows of its tools.

use super::Run;
use crate::types::tool::FoundTool;

impl Run {
    /// How many bytes of pictures, sound and files its tools answered with, in base64.
    #[must_use]
    pub fn result_media(&self) -> usize {
        self.from_tools.media
    }

    /// The tools that it found, the latest last. The model is offered them beside those that it has from the start.
    #[must_use]
    pub fn found_tools(&self) -> &[FoundTool] {
        &self.from_tools.found
    }

    /// How many more tools it can find in this step, so that the model is offered all of them in the next.
    #[must_use]
    pub fn room_for_tools(&self) -> usize {
        self.spec.search.map_or(0, |search| self.from_tools.room(search))
    }
}
