//! `[upstreams.NAME]`: the servers that answer model calls.

mod anthropic;
mod api_key;
mod base_url;
mod breaker;
mod connection;
mod gemini;
mod http;
mod openai;
mod pools;
mod preset;
mod responses;

use std::fmt;

pub use self::anthropic::AnthropicUpstream;
pub use self::base_url::BaseUrl;
pub use self::breaker::BreakerConfig;
pub use self::connection::ConnectionSettings;
pub use self::gemini::GeminiUpstream;
pub use self::http::HttpUpstream;
pub use self::openai::OpenAiUpstream;
pub use self::pools::{Balance, Pools};
pub use self::preset::{ChatManner, Preset};
#[cfg(test)]
pub use self::preset::{PRESETS, to_markdown as presets_to_markdown};
pub use self::responses::{ReasoningSummary, ResponsesUpstream};
use super::reader::Section;
use super::value::{PLAIN_NAME, Word, is_plain_name};

/// A server of models.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    /// The operator's name for it; `NAME/model` names one of its models.
    pub name: String,
    /// What it is and how it is reached.
    pub kind: UpstreamKind,
    /// When its models are left alone.
    pub breaker: BreakerConfig,
    /// Whether a server is not ready while one of its models is left alone.
    pub needed: bool,
}

/// What an upstream is.
#[derive(Debug, Clone, PartialEq)]
pub enum UpstreamKind {
    /// A server that speaks OpenAI's chat dialect.
    OpenAi(OpenAiUpstream),
    /// A server that speaks OpenAI's Responses.
    Responses(ResponsesUpstream),
    /// A server that speaks Anthropic's Messages.
    Anthropic(AnthropicUpstream),
    /// A server that speaks the Gemini API.
    Gemini(GeminiUpstream),
    /// The built-in model that needs no network.
    Demo,
    /// Models of the program that the server is part of.
    Embedded(Vec<String>),
}

impl UpstreamKind {
    /// How it is reached, if that is over HTTP.
    #[must_use]
    pub fn http(&self) -> Option<&HttpUpstream> {
        match self {
            Self::OpenAi(openai) => Some(&openai.http),
            Self::Responses(responses) => Some(&responses.http),
            Self::Anthropic(anthropic) => Some(&anthropic.http),
            Self::Gemini(gemini) => Some(&gemini.http),
            Self::Demo | Self::Embedded(_) => None,
        }
    }

    fn http_mut(&mut self) -> Option<&mut HttpUpstream> {
        match self {
            Self::OpenAi(openai) => Some(&mut openai.http),
            Self::Responses(responses) => Some(&mut responses.http),
            Self::Anthropic(anthropic) => Some(&mut anthropic.http),
            Self::Gemini(gemini) => Some(&mut gemini.http),
            Self::Demo | Self::Embedded(_) => None,
        }
    }

    /// What OpenTelemetry's conventions call the service; `None` if they have no name for it and no preset has.
    #[must_use]
    pub fn provider(&self) -> Option<&'static str> {
        match self {
            Self::OpenAi(openai) => openai.provider,
            Self::Responses(responses) => responses.provider,
            Self::Anthropic(_) => Some("anthropic"),
            Self::Gemini(_) => Some("gcp.gemini"),
            Self::Demo | Self::Embedded(_) => None,
        }
    }
}

impl Upstream {
    /// One that is part of the program.
    pub(super) fn embedded((name, models): &(String, Vec<String>)) -> Self {
        Self::of_kind(name.clone(), UpstreamKind::Embedded(models.clone()))
    }

    /// An upstream of which nothing else is declared.
    fn of_kind(name: String, kind: UpstreamKind) -> Self {
        Self { name, kind, breaker: BreakerConfig::default(), needed: false }
    }

    pub(super) fn read(name: &str, section: &mut Section<'_>) -> Self {
        if !is_plain_name(name) {
            section.refuse_here(PLAIN_NAME);
        }
        let kind = section.key(
            "kind",
            "`openai` is any server with OpenAI's chat completions, `openai_responses` any with OpenAI's Responses, \
             `anthropic` any with Anthropic's Messages, `gemini` any with Google's Gemini API; `demo` is built in and needs \
             no network.",
            Kind::OpenAi,
        );
        let kind = match kind {
            Kind::OpenAi => {
                let openai = OpenAiUpstream::read(section);
                if section.is_described() {
                    ResponsesUpstream::read_own(None, openai.http.clone(), openai.pass_unknown_members, section);
                    AnthropicUpstream::read_own(openai.http.clone(), section);
                }
                UpstreamKind::OpenAi(openai)
            }
            Kind::Responses => UpstreamKind::Responses(ResponsesUpstream::read(section)),
            Kind::Anthropic => UpstreamKind::Anthropic(AnthropicUpstream::read(section)),
            Kind::Gemini => UpstreamKind::Gemini(GeminiUpstream::read(section)),
            Kind::Demo => UpstreamKind::Demo,
        };
        if kind == UpstreamKind::Demo {
            return Self::of_kind(name.to_owned(), kind);
        }
        let needed = section.key(
            "needed",
            "Whether `/readyz` fails while the breaker of one of its models is open because calls of it fail, whatever they ask \
             for. All replicas see the same breakers, so then none is ready: choose it where no run can do without this upstream.",
            false,
        );
        let breaker = section.section("breaker", BreakerConfig::read);
        Self { name: name.to_owned(), kind, breaker, needed }
    }

