//! `[models."NAME"]` and `[prices]`: the properties of models.

use std::collections::BTreeMap;

use super::fallbacks;
use super::price_file::PriceFile;
use super::reader::Section;
use super::upstream::Upstream;
use crate::types::price::LongContext;
use crate::types::{Micros, Price};

/// What the operator says of models.
#[derive(Debug, Clone, Default)]
pub struct Models {
    /// What is declared of each, by name.
    pub declared: BTreeMap<String, ModelConfig>,
    /// The files that are asked next, in their order; the built-in list is the last.
    pub files: Vec<PriceFile>,
}

/// What is known of a model where the lists are wrong or silent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelConfig {
    /// The models that are asked in place of it, in order, where no agent says so.
    pub fallbacks: Vec<String>,
    /// Most tokens of input and output together.
    pub context_window: Option<u64>,
    /// Most tokens of one answer.
    pub max_output_tokens: Option<u64>,
    /// What its tokens cost; of `cache_write` it says nothing.
    pub price: Option<Price>,
    /// What a million input tokens cost that its upstream wrote to its cache, if that is declared with the price.
    pub cache_write: Option<Micros>,
}

impl Models {
    pub(super) fn read(root: &mut Section<'_>, upstreams: &[Upstream]) -> Self {
        let files = root.section("prices", |prices| {
            let names: Vec<String> = prices.key(
                "files",
                "Files of models with their prices and windows, in the form of the [built-in list](operations.md#prices). They \
                 go before it, in this order.",
                Vec::new(),
            );
            names.iter().filter_map(|name| read_file(name, prices)).collect()
        });
        let declared = root.named("models", None, |name, section| {
            Some((name.to_owned(), ModelConfig::read(name, section, upstreams)))
        });
        Self { declared: declared.into_iter().collect(), files }
    }
}

/// The file of this name; what is wrong with it is reported.
fn read_file(name: &str, prices: &Section<'_>) -> Option<PriceFile> {
    let text = match std::fs::read_to_string(name) {
        Ok(text) => text,
        Err(error) => {
            prices.refuse("files", format!("{name} cannot be read: {error}"));
            return None;
        }
    };
    match PriceFile::parse(&text) {
        Ok(file) => {
            // So that a reload tells that the file changed.
            prices.record_secret("files", &text);
            Some(file)
        }
        Err(error) => {
            prices.refuse("files", format!("{name}, {error}"));
            None
        }
    }
}

impl ModelConfig {
    fn read(name: &str, section: &mut Section<'_>, upstreams: &[Upstream]) -> Self {
        let fallbacks = fallbacks::read(
            section,
            "Models that are asked in its place, as an agent's `fallbacks` are, where no agent has some.",
            Some(name),
            upstreams,
        );
        let context_window = section.optional("context_window", "Most tokens of input and output together.");
        let max_output_tokens = section.optional("max_output_tokens", "Most output tokens of one model call.");
        let mut cache_write = None;
        let price = section.optional_section("price", |price| {
            let input: Option<Micros> = price.required("input", "Price of a million input tokens.");
            let output: Option<Micros> = price.required("output", "Price of a million output tokens.");
            let cached: Option<Micros> = price.optional(
                "cached_input",
                "Price of a million input tokens that the upstream read from its cache; if absent, that of `input`.",
            );
            cache_write = price.optional(
                "cache_write",
                "Price of a million input tokens that the upstream wrote to its cache, at least that of `input`; if absent, \
                 1.25 times that of `input` at upstreams of kind `anthropic`, and that of `input` at others.",
            );
            let long_context = price.optional_section("long_context", read_long_context);
            input.zip(output).map(|(input, output)| Price {
                input: input.0,
                cached_input: cached.unwrap_or(input).0,
                cache_write_surcharge: 0,
                output: output.0,
                long_context,
            })
        });
        let fallbacks = fallbacks.unwrap_or_default();
        Self { fallbacks, context_window, max_output_tokens, price, cache_write }
    }
}

fn read_long_context(long: &mut Section<'_>) -> Option<LongContext> {
    let above: Option<u64> = long.required(
        "above",
        "Most input tokens at the ordinary price. All tokens of a call with more of them cost what this table says.",
    );
    let input: Option<Micros> = long.required("input", "Price of a million input tokens.");
    let output: Option<Micros> = long.required("output", "Price of a million output tokens.");
    let cached: Option<Micros> = long.optional(
        "cached_input",
        "Price of a million input tokens that the upstream read from its cache; if absent, that of `input`.",
    );
    let write: Option<Micros> = long.optional(
        "cache_write",
        "Price of a million input tokens that the upstream wrote to its cache; if absent, that of `input`.",
    );
    let ((above, input), output) = above.zip(input).zip(output)?;
    Some(LongContext {
        above,
        input: input.0,
        cached_input: cached.unwrap_or(input).0,
        cache_write_surcharge: write.map_or(0, |write| write.0.saturating_sub(input.0)),
        output: output.0,
    })
}
