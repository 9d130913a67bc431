//! `[upstreams.NAME]` and `[models."NAME"]`: the servers that answer model calls, and the properties of their models.

use std::fmt;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;
use url::Url;

use super::quantity::seconds;
use super::reader::Section;
use super::secret::Secret;
use super::secret_source;
use super::value::{FromToml, Misread, PLAIN_NAME, Word, is_plain_name, text};
use super::values::Recorded;
use crate::types::tool::WrittenCalls;
use crate::types::{Micros, Price};

/// A server of models.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    /// The operator's name for it; `NAME/model` names one of its models.
    pub name: String,
    /// What it is and how it is reached.
    pub kind: UpstreamKind,
}

/// What an upstream is.
#[derive(Debug, Clone, PartialEq)]
pub enum UpstreamKind {
    /// A server that speaks OpenAI's chat dialect.
    OpenAi(OpenAiUpstream),
    /// The built-in model that needs no network.
    Demo,
}

/// How a server that speaks OpenAI's chat dialect is reached.
#[derive(Debug, Clone, PartialEq)]
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
    /// Which tool calls that a model writes as text are taken for calls.
    pub written_calls: WrittenCalls,
    /// Whether it is sent members of a request that OpenAI does not document.
    pub pass_unknown_members: bool,
    /// Whether its models cost nothing; `None` where its address decides.
    pub free: Option<bool>,
    /// Whether requests may ask for what costs more than the price of their tokens.
    pub allow_uncounted_cost: bool,
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
    #[must_use]
    pub fn lists(&self, model: &str) -> bool {
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
    /// Whether it is OpenAI itself.
    #[must_use]
    pub fn is_openai(&self) -> bool {
        is_openai(&self.base_url)
    }

    fn read(section: &mut Section<'_>) -> Self {
        let BaseUrl(base_url) = section.key(
            "base_url",
            "Base URL of the API; `/chat/completions` is appended to it.",
            BaseUrl(Url::parse(OPENAI).expect("the constant is a URL")),
        );
        let key_in_env: Option<String> =
            section.optional("api_key_env", "Environment variable that holds the API key.");
        let key_in_file: Option<String> = section.optional("api_key_file", "File that holds the API key.");
        let (key, secret) = match (key_in_env, key_in_file) {
            (Some(_), Some(_)) => ("api_key_file", Some(Err("give api_key_env or api_key_file, not both".to_owned()))),
            (Some(variable), None) => ("api_key_env", Some(secret_source::from_env(section, &variable))),
            (None, path) => ("api_key_file", path.map(|path| secret_source::from_file(&path))),
        };
        let api_key =
            secret.and_then(|secret| secret_source::reported(section, key, secret.and_then(secret_source::sendable)));
        if let Some(secret) = &api_key {
            section.record_secret(key, secret.expose());
        }
        Self {
            api_key,
            models: section.optional("models", "Names of its models; if absent, the upstream is asked for them."),
            connect_timeout: section.key("connect_timeout", "Most time for opening a connection.", seconds(5)),
            first_byte_timeout: section.key(
                "first_byte_timeout",
                "Most time from sending a request to the first byte of its response.",
                seconds(30),
            ),
            idle_timeout: section.key("idle_timeout", "Longest pause within a response.", seconds(60)),
            written_calls: section
                .optional(
                    "recover_text_tool_calls",
                    "Whether the server makes tool calls that are all that a response's text says. If absent, it makes \
                     those of `read` tools, and none for OpenAI's own hosts (`api.openai.com`).",
                )
                .map_or_else(
                    || written_calls_of(&base_url),
                    |all: bool| if all { WrittenCalls::All } else { WrittenCalls::None },
                ),
            pass_unknown_members: section
                .optional(
                    "pass_unknown_members",
                    "Whether members that OpenAI does not document, such as `top_k`, are sent on. If absent, they are \
                     sent to every upstream but OpenAI's own (`api.openai.com`), which would refuse them.",
                )
                .unwrap_or_else(|| !is_openai(&base_url)),
            free: section.optional(
                "free",
                "Whether its models cost nothing, but for those with a price under `models`; if absent, only models that the \
                 built-in table lacks do, and only if `base_url` has a loopback or private address.",
            ),
            allow_uncounted_cost: section.key(
                "allow_uncounted_cost",
                "Whether requests may ask for what costs more than the price of their tokens, which is not counted: a \
                 dearer `service_tier`, and under a cost budget `web_search_options`.",
                false,
            ),
            base_url,
        }
    }
}

/// The variables that name an upstream where the file declares none.
const KEY: &str = "OPENAI_API_KEY";
const URL: &str = "OPENAI_BASE_URL";
const OPENAI: &str = "https://api.openai.com/v1";

/// Small models write calls as text, OpenAI's own do not.
fn written_calls_of(base_url: &Url) -> WrittenCalls {
    if is_openai(base_url) { WrittenCalls::None } else { WrittenCalls::Read }
}

/// Whether the upstream is OpenAI itself, in whichever region. It refuses members that it does not know.
fn is_openai(base_url: &Url) -> bool {
    let host = base_url.host_str().unwrap_or_default().trim_end_matches('.');
    host == "api.openai.com" || host.ends_with(".api.openai.com")
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
/// a key or an address, else the demo model.
pub(super) fn without_declaration(root: &Section<'_>) -> (Upstream, UpstreamOrigin) {
    let (key, url) = (root.env(KEY), root.env(URL));
    let Some(origin) = url.as_ref().map(|_| URL).or(key.as_ref().map(|_| KEY)) else {
        let demo = Upstream { name: "demo".to_owned(), kind: UpstreamKind::Demo };
        return (root.unwritten("upstreams.demo", |_| demo), UpstreamOrigin::Nowhere);
    };
    let openai = root.unwritten("upstreams.openai", |section| of_environment(section, key, url));
    let upstream = Upstream { name: "openai".to_owned(), kind: UpstreamKind::OpenAi(openai) };
    (upstream, UpstreamOrigin::Found(origin.to_owned()))
}

/// OpenAI's upstream with the key and the address of the environment.
fn of_environment(section: &mut Section<'_>, key: Option<String>, url: Option<String>) -> OpenAiUpstream {
    let mut openai = OpenAiUpstream::read(section);
    if let Some(url) = url {
        match parse_base_url(&url) {
            Ok(url) => {
                openai.written_calls = written_calls_of(&url);
                openai.pass_unknown_members = !is_openai(&url);
                section.record("base_url", Recorded::shown(format!("\"{url}\"")));
                openai.base_url = url;
            }
            Err(what) => section.refuse_outside(URL, what),
        }
    }
    match key.map(|key| secret_source::sendable(Secret::new(key))) {
        Some(Ok(key)) => {
            section.record("api_key_env", Recorded::shown(format!("\"{KEY}\"")).with_secret(key.expose()));
            openai.api_key = Some(key);
        }
        Some(Err(what)) => section.refuse_outside(KEY, what),
        None => {}
    }
    openai
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
        let max_output_tokens = section.optional("max_output_tokens", "Most output tokens of one model call.");
        let price = section.optional_section("price", |price| {
            let input: Option<Micros> = price.required("input", "Price of a million input tokens.");
            let output: Option<Micros> = price.required("output", "Price of a million output tokens.");
            let cached: Option<Micros> = price.optional(
                "cached_input",
                "Price of a million input tokens that the upstream read from its cache; if absent, that of `input`.",
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