    /// The upstream that the key `upstream` names by its preset.
    pub(super) fn of_preset(preset: &'static Preset, root: &Section<'_>) -> Self {
        let path = format!("upstreams.{}", preset.name);
        let openai = root.unwritten(&path, |section| OpenAiUpstream::of_preset(preset, section));
        Self::of_kind(preset.name.to_owned(), UpstreamKind::OpenAi(openai))
    }

    /// The same upstream with only those of its base URLs and keys that stand in these places, from 0.
    #[must_use]
    pub fn narrowed(&self, base_url: usize, key: usize) -> Self {
        let mut narrowed = self.clone();
        if let Some(http) = narrowed.kind.http_mut() {
            http.base_urls = http.base_urls.get(base_url).into_iter().cloned().collect();
            http.api_keys = http.api_keys.get(key).into_iter().cloned().collect();
        }
        narrowed
    }

    /// Whether it may have a model of this name: it lists it, or does not say what it has.
    pub(super) fn may_have(&self, model: &str) -> bool {
        self.models().is_none_or(|models| models.iter().any(|known| known == model))
    }

    /// Whether it lists a model of this name.
    #[must_use]
    pub fn lists(&self, model: &str) -> bool {
        self.models().is_some_and(|models| models.iter().any(|known| known == model))
    }

    /// How many models it has; `None` if it is asked for them.
    #[must_use]
    pub fn declared_models(&self) -> Option<usize> {
        match self.kind {
            UpstreamKind::Demo => Some(1),
            UpstreamKind::Embedded(ref models) => Some(models.len()),
            UpstreamKind::OpenAi(_)
            | UpstreamKind::Responses(_)
            | UpstreamKind::Anthropic(_)
            | UpstreamKind::Gemini(_) => self.models().map(<[_]>::len),
        }
    }

    fn models(&self) -> Option<&[String]> {
        if let UpstreamKind::Embedded(models) = &self.kind {
            return Some(models);
        }
        self.kind.http()?.models.as_deref()
    }
}

/// Where the upstreams were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamOrigin {
    /// Declared in this file.
    File(String),
    /// Outside the file: the variable that named it, or the address where it answered.
    Found(String),
    /// Nowhere, so it is the demo model.
    Nowhere,
}

impl fmt::Display for UpstreamOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(place) | Self::Found(place) => f.write_str(place),
            Self::Nowhere => f.write_str("none found: the built-in demo model"),
        }
    }
}

/// The upstreams of a file that declares none: those of which the environment names a key or an address, else the demo
/// model.
pub(super) fn without_declaration(root: &Section<'_>) -> (Vec<Upstream>, UpstreamOrigin) {
    let named = |defaults: &http::Defaults| {
        [defaults.url, defaults.key].into_iter().find(|variable| root.env(variable).is_some())
    };
    let (mut upstreams, mut variables) = (Vec::new(), Vec::new());
    if let Some(variable) = named(&openai::DEFAULTS) {
        let openai = root.unwritten("upstreams.openai", OpenAiUpstream::of_environment);
        upstreams.push(Upstream::of_kind("openai".to_owned(), UpstreamKind::OpenAi(openai)));
        variables.push(variable);
    }
    if let Some(variable) = named(&anthropic::DEFAULTS) {
        let anthropic = root.unwritten("upstreams.anthropic", AnthropicUpstream::of_environment);
        upstreams.push(Upstream::of_kind("anthropic".to_owned(), UpstreamKind::Anthropic(anthropic)));
        variables.push(variable);
    }
    if let Some(variable) = named(&gemini::DEFAULTS) {
        let gemini = root.unwritten("upstreams.gemini", GeminiUpstream::of_environment);
        upstreams.push(Upstream::of_kind("gemini".to_owned(), UpstreamKind::Gemini(gemini)));
        variables.push(variable);
    }
    if upstreams.is_empty() {
        let demo = Upstream::of_kind("demo".to_owned(), UpstreamKind::Demo);
        return (vec![root.unwritten("upstreams.demo", |_| demo)], UpstreamOrigin::Nowhere);
    }
    (upstreams, UpstreamOrigin::Found(variables.join(", ")))
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    OpenAi,
    Responses,
    Anthropic,
    Gemini,
    Demo,
}

impl Word for Kind {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("openai", Self::OpenAi),
        ("openai_responses", Self::Responses),
        ("anthropic", Self::Anthropic),
        ("gemini", Self::Gemini),
        ("demo", Self::Demo),
    ];
}
