//! What is kept of the results of tools.

use serde::{Deserialize, Serialize};

/// The longest result of a tool, in bytes, if nothing else is said, and at all: of everything that is kept of a call's
/// answer together, but for pictures, sound and files.
pub const MAX_RESULT_BYTES: usize = 51_200;

/// How many hexadecimal digits in a row are data, if nothing else is said.
const HEX_RUN: u32 = 200;

/// What is kept of the result of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultBounds {
    /// The most bytes of text.
    pub max_bytes: usize,
    /// As many hexadecimal digits in a row, or more, are data that no model reads.
    pub hex_run: u32,
}

impl Default for ResultBounds {
    fn default() -> Self {
        Self { max_bytes: MAX_RESULT_BYTES, hex_run: HEX_RUN }
    }
}

impl ResultBounds {
    /// The least that a result may have, however small its model's window is: a reason why the call failed fits.
    pub const LEAST_BYTES: usize = 1_024;

    /// These bounds for a model with a window of so many tokens, of which one result takes half at most, by four bytes a
    /// token.
    #[must_use]
    pub fn within(self, window: u64) -> Self {
        let share = usize::try_from(window.saturating_mul(2)).unwrap_or(usize::MAX);
        Self { max_bytes: self.max_bytes.min(share.max(Self::LEAST_BYTES)), ..self }
    }
}
