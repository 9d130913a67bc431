//! What the messages, answers and results of a run are held to. A run keeps what it was accepted with.

pub mod input;
pub mod judge;
pub mod output;
pub mod point;
pub mod rail;
pub mod result;

use serde::{Deserialize, Serialize};

pub use self::input::{InputMode, InputPattern, MAX_MESSAGE_CHARS};
pub use self::judge::{Asked, Judge, JudgeCall, Judged, Judging, ModelJudge, Verdict};
pub use self::output::{OutputRules, Sanitise};
pub use self::point::GuardPoint;
pub use self::rail::{Guardrail, GuardrailRule, MAX_COMPILED, Severity, Triggered};
pub use self::result::{MAX_RESULT_BYTES, ResultBounds};
use crate::types::json::is_default;

/// Everything that guards a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Guards {
    /// What happens to a message that looks like an attempt to instruct the model in the operator's place.
    #[serde(skip_serializing_if = "is_default")]
    pub input: InputMode,
    /// The longest message of a user, in characters.
    pub max_message_chars: u32,
    /// What a model's answers are cleaned of.
    #[serde(skip_serializing_if = "is_default")]
    pub output: OutputRules,
    /// What is kept of the results of tools.
    #[serde(skip_serializing_if = "is_default")]
    pub results: ResultBounds,
    /// What texts are judged by, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guardrails: Vec<Guardrail>,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            input: InputMode::default(),
            max_message_chars: MAX_MESSAGE_CHARS,
            output: OutputRules::default(),
            results: ResultBounds::default(),
            guardrails: Vec::new(),
        }
    }
}

impl Guards {
    /// Whether they are those of an agent of which nothing is said.
    #[must_use]
    pub fn is_standard(&self) -> bool {
        *self == Self::default()
    }

    /// Whether anything is judged at this point.
    #[must_use]
    pub fn judges(&self, point: GuardPoint) -> bool {
        self.guardrails.iter().any(|rail| rail.on == point)
    }

    /// Whether a model or a service is asked at this point.
    #[must_use]
    pub fn asks(&self, point: GuardPoint) -> bool {
        self.guardrails.iter().any(|rail| rail.on == point && rail.rule.is_asked())
    }

    /// Whether nothing of an answer is shown before a model or a service was asked about it.
    #[must_use]
    pub fn holds_answers(&self) -> bool {
        self.guardrails.iter().any(|rail| rail.on == GuardPoint::Output && rail.tripwire && rail.rule.is_asked())
    }
}

/// What a guard found, or did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarded {
    /// A message looks like an attempt to instruct the model in the operator's place.
    InputFlagged {
        /// The message's place in what was sent, counted from 0.
        message: u32,
        /// What it looks like.
        pattern: InputPattern,
    },
    /// A message was longer than messages may be, and was cut.
    InputTruncated {
        /// The message's place in what was sent, counted from 0.
        message: u32,
        /// How many characters it had.
        chars: u64,
        /// How many of them are left.
        kept: u64,
    },
    /// A text failed a guardrail.
    Triggered(Triggered),
    /// A guardrail's model is asked about a text. Internal.
    Judging(Judging),
    /// A guardrail's model or service was asked about a text.
    Judged(Judged),
}

impl Guarded {
    /// Whether clients see it.
    #[must_use]
    pub fn is_public(&self) -> bool {
        match self {
            Self::Judging(_) => false,
            Self::InputFlagged { .. } | Self::InputTruncated { .. } | Self::Triggered(_) | Self::Judged(_) => true,
        }
    }
}
