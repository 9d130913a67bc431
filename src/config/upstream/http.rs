//! What every upstream has that is reached over HTTP.

use std::time::Duration;

use http::HeaderName;
use toml::Spanned;
use toml::de::DeValue;
use url::Url;

use super::connection::ConnectionSettings;
use crate::config::headers::read_headers;
use crate::config::quantity::seconds;
use crate::config::reader::Section;
use crate::config::secret::Secret;
use crate::config::secret_source;
use crate::config::sent_value::{self, SentValue};
use crate::config::value::{FromToml, Misread, text};
use crate::config::values::Recorded;

/// How a server of models is reached, whatever dialect it speaks.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpUpstream {
    /// What the paths of the API are appended to; http or https, without credentials and query.
    pub base_url: Url,
    /// The key, if there is one.
    pub api_key: Option<Secret>,
    /// Names of its models; `None` where the server is to be asked.
    pub models: Option<Vec<String>>,
    /// Until a connection stands.
    pub connect_timeout: Duration,
    /// From the request until the response begins.
    pub first_byte_timeout: Duration,
    /// Longest silence within a response.
    pub idle_timeout: Duration,
    /// Whether its models cost nothing; `None` where its address decides.
    pub free: Option<bool>,
    /// Whether requests may ask for what costs more than the price of their tokens.
    pub allow_uncounted_cost: bool,
    /// Headers of every request to it, besides those that its kind has.
    pub headers: Vec<(HeaderName, SentValue)>,
    /// Parameters of the address of every request to it.
    pub query: Vec<(String, SentValue)>,
    /// How connections to it are opened.
    pub connection: ConnectionSettings,
}

/// What differs between kinds where nothing is declared.
pub struct Defaults {
    /// The vendor's own address.
    pub base_url: &'static str,
    /// The variable that names the key of an upstream that is found in the environment.
    pub key: &'static str,
    /// The variable that names its address.
    pub url: &'static str,
    /// The headers that its kind has.
    pub headers: &'static [&'static str],
}

/// The headers that requests to every kind of upstream have.
const OWN_HEADERS: [&str; 7] =
    ["accept", "accept-encoding", "content-type", "host", "traceparent", "tracestate", "x-request-id"];

impl HttpUpstream {
    /// Reads what is declared.
    pub(in crate::config) fn read(section: &mut Section<'_>, defaults: &Defaults) -> Self {
        let BaseUrl(base_url) = section.key(
            "base_url",
            "Base URL of the API; `/chat/completions` (`openai`), `/responses` (`openai_responses`), `/messages` (`anthropic`) or \
             `/models/…` (`gemini`) is appended to it.",
            BaseUrl(Url::parse(defaults.base_url).expect("the constant is a URL")),
        );
        Self {
            api_key: read_key(section),
            headers: read_headers(section, &[&OWN_HEADERS[..], defaults.headers].concat()),
            query: read_query(section),
            connection: ConnectionSettings::read(section, &base_url),
            models: section.optional("models", "Names of its models; if absent, the upstream is asked for them."),
            connect_timeout: section.key("connect_timeout", "Most time for opening a connection.", seconds(5)),
            first_byte_timeout: section.key(
                "first_byte_timeout",
                "Most time from sending a request to the first byte of its response.",
                seconds(30),
            ),
            idle_timeout: section.key("idle_timeout", "Longest pause within a response.", seconds(60)),
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

    /// Reports a header that the key is sent in as well.
    pub(in crate::config) fn refuse_second(&self, section: &Section<'_>, key_header: &str) {
        if self.api_key.is_some() && self.headers.iter().any(|(name, _)| name == key_header) {
            let what = format!("{key_header} is the header of the API key: leave out one of them");
            section.refuse("headers", what);
        }
    }

    /// Reports a parameter that the server itself gives.
    pub(in crate::config) fn refuse_parameter(&self, section: &Section<'_>, own: &str, instead: &str) {
        if self.query.iter().any(|(name, _)| name == own) {
            section.refuse("query", format!("the server itself gives {own:?}{instead}"));
        }
    }

    /// Takes the address from the environment. Returns whether there is one that is valid.
    pub(in crate::config) fn take_url(&mut self, section: &mut Section<'_>, defaults: &Defaults) -> bool {
        let Some(url) = section.env(defaults.url) else { return false };
        match parse_base_url(&url) {
            Ok(url) => {
                section.record("base_url", Recorded::shown(format!("\"{url}\"")));
                self.base_url = url;
                true
            }
            Err(what) => {
                section.refuse_outside(defaults.url, what);
                false
            }
        }
    }

    /// Appends the first of these segments to the path of the address, unless it ends with one of them.
    pub(in crate::config) fn end_with(&mut self, versions: &[&str]) {
        let last = self.base_url.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        if !versions.contains(&last)
            && let (Some(version), Ok(mut segments)) = (versions.first(), self.base_url.path_segments_mut())
        {
            segments.pop_if_empty().push(version);
        }
    }

    /// Takes the key from the environment, if there is one.
    pub(in crate::config) fn take_key(&mut self, section: &mut Section<'_>, defaults: &Defaults) {
        let variable = defaults.key;
        if variable.is_empty() {
            return;
        }
        match section.env(variable).map(|key| secret_source::sendable(Secret::new(key))) {
            Some(Ok(key)) => {
                let recorded = Recorded::shown(format!("\"{variable}\"")).with_secret(key.expose());
                section.record("api_key_env", recorded);
                self.api_key = Some(key);
            }
            Some(Err(what)) => section.refuse_outside(variable, what),
            None => {}
        }
    }
}

/// Whether it is asked for an answer in one piece where no client reads the answer as it is said.
pub(in crate::config) fn read_ask_in_one_piece(section: &mut Section<'_>) -> bool {
    section.key(
        "ask_in_one_piece",
        "Whether a model is asked for its answer in one piece where no client reads the answer as it is said, as with \
         `stream: false`. That takes less of the server and suits short answers: `first_byte_timeout` then bounds a whole \
         answer, a call that is stopped or fails is [charged](api.md#what-a-model-call-is-charged) all that it was \
         allowed, and no reader sees text of a step before its answer is whole. Only `openai` and `gemini`.",
        false,
    )
}

fn read_key(section: &mut Section<'_>) -> Option<Secret> {
    let key_in_env: Option<String> = section.optional("api_key_env", "Environment variable that holds the API key.");
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
    api_key
}

/// Reads the table `query`.
fn read_query(section: &mut Section<'_>) -> Vec<(String, SentValue)> {
    section.named_or_text("query", |name, text, section| {
        let value = sent_value::read("", text, section)?;
        section.record_here(Recorded::hidden(value.whole.expose()));
        Some((name.to_owned(), value))
    })
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
        return Err("must end with the path, without ? and #; name parameters in query".to_owned());
    }
    for path in ["/chat/completions", "/responses", "/messages", "/models"] {
        if url.path().trim_end_matches('/').ends_with(path) {
            return Err(format!("must end before {path}, which is appended"));
        }
    }
    Ok(url)
}
