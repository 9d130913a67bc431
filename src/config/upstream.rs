//! `[upstreams.NAME]` and `[models."NAME"]`: who answers, and what its models are like.

use std::fmt;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;
use url::Url;

use super::quantity::seconds;
use super::reader::Section;
use super::secret::{self, Secret};
use super::value::{FromToml, Misread, PLAIN_NAME, Word, is_plain_name, text};
use crate::types::{Micros, Price};

/// A server of models.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// The operator's name for it; `NAME/model` names one of its models.
    pub name: String,
    /// What it is and how it is reached.
    pub kind: UpstreamKind,
}

/// What an upstream is.
#[derive(Debug, Clone)]
pub enum UpstreamKind {
    /// A server that speaks OpenAI's chat dialect.
    OpenAi(OpenAiUpstream),
    /// The built-in model that needs no network.
    Demo,
}

/// How a server that speaks OpenAI's chat dialect is reached.
#[derive(Debug, Clone)]
pub struct OpenAiUpstream {
    /// What `/chat/completions` is appended to; http or https, without credentials and query.
    pub base_url: Url,
    /// Sent as bearer token, if there is one.
    pub api_key: Option<Secret>,
    /// Names of its models; `None` where the server is to be asked.
    pub models: Option<Vec<String>>,
    /// Until a connection stands.
    pub connect_timeout: Duration,
    /// From the request until the response begins.
    pub first_byte_timeout: Duration,
    /// Longest silence within a response.
    pub idle_timeout: Duration,
    /// Whether a tool call that a model writes as text is taken for a call.
    pub recover_text_tool_calls: bool,
}

impl Upstream {
    pub(super) fn read(name: &str, section: &mut Section<'_>) -> Self {
        if !is_plain_name(name) {
            section.refuse_here(PLAIN_NAME);
        }
        let kind = section.key(
            "kind",
            "`openai` is any server with OpenAI's chat completions; `demo` is built in and needs no network.",
            Kind::OpenAi,
        );
        let kind = match kind {
            Kind::OpenAi => UpstreamKind::OpenAi(OpenAiUpstream::read(section)),
            Kind::Demo => UpstreamKind::Demo,
        };
        Self { name: name.to_owned(), kind }
    }

    /// Whether it may have a model of this name: it lists it, or does not say what it has.
    pub(super) fn may_have(&self, model: &str) -> bool {
        self.models().is_none_or(|models| models.iter().any(|known| known == model))
    }

    /// Whether it lists a model of this name.
    pub(super) fn lists(&self, model: &str) -> bool {
        self.models().is_some_and(|models| models.iter().any(|known| known == model))
    }

    fn models(&self) -> Option<&[String]> {
        match &self.kind {
            UpstreamKind::OpenAi(openai) => openai.models.as_deref(),
            UpstreamKind::Demo => None,
        }
    }
}

impl OpenAiUpstream {
    fn read(section: &mut Section<'_>) -> Self {
        let BaseUrl(base_url) = section.key(
            "base_url",
            "What `/chat/completions` is appended to.",
            BaseUrl(Url::parse(OPENAI).expect("the constant is a URL")),
        );
        let key_in_env: Option<String> =
            section.optional("api_key_env", "The environment variable that holds the key.");
        let key_in_file: Option<String> = section.optional("api_key_file", "The file that holds the key.");
        let api_key = match (key_in_env, key_in_file) {
            (Some(_), Some(_)) => {
                section.refuse("api_key_file", "give api_key_env or api_key_file, not both");
                None
            }
            (Some(variable), None) => {
                let secret = secret::from_env(section, &variable).and_then(secret::sendable);
                secret::reported(section, "api_key_env", secret)
            }
            (None, Some(path)) => {
                secret::reported(section, "api_key_file", secret::from_file(&path).and_then(secret::sendable))
            }
            (None, None) => None,
        };
        Self {
            api_key,
            models: section.optional("models", "Names of its models; without it, the server is asked."),
            connect_timeout: section.key("connect_timeout", "Until a connection stands.", seconds(5)),
            first_byte_timeout: section.key(
                "first_byte_timeout",
                "From the request until the response begins.",
                seconds(30),
            ),
            idle_timeout: section.key("idle_timeout", "Longest silence within a response.", seconds(60)),
            recover_text_tool_calls: section
                .optional(
                    "recover_text_tool_calls",
                    "Whether a tool call that a model writes as text is taken for a call; true, except for \
                     `api.openai.com`.",
                )
                .unwrap_or_else(|| may_write_calls_as_text(&base_url)),
            base_url,
        }
    }
}

