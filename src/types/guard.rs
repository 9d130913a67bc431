//! What the messages, answers and results of a run are held to. A run keeps what it was accepted with.

pub mod output;
pub mod result;

use serde::{Deserialize, Serialize};

pub use self::output::{OutputRules, Sanitise};
pub use self::result::{MAX_RESULT_BYTES, ResultBounds};
use crate::types::json::is_default;

/// Everything that guards a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Guards {
    /// What a model's answers are cleaned of.
    #[serde(skip_serializing_if = "is_default")]
    pub output: OutputRules,
    /// What is kept of the results of tools.
    #[serde(skip_serializing_if = "is_default")]
    pub results: ResultBounds,
}

impl Guards {
    /// Whether they are those of an agent of which nothing is said.
    #[must_use]
    pub fn is_standard(&self) -> bool {
        *self == Self::default()
    }
}
