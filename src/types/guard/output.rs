//! What is removed from what a model says.

use serde::{Deserialize, Serialize};

/// What a model's answers are cleaned of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputRules {
    /// How much is removed.
    pub sanitise: Sanitise,
    /// Whether a model may answer `NO_REPLY` where it has nothing to say.
    pub allow_no_reply: bool,
}

impl OutputRules {
    /// The rules for an answer; one that is to be JSON is left as it is.
    #[must_use]
    pub fn of_answer(self, is_json: bool) -> Self {
        if is_json { Self { sanitise: Sanitise::Off, ..self } } else { self }
    }
}

/// How much is removed from what a model says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sanitise {
    /// Nothing.
    Off,
    /// Thinking in tags is split off.
    #[default]
    Thinking,
    /// That, and what small models leak into their answers.
    Full,
}
