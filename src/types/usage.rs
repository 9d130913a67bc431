//! Tokens, money, and what budgets count.

use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use crate::types::json::is_default;

/// The most that an amount of money can be, in US dollars.
pub const MAX_USD: f64 = 1e9;

/// Tokens that one or more model calls took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens, cached ones included.
    pub prompt_tokens: u64,
    /// Output tokens, reasoning included.
    pub completion_tokens: u64,
    /// The part of the input that the upstream had cached.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cached_tokens: u64,
    /// The part of the input that the upstream wrote to its cache.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache_write_tokens: u64,
    /// The part of the output that was reasoning.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reasoning_tokens: u64,
    /// Whether any of it was estimated because the upstream did not say.
    #[serde(default, skip_serializing_if = "is_default")]
    pub estimated: bool,
}

impl Usage {
    /// Input and output together: what a token budget counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }

    /// The rest of it, if this part is told apart.
    #[must_use]
    pub fn without(&self, part: &Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.saturating_sub(part.prompt_tokens),
            completion_tokens: self.completion_tokens.saturating_sub(part.completion_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(part.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_sub(part.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_sub(part.reasoning_tokens),
            estimated: self.estimated,
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
        self.estimated = self.estimated || other.estimated;
    }
}

/// US dollars in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    /// Rounded to the nearest millionth; negative and non-finite amounts are zero.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates, as meant")]
    pub fn from_usd(usd: f64) -> Self {
        Self((usd * 1e6).round() as u64)
    }

    /// For display and for the wire.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact up to nine billion dollars")]
    pub fn as_usd(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// What is left of `self` after `spent`.
    #[must_use]
    pub fn saturating_sub(self, spent: Self) -> Self {
        Self(self.0.saturating_sub(spent.0))
    }
}

impl Add for Micros {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Micros {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// What a budget counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Input and output tokens.
    pub tokens: u64,
    /// Their cost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: Micros,
}

impl Used {
    /// Whether it is nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// What is left of `self` after `spent`.
    #[must_use]
    pub fn saturating_sub(self, spent: Self) -> Self {
        Self { tokens: self.tokens.saturating_sub(spent.tokens), cost: self.cost.saturating_sub(spent.cost) }
    }
}

impl Add for Used {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_add(other.tokens), cost: self.cost + other.cost }
    }
}

impl AddAssign for Used {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Where the budgets of a run stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetStatus {
    /// Most tokens; `None` without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Most money; `None` without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Micros>,
    /// What the run used.
    pub used: Used,
    /// What model calls that were cut off may have taken beyond that; the key is charged for it.
    #[serde(default, skip_serializing_if = "Used::is_nothing")]
    pub unconfirmed: Used,
}