const OPENAI: &str = "https://api.openai.com/v1";

/// Small models write calls as text, OpenAI's own do not.
fn may_write_calls_as_text(base_url: &Url) -> bool {
    base_url.host_str() != Some("api.openai.com")
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

/// The upstream of a file that declares none: OpenAI's or a compatible server if the environment names
/// a key or an address, else the demo model. `section` is read for its defaults.
pub(super) fn without_declaration(section: &mut Section<'_>) -> (Upstream, UpstreamOrigin) {
    const KEY: &str = "OPENAI_API_KEY";
    const URL: &str = "OPENAI_BASE_URL";
    let (key, url) = (section.env(KEY), section.env(URL));
    let Some(origin) = url.as_ref().map(|_| URL).or(key.as_ref().map(|_| KEY)) else {
        let demo = Upstream { name: "demo".to_owned(), kind: UpstreamKind::Demo };
        return (demo, UpstreamOrigin::Nowhere);
    };
    let mut openai = OpenAiUpstream::read(section);
    if let Some(url) = url {
        match parse_base_url(&url) {
            Ok(url) => {
                openai.recover_text_tool_calls = may_write_calls_as_text(&url);
                openai.base_url = url;
            }
            Err(what) => section.refuse_outside(URL, what),
        }
    }
    match key.map(|key| secret::sendable(Secret::new(key))) {
        Some(Ok(key)) => openai.api_key = Some(key),
        Some(Err(what)) => section.refuse_outside(KEY, what),
        None => {}
    }
    let upstream = Upstream { name: "openai".to_owned(), kind: UpstreamKind::OpenAi(openai) };
    (upstream, UpstreamOrigin::Found(origin.to_owned()))
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    OpenAi,
    Demo,
}

impl Word for Kind {
    const WORDS: &'static [(&'static str, Self)] = &[("openai", Self::OpenAi), ("demo", Self::Demo)];
}

struct BaseUrl(Url);

impl FromToml for BaseUrl {
    fn form() -> String {
        "URL".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let text = text(value, "a URL such as \"http://localhost:11434/v1\"")?;
        parse_base_url(text).map(Self).map_err(|what| Misread::new(value, what))
    }

    fn show(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

fn parse_base_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or("this is not a URL such as \"http://localhost:11434/v1\"")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user or password; name the key with api_key_env or api_key_file".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must end with the path, without ? and #".to_owned());
    }
    if url.path().trim_end_matches('/').ends_with("/chat/completions") {
        return Err("must end before /chat/completions, which is appended".to_owned());
    }
    Ok(url)
}

/// What is known of a model where the built-in table is wrong or silent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelConfig {
    /// Most tokens of input and output together.
    pub context_window: Option<u64>,
    /// Most tokens of one answer.
    pub max_output_tokens: Option<u64>,
    /// What its tokens cost.
    pub price: Option<Price>,
}

impl ModelConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let context_window = section.optional("context_window", "Most tokens of input and output together.");
        let max_output_tokens = section.optional("max_output_tokens", "Most tokens of one answer.");
        let price = section.optional_section("price", |price| {
            let input: Option<Micros> = price.required("input", "For a million tokens of input.");
            let output: Option<Micros> = price.required("output", "For a million tokens of output.");
            let cached: Option<Micros> = price.optional(
                "cached_input",
                "For a million tokens of input that the upstream had cached; without it, as `input`.",
            );
            input.zip(output).map(|(input, output)| Price {
                input: input.0,
                cached_input: cached.unwrap_or(input).0,
                output: output.0,
            })
        });
        Self { context_window, max_output_tokens, price }
    }
}
