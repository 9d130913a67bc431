//! What is set aside of budgets for a model call.

use serde::{Deserialize, Serialize};

use crate::types::json::is_default;
use crate::types::usage::{Micros, Used};

/// What a model call may take at most, set aside before it is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Estimated input.
    pub input_tokens: u64,
    /// The output limit sent upstream.
    pub output_tokens: u64,
    /// What both would cost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: Micros,
}

impl Reservation {
    /// Input and output together.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// This and `other` together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cost: self.cost + other.cost,
        }
    }

    /// All of it, as budgets count.
    #[must_use]
    pub fn whole(&self) -> Used {
        Used { tokens: self.tokens(), cost: self.cost }
    }
}
