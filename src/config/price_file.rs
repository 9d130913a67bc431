//! Files of models: what each costs and takes, and where that was read. One provider a file.
//!
//! The built-in list is of this form, and so are the files that the operator names.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use toml::value::Date;

use crate::types::price::LongContext;
use crate::types::usage::MAX_USD;
use crate::types::{Micros, Price};

/// The models of one provider.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceFile {
    /// Who sells them.
    pub provider: String,
    /// The page that the prices are from.
    pub source: String,
    /// Where they cost this; if there are none, wherever they are called. Elsewhere the prices are a guess.
    pub hosts: Vec<String>,
    models: Vec<ListedModel>,
    /// The place of each name, the other names of a model included, in order.
    names: Vec<(Box<str>, usize)>,
}

/// What a list says of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedModel {
    /// What its tokens cost.
    pub price: Price,
    /// What a million input tokens cost that are kept in the cache for an hour.
    pub hour_cache_write: Option<Micros>,
    /// What a million tokens of sound cost, where that is not what other input costs.
    pub audio_input: Option<Micros>,
    /// What other tiers of service cost.
    pub tiers: Arc<[Tier]>,
    /// Most tokens of input and output together.
    pub context_window: u64,
    /// Most output tokens of one turn.
    pub max_output_tokens: u64,
    /// What it takes beside text.
    pub takes: Vec<Capability>,
    /// The day on which its price was read.
    pub read: Date,
    /// Whether its price is a guess, because no record of it was found that holds today.
    pub unconfirmed: bool,
}

/// A tier of service, as a request's `service_tier` names it; `batch` is none that a request can name.
#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    /// Its name.
    pub name: Box<str>,
    /// Its price as a multiple of the ordinary one, in thousandths.
    pub permille: u32,
}

/// What a model takes beside text, or can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is what it is called")]
pub enum Capability {
    Image,
    Audio,
    Video,
    File,
    Tools,
    Thinking,
    StructuredOutput,
}

impl Capability {
    /// The word for it in a file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
            Self::File => "file",
            Self::Tools => "tools",
            Self::Thinking => "thinking",
            Self::StructuredOutput => "structured_output",
        }
    }
}

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct PriceFileError {
    line: usize,
    what: String,
}

impl PriceFile {
    /// Reads a file of this text.
    pub fn parse(text: &str) -> Result<Self, PriceFileError> {
        let document: Document = toml::from_str(text).map_err(|error| {
            let before = &text[..error.span().map_or(0, |span| span.start)];
            let what = error.message().lines().next().unwrap_or_default().to_owned();
            PriceFileError { line: before.matches('\n').count() + 1, what }
        })?;
        let mut names = Vec::new();
        let mut models = Vec::with_capacity(document.models.len());
        for (name, entry) in document.models {
            names.extend(entry.also.iter().chain([&name]).map(|name| (name.as_str().into(), models.len())));
            models.push(entry.into_model(document.read));
        }
        names.sort();
        if let Some([(twice, _), _]) = names.array_windows().find(|[one, next]| one.0 == next.0) {
            return Err(PriceFileError { line: 1, what: format!("the model {twice} is listed twice") });
        }
        let Document { provider, source, hosts, .. } = document;
        Ok(Self { provider, source, hosts, models, names })
    }

    /// The model of exactly this name.
    #[must_use]
    pub fn model(&self, name: &str) -> Option<&ListedModel> {
        let place = self.names.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.models[self.names[place].1])
    }

    /// Whether its prices hold at an upstream of this host; an upstream that is called by no host has an empty one.
    #[must_use]
    pub fn holds_at(&self, host: &str) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|known| known == host)
    }

    /// All names of its models.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(name, _)| &**name)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    provider: String,
    source: String,
    read: Date,
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(default)]
    models: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    also: Vec<String>,
    price: Rates,
    long_context: Option<LongRates>,
    #[serde(default)]
    tiers: BTreeMap<String, Multiple>,
    context_window: Tokens,
    max_output_tokens: Tokens,
    #[serde(default)]
    takes: Vec<Capability>,
    read: Option<Date>,
    #[serde(default)]
    unconfirmed: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rates {
    input: Usd,
    cached_input: Option<Usd>,
    cache_write: Option<Usd>,
    cache_write_1h: Option<Usd>,
    audio_input: Option<Usd>,
    output: Usd,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongRates {
    above: Tokens,
    input: Usd,
    cached_input: Option<Usd>,
    cache_write: Option<Usd>,
    #[serde(rename = "cache_write_1h")]
    _cache_write_1h: Option<Usd>,
    output: Usd,
}

/// US dollars for a million tokens.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
struct Usd(Micros);

/// A number of tokens, at least one.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "u64")]
struct Tokens(u64);

/// What a tier costs, as a multiple of the ordinary price.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
struct Multiple(u32);

impl TryFrom<f64> for Usd {
    type Error = String;

    fn try_from(usd: f64) -> Result<Self, String> {
        let is_price = (0.0..=MAX_USD).contains(&usd);
        if is_price {
            Ok(Self(Micros::from_usd(usd)))
        } else {
            Err(format!("a price is from 0 to {MAX_USD} US dollars"))
        }
    }
}

impl TryFrom<u64> for Tokens {
    type Error = &'static str;

    fn try_from(tokens: u64) -> Result<Self, &'static str> {
        if tokens > 0 { Ok(Self(tokens)) } else { Err("a number of tokens is at least 1") }
    }
}

impl TryFrom<f64> for Multiple {
    type Error = &'static str;

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was checked to be small")]
    fn try_from(multiple: f64) -> Result<Self, &'static str> {
        let is_multiple = (0.001..=1000.0).contains(&multiple);
        if is_multiple { Ok(Self((multiple * 1000.0).ceil() as u32)) } else { Err("a multiple is from 0.001 to 1000") }
    }
}

impl Entry {
    fn into_model(self, read: Date) -> ListedModel {
        let Rates { input, cached_input, cache_write, cache_write_1h, audio_input, output } = self.price;
        let price = Price {
            input: input.0.0,
            cached_input: cached_input.unwrap_or(input).0.0,
            output: output.0.0,
            long_context: self.long_context.map(LongRates::into_price),
            ..Price::default()
        };
        let tiers = self.tiers.into_iter().map(|(name, Multiple(permille))| Tier { name: name.into(), permille });
        ListedModel {
            price: cache_write.map_or(price, |write| price.with_cache_write(write.0)),
            hour_cache_write: cache_write_1h.map(|usd| usd.0),
            audio_input: audio_input.map(|usd| usd.0),
            tiers: tiers.collect(),
            context_window: self.context_window.0,
            max_output_tokens: self.max_output_tokens.0,
            takes: self.takes,
            read: self.read.unwrap_or(read),
            unconfirmed: self.unconfirmed,
        }
    }
}

impl LongRates {
    fn into_price(self) -> LongContext {
        let input = self.input.0.0;
        LongContext {
            above: self.above.0,
            input,
            cached_input: self.cached_input.unwrap_or(self.input).0.0,
            cache_write_surcharge: self.cache_write.map_or(0, |write| write.0.0.saturating_sub(input)),
            output: self.output.0.0,
        }
    }
}
