//! What a run knows of its tools.

use super::Run;

impl Run {
    /// How many bytes of pictures, sound and files its tools answered with, in base64.
    #[must_use]
    pub fn result_media(&self) -> usize {
        self.from_tools.media
    }
}
