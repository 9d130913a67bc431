//! What several runs took together.

use serde::{Deserialize, Serialize};

use crate::types::json::is_default;
use crate::types::usage::{Micros, Usage};

/// What runs took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// How many they are.
    pub runs: u32,
    /// Their tokens.
    pub usage: Usage,
    /// What these cost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: Micros,
}

impl Taken {
    /// What one run took.
    #[must_use]
    pub fn of_one(usage: Usage, cost: Micros) -> Self {
        Self { runs: 1, usage, cost }
    }

    /// What these took and those.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.runs = self.runs.saturating_add(other.runs);
        self.usage += other.usage;
        self.cost += other.cost;
        self
    }
}
