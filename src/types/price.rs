//! What the tokens of a model cost.

use serde::{Deserialize, Serialize};

use crate::types::json::is_default;
use crate::types::{Micros, Usage, Used};

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
    /// What calls cost whose input is long, where that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_context: Option<LongContext>,
}

/// What all tokens of a call cost whose input is longer than this, in micro-dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongContext {
    /// Most input tokens, cached ones included, at the ordinary price.
    pub above: u64,
    /// Uncached input.
    pub input: u64,
    /// Input that the upstream had cached.
    pub cached_input: u64,
    /// How much more than uncached input costs what the upstream writes to its cache.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache_write_surcharge: u64,
    /// Output.
    pub output: u64,
}

impl Price {
    /// From US dollars per million tokens, where writing to a cache costs no more than other input.
    #[must_use]
    pub fn from_usd(input: f64, cached_input: f64, output: f64) -> Self {
        let micros = |usd| Micros::from_usd(usd).0;
        let (input, cached_input, output) = (micros(input), micros(cached_input), micros(output));
        Self { input, cached_input, output, ..Self::default() }
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
        let dearest =
            |long: LongContext| LongContext { input: long.input.saturating_add(long.cache_write_surcharge), ..long };
        Self {
            input: self.input.saturating_add(self.cache_write_surcharge),
            long_context: self.long_context.map(dearest),
            ..self
        }
    }

    /// This many thousandths of the price.
    #[must_use]
    pub fn times(self, permille: u32) -> Self {
        let times = |price: u64| {
            let scaled = (u128::from(price) * u128::from(permille)).div_ceil(1000);
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        Self {
            input: times(self.input),
            cached_input: times(self.cached_input),
            cache_write_surcharge: times(self.cache_write_surcharge),
            output: times(self.output),
            long_context: self.long_context.map(|long| LongContext {
                above: long.above,
                input: times(long.input),
                cached_input: times(long.cached_input),
                cache_write_surcharge: times(long.cache_write_surcharge),
                output: times(long.output),
            }),
        }
    }

    /// The price of a call with so much input.
    fn of_call(&self, prompt_tokens: u64) -> Self {
        match self.long_context {
            Some(LongContext { above, input, cached_input, cache_write_surcharge, output })
                if prompt_tokens > above =>
            {
                Self { input, cached_input, cache_write_surcharge, output, long_context: None }
            }
            _ => *self,
        }
    }

    /// The cost of `usage`, rounded up.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Micros {
        let price = self.of_call(usage.prompt_tokens);
        let cached = usage.cached_tokens.min(usage.prompt_tokens);
        let written = usage.cache_write_tokens.min(usage.prompt_tokens - cached);
        let parts = [
            (usage.prompt_tokens - cached - written, price.input),
            (cached, price.cached_input),
            (written, price.input.saturating_add(price.cache_write_surcharge)),
            (usage.completion_tokens, price.output),
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
        let price = self.at_most().of_call(input_tokens);
        let spent = u128::from(input_tokens) * u128::from(price.input);
        let left = (u128::from(money.0) * 1_000_000).checked_sub(spent);
        match (left, price.output) {
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
    fn a_long_input_makes_all_tokens_of_its_call_dearer() {
        let long = LongContext {
            above: 100,
            input: 4_000_000,
            cached_input: 400_000,
            cache_write_surcharge: 1_000_000,
            output: 15_000_000,
        };
        let price = Price { long_context: Some(long), ..Price::from_usd(2.0, 0.2, 10.0) };
        let of = |prompt_tokens| Usage { prompt_tokens, cached_tokens: 50, completion_tokens: 10, ..Usage::default() };
        assert_eq!(price.cost(&of(100)), Micros(100 + 10 + 100), "the mark itself is not beyond it");
        assert_eq!(price.cost(&of(101)), Micros(51 * 4 + 20 + 150));
        let written = Usage { cache_write_tokens: 51, ..of(101) };
        assert_eq!(price.cost(&written), Micros(51 * 5 + 20 + 150));
        assert_eq!(price.at_most().cost(&Usage { prompt_tokens: 101, ..Usage::default() }), Micros(101 * 5));
        assert_eq!(price.affordable_output(Micros(1_000), 100), Some((1_000 - 200) / 10));
        assert_eq!(price.affordable_output(Micros(1_000), 101), Some((1_000 - 505) / 15));
        assert_eq!(price.times(2_000).cost(&of(101)), Micros(2 * (51 * 4 + 20 + 150)), "a dearer tier");
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
