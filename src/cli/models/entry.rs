//! What is shown of a model. Pure.

use serde_json::{Map, Value, json};

use super::super::table::Column;
use super::super::text::line;
use crate::config::{Settings, Tier};
use crate::llm::offered::Sizes;
use crate::llm::pricing::{Listed, MORE_THAN_ANY, PriceSource, Priced, Terms, priced};
use crate::types::price::PriceOrigin;
use crate::types::{Micros, Price};

/// Most characters of a cell.
const MOST_SHOWN: usize = 128;

pub(super) const COLUMNS: [Column; 9] = [
    ("MODEL", Some(16)),
    ("THERE", None),
    ("INPUT", None),
    ("CACHED", None),
    ("OUTPUT", None),
    ("PRICE FROM", None),
    ("WINDOW", None),
    ("ANSWER", None),
    ("TAKES", Some(8)),
];

/// A model and what is known of it.
pub(super) struct Entry<'a> {
    /// What requests name: with its upstream, if it is one of an upstream's.
    id: String,
    upstream: Option<&'a str>,
    /// Its name at the upstream.
    model: String,
    /// Whether its upstream lists it; `None` if that is not known.
    is_there: Option<bool>,
    priced: Priced<'a>,
}

impl<'a> Entry<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        upstream: Option<&'a str>,
        model: &str,
        (terms, sizes): (&Terms, Sizes),
        is_there: Option<bool>,
    ) -> Self {
        let id = upstream.map_or_else(|| model.to_owned(), |upstream| format!("{upstream}/{model}"));
        let priced = priced(&settings.models, terms, [&id, model, model], sizes);
        Self { id, upstream, model: model.to_owned(), is_there, priced }
    }

    /// Whether another entry says nothing else.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.priced == other.priced
    }

    /// Whether its price holds a cost budget.
    pub(super) fn has_price(&self) -> bool {
        self.priced.source.origin() != PriceOrigin::Guessed
    }

    pub(super) fn row(&self) -> Vec<String> {
        let Priced { facts, listed, is_assumed, .. } = &self.priced;
        let (price, mark) = (facts.price, if *is_assumed { "?" } else { "" });
        let size = |tokens: u64| known_size(tokens).map_or_else(|| mark.to_owned(), |tokens| tokens.to_string());
        let [input, cached, output] =
            [price.input, price.cached_input, price.output].map(|price| dollars(Micros(price)));
        let there = match self.is_there {
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        let long = if price.long_context.is_some() { "+" } else { "" };
        [
            self.id.clone(),
            there.to_owned(),
            format!("{input}{long}"),
            format!("{cached}{long}"),
            format!("{output}{long}"),
            self.price_from(),
            size(facts.context_window),
            size(facts.max_output_tokens),
            listed.map(|listed| takes(&listed).join(" ")).unwrap_or_default(),
        ]
        .map(|cell| line(&cell, MOST_SHOWN))
        .to_vec()
    }

    fn price_from(&self) -> String {
        match self.priced.source {
            PriceSource::Declared => "config".to_owned(),
            PriceSource::Free => "free".to_owned(),
            PriceSource::Listed(Listed { file, model, .. }) => format!("{} {}", file.provider, model.read),
            PriceSource::AssumedFree => "private address".to_owned(),
            PriceSource::Guessed => "guess".to_owned(),
        }
    }

    pub(super) fn json(&self) -> Value {
        let Priced { facts, source, listed, is_assumed } = &self.priced;
        let page = |listed: &Listed<'_>| {
            json!({
                "provider": listed.file.provider, "page": listed.file.source, "read": listed.model.read.to_string(),
                "holds": listed.holds,
            })
        };
        let from = match source {
            PriceSource::Declared => "config",
            PriceSource::Free => "free",
            PriceSource::Listed(_) => "list",
            PriceSource::AssumedFree => "private_address",
            PriceSource::Guessed => "guess",
        };
        json!({
            "id": self.id,
            "upstream": self.upstream,
            "model": self.model,
            "there": self.is_there,
            "price": price(&facts.price, source, listed.as_ref()),
            "price_known": self.has_price(),
            "price_from": from,
            "list": listed.as_ref().map(page),
            "context_window": known_size(facts.context_window),
            "max_output_tokens": known_size(facts.max_output_tokens),
            "assumed": is_assumed,
            "takes": listed.as_ref().map(takes),
        })
    }
}

/// A size that is not assumed.
fn known_size(tokens: u64) -> Option<u64> {
    (tokens != MORE_THAN_ANY).then_some(tokens)
}

/// A price in US dollars for a million tokens.
fn price(price: &Price, source: &PriceSource<'_>, listed: Option<&Listed<'_>>) -> Value {
    let usd = |micros: u64| Micros(micros).as_usd();
    let mut shown = Map::new();
    let mut put = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    put("input", usd(price.input).into());
    put("cached_input", usd(price.cached_input).into());
    put("cache_write", usd(price.at_most().input).into());
    put("output", usd(price.output).into());
    if let Some(long) = price.long_context {
        let write = long.input.saturating_add(long.cache_write_surcharge);
        let long = json!({
            "above": long.above, "input": usd(long.input), "cached_input": usd(long.cached_input),
            "cache_write": usd(write), "output": usd(long.output),
        });
        put("long_context", long);
    }
    if let (PriceSource::Listed(_), Some(Listed { model, .. })) = (source, listed) {
        let more = [("cache_write_1h", model.hour_cache_write), ("audio_input", model.audio_input)];
        for (name, micros) in more {
            if let Some(micros) = micros {
                put(name, micros.as_usd().into());
            }
        }
        let tiers = model
            .tiers
            .iter()
            .map(|Tier { name, permille }| (name.to_string(), (f64::from(*permille) / 1000.0).into()));
        put("tiers", Value::Object(tiers.collect()));
    }
    Value::Object(shown)
}

/// As few digits as tell it.
fn dollars(price: Micros) -> String {
    let text = format!("{:.6}", price.as_usd());
    let short = text.trim_end_matches('0').trim_end_matches('.');
    format!("${short}")
}

/// What it takes, in words.
fn takes(listed: &Listed<'_>) -> Vec<&'static str> {
    listed.model.takes.iter().map(|capability| capability.word()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_shown_with_as_few_digits_as_tell_them() {
        for (usd, shown) in [(0.0, "$0"), (2.0, "$2"), (0.075, "$0.075"), (12.5, "$12.5"), (0.0028, "$0.0028")] {
            assert_eq!(dollars(Micros::from_usd(usd)), shown);
        }
    }
}
