//! Tokens and money.

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

/// What a model's tokens cost, in micro-dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// Uncached input.
    #[serde(default, skip_serializing_if = "is_default")]
    pub input: u64,
    /// Input that the upstream had cached.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cached_input: u64,
    /// How much more than uncached input costs what the upstream writes to its cache.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache_write_surcharge: u64,
    /// Output.
    #[serde(default, skip_serializing_if = "is_default")]
    pub output: u64,
}

impl Price {
    /// From US dollars per million tokens, where writing to a cache costs no more than other input.
    #[must_use]
    pub fn from_usd(input: f64, cached_input: f64, output: f64) -> Self {
        let micros = |usd| Micros::from_usd(usd).0;
        let (input, cached_input, output) = (micros(input), micros(cached_input), micros(output));
        Self { input, cached_input, cache_write_surcharge: 0, output }
    }

    /// The same price, where input that is written to a cache costs so much per million tokens; never less than other
    /// input.
    #[must_use]
    pub fn with_cache_write(self, price: Micros) -> Self {
        Self { cache_write_surcharge: price.0.saturating_sub(self.input), ..self }
    }

    /// The same price where all input costs as much as the dearest: what a call is planned with, because only its
    /// upstream knows what it will write to its cache.
    #[must_use]
    pub fn at_most(self) -> Self {
        Self { input: self.input.saturating_add(self.cache_write_surcharge), ..self }
    }

    /// The cost of `usage`, rounded up.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Micros {
        let cached = usage.cached_tokens.min(usage.prompt_tokens);
        let written = usage.cache_write_tokens.min(usage.prompt_tokens - cached);
        let parts = [
            (usage.prompt_tokens - cached - written, self.input),
            (cached, self.cached_input),
            (written, self.at_most().input),
            (usage.completion_tokens, self.output),
        ];
        let scaled: u128 = parts.iter().map(|&(tokens, price)| u128::from(tokens) * u128::from(price)).sum();
        Micros(u64::try_from(scaled.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }

    /// `usage` and its cost.
    #[must_use]
    pub fn used(&self, usage: &Usage) -> Used {
        Used { tokens: usage.total(), cost: self.cost(usage) }
    }

    /// How many output tokens `money` buys after `input_tokens` of the dearest input; `None` without end.
    #[must_use]
    pub fn affordable_output(&self, money: Micros, input_tokens: u64) -> Option<u64> {
        let spent = u128::from(input_tokens) * u128::from(self.at_most().input);
        let left = (u128::from(money.0) * 1_000_000).checked_sub(spent);
        match (left, self.output) {
            (None, _) => Some(0),
            (Some(_), 0) => None,
            (Some(left), output) => Some(u64::try_from(left / u128::from(output)).unwrap_or(u64::MAX)),
        }
    }
}

/// Where the price of a model comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceOrigin {
    /// The configuration, or the built-in table.
    #[default]
    Known,
    /// Nowhere. Its upstream has a private address, so the model is taken to cost nothing.
    AssumedFree,
    /// Nowhere: the price is a guess.
    Guessed,
}

impl PriceOrigin {
    /// Whether the price is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        *self == Self::Known
    }
}

/// The model that a step calls, and what its tokens cost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepModel {
    /// The upstream.
    pub upstream: String,
    /// The model's name at that upstream.
    pub model: String,
    /// What its tokens cost.
    pub price: Price,
    /// Where the price comes from.
    #[serde(default, skip_serializing_if = "PriceOrigin::is_known")]
    pub price_origin: PriceOrigin,
}

impl StepModel {
    /// The upstream and its model, with a slash between them.
    #[must_use]
    pub fn full_name(&self) -> String {
        [self.upstream.as_str(), "/", &self.model].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_exact_and_rounds_up() {
        let price = Price::from_usd(2.5, 0.25, 10.0);
        let usage = Usage { prompt_tokens: 1000, cached_tokens: 400, completion_tokens: 10, ..Usage::default() };
        assert_eq!(price.cost(&usage), Micros(1500 + 100 + 100));
        let writing = price.with_cache_write(Micros(3_000_000));
        assert_eq!(writing.cost(&Usage { cache_write_tokens: 100, ..usage }), Micros(1500 + 50 + 100 + 100));
        assert_eq!(writing.cost(&Usage { cache_write_tokens: u64::MAX, ..usage }), Micros(1800 + 100 + 100));
        let one = Usage { prompt_tokens: 1, ..Usage::default() };
        assert_eq!(price.cost(&one), Micros(3));
    }

    #[test]
    fn what_is_affordable_never_costs_more() {
        let price = Price::from_usd(3.0, 3.0, 15.0);
        for money in [0, 1, 29, 30, 45, 1_000] {
            let output = price.affordable_output(Micros(money), 10).unwrap();
            let usage = Usage { prompt_tokens: 10, completion_tokens: output, ..Usage::default() };
            assert!(output == 0 || price.cost(&usage) <= Micros(money), "{money}");
        }
        assert_eq!(Price::default().affordable_output(Micros(0), 10), None);
    }
}
