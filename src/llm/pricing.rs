//! What well-known models cost and how much they take.
//!
//! List prices without discounts for batches or surcharges for long contexts. The configuration
//! overrides them; a model unknown to both gets the [`fallback`], and its costs are then estimates.

use crate::types::{Micros, Price};

/// What is known of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelFacts {
    /// What its tokens cost.
    pub price: Price,
    /// Most tokens of input and output together.
    pub context_window: u64,
    /// Most output tokens of one turn.
    pub max_output_tokens: u64,
}

/// US dollars per million tokens of input, cached input, input that is written to the cache, and output; context window;
/// most output.
///
/// | models | source |
/// | --- | --- |
/// | `gpt-…`, `o…` | <https://developers.openai.com/api/docs/pricing> and each model's own page there |
/// | `claude-…` | <https://platform.claude.com/docs/en/about-claude/pricing> and each model's own page there, as read on 2026-11-23; cached input costs a tenth of input, of `claude-opus-5-5` a twentieth and of `claude-fable-5-1` a fortieth |
/// | `deepseek-chat` | the price that agent runtimes have long counted with, and no cached one, so that input is never counted too low; window and output as <https://api-docs.deepseek.com/quick_start/pricing-details-usd> |
const KNOWN: &[(&str, [f64; 4], u64, u64)] = &[
    ("gpt-5", [1.25, 0.125, 1.25, 10.00], 400_000, 128_000),
    ("gpt-5-mini", [0.25, 0.025, 0.25, 2.00], 400_000, 128_000),
    ("gpt-5-nano", [0.05, 0.005, 0.05, 0.40], 400_000, 128_000),
    ("gpt-4.1", [2.00, 0.50, 2.00, 8.00], 1_047_576, 32_768),
    ("gpt-4.1-mini", [0.40, 0.10, 0.40, 1.60], 1_047_576, 32_768),
    ("gpt-4.1-nano", [0.10, 0.025, 0.10, 0.40], 1_047_576, 32_768),
    ("gpt-4o", [2.50, 1.25, 2.50, 10.00], 128_000, 16_384),
    ("gpt-4o-2024-05-13", [5.00, 5.00, 5.00, 15.00], 128_000, 4_096),
    ("gpt-4o-mini", [0.15, 0.075, 0.15, 0.60], 128_000, 16_384),
    ("o3", [2.00, 0.50, 2.00, 8.00], 200_000, 100_000),
    ("o4-mini", [1.10, 0.275, 1.10, 4.40], 200_000, 100_000),
    ("claude-sonnet-4", [3.00, 0.30, 3.75, 15.00], 200_000, 64_000),
    ("claude-sonnet-4-5", [3.00, 0.30, 3.75, 15.00], 200_000, 64_000),
    ("claude-opus-4", [15.00, 1.50, 18.75, 75.00], 200_000, 32_000),
    ("claude-sonnet-5", [2.00, 0.20, 2.50, 10.00], 1_000_000, 128_000),
    ("claude-sonnet-5-5", [2.00, 0.20, 2.50, 10.00], 1_000_000, 128_000),
    ("claude-opus-5", [5.00, 0.50, 6.25, 25.00], 1_000_000, 128_000),
    ("claude-opus-5-5", [4.00, 0.20, 5.00, 20.00], 1_000_000, 128_000),
    ("claude-fable-5-1", [10.00, 0.25, 12.50, 50.00], 1_000_000, 128_000),
    ("claude-opus-4-1", [15.00, 1.50, 18.75, 75.00], 200_000, 32_000),
    ("claude-opus-4-5", [5.00, 0.50, 6.25, 25.00], 200_000, 64_000),
    ("claude-haiku-4-5", [1.00, 0.10, 1.25, 5.00], 200_000, 64_000),
    ("claude-3-5-haiku", [0.80, 0.08, 1.00, 4.00], 200_000, 8_192),
    ("deepseek-chat", [0.14, 0.14, 0.14, 0.28], 65_536, 8_192),
];

/// The facts of a well-known model: by its name as it is, without a `vendor/` before it, and without
/// a date (`-2025-08-07`, `-20250514`) after it.
#[must_use]
pub fn known(model: &str) -> Option<ModelFacts> {
    let own_name = model.rsplit_once('/').map_or(model, |(_, name)| name);
    [Some(model), Some(own_name), without_date(own_name)].into_iter().flatten().find_map(look_up)
}

/// What is assumed of every other model: the price of the well-known middle class, so that a budget
/// is not passed unseen.
#[must_use]
pub fn fallback() -> ModelFacts {
    ModelFacts { price: Price::from_usd(3.0, 3.0, 15.0), context_window: 200_000, max_output_tokens: 8_192 }
}

fn look_up(name: &str) -> Option<ModelFacts> {
    let &(_, [input, cached_input, cache_write, output], context_window, max_output_tokens) =
        KNOWN.iter().find(|(known, ..)| *known == name)?;
    let price = Price::from_usd(input, cached_input, output).with_cache_write(Micros::from_usd(cache_write));
    Some(ModelFacts { price, context_window, max_output_tokens })
}

fn without_date(name: &str) -> Option<&str> {
    ["-####-##-##", "-########"].iter().find_map(|shape| {
        let (rest, end) = name.split_at_checked(name.len().checked_sub(shape.len())?)?;
        let fits = |(have, want): (u8, u8)| if want == b'#' { have.is_ascii_digit() } else { have == want };
        (!rest.is_empty() && end.bytes().zip(shape.bytes()).all(fits)).then_some(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_under_all_its_names() {
        for (name, usd) in [
            ("gpt-5", (1.25, 0.125, 10.0)),
            ("openai/gpt-4o", (2.5, 1.25, 10.0)),
            ("gpt-4o-2024-08-06", (2.5, 1.25, 10.0)),
            ("openai/gpt-4o-2024-05-13", (5.0, 5.0, 15.0)),
            ("openrouter/openai/gpt-5-mini-2025-08-07", (0.25, 0.025, 2.0)),
            ("claude-sonnet-4-20250514", (3.0, 0.3, 15.0)),
            ("anthropic/claude-opus-4-20250514", (15.0, 1.5, 75.0)),
            ("claude-3-5-haiku-20241022", (0.8, 0.08, 4.0)),
            ("deepseek/deepseek-chat", (0.14, 0.14, 0.28)),
        ] {
            let (input, cached, output) = usd;
            let written = if name.contains("claude") { 1.25 * input } else { input };
            let price = Price::from_usd(input, cached, output).with_cache_write(Micros::from_usd(written));
            assert_eq!(known(name).map(|facts| facts.price), Some(price), "{name}");
        }
    }

    #[test]
    fn nothing_else_is_taken_for_a_known_model() {
        for name in ["", "/", "gpt", "gpt-5-", "gpt-5-2025", "gpt-5-turbo", "gpt-5/", "-20250514", "gpt-5é2025051", "ä"]
        {
            assert_eq!(known(name), None, "{name}");
        }
        assert_eq!(fallback().price, Price::from_usd(3.0, 3.0, 15.0));
    }

    #[test]
    fn no_name_is_listed_twice_and_no_number_is_missing() {
        for (at, &(name, [input, cached, written, output], window, most)) in KNOWN.iter().enumerate() {
            assert!(KNOWN[..at].iter().all(|(earlier, ..)| *earlier != name), "{name}");
            assert!(0.0 < cached && cached <= input && input <= written && written <= output, "{name}");
            assert!(0 < most && most < window, "{name}");
        }
    }
}
