//! What every upstream has that is reached over HTTP.

use std::time::Duration;

use http::HeaderName;
use url::Url;

use super::api_key;
use super::base_url::{self, BaseUrl};
use super::connection::ConnectionSettings;
use super::pools::Pools;
use crate::config::headers::read_headers;
use crate::config::quantity::seconds;
use crate::config::query::read_query;
use crate::config::reader::Section;
use crate::config::secret::Secret;
use crate::config::sent_value::SentValue;
use crate::config::values::Recorded;

/// How a server of models is reached, whatever dialect it speaks.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpUpstream {
    /// Where it is; several are servers that answer alike. Never empty.
    pub base_urls: Vec<BaseUrl>,
    /// Its key; several may be used alike.
    pub api_keys: Vec<Secret>,
    /// How calls are spread over these, and how many are made at once.
    pub pools: Pools,
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
        let base_urls = base_url::read(section, defaults.base_url);
        Self {
            api_keys: api_key::read(section),
            pools: Pools::read(section),
            headers: read_headers(section, &[&OWN_HEADERS[..], defaults.headers].concat()),
            query: read_query(section),
            connection: ConnectionSettings::read(section, base_urls.iter().any(|base_url| base_url.url.scheme() == "https")),
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
                 built-in table lacks do, and only if its base URLs have loopback or private addresses.",
            ),
            allow_uncounted_cost: section.key(
                "allow_uncounted_cost",
                "Whether requests may ask for what costs more than the price of their tokens, which is not counted: a \
                 dearer `service_tier`, and under a cost budget `web_search_options`.",
                false,
            ),
            base_urls,
        }
    }

    /// The first of its base URLs.
    #[must_use]
    pub fn base_url(&self) -> &Url {
        &self.base_urls[0].url
    }

    /// Its base URLs, without their weights.
    pub fn urls(&self) -> impl Iterator<Item = &Url> {
        self.base_urls.iter().map(|base_url| &base_url.url)
    }

    /// Reports a header that the key is sent in as well.
    pub(in crate::config) fn refuse_second(&self, section: &Section<'_>, key_header: &str) {
        if !self.api_keys.is_empty() && self.headers.iter().any(|(name, _)| name == key_header) {
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
        match base_url::parse(&url) {
            Ok(url) => {
                section.record("base_url", Recorded::shown(format!("\"{url}\"")));
                self.base_urls = vec![BaseUrl::new(url)];
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
        for BaseUrl { url, .. } in &mut self.base_urls {
            let last = url.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            if !versions.contains(&last)
                && let (Some(version), Ok(mut segments)) = (versions.first(), url.path_segments_mut())
            {
                segments.pop_if_empty().push(version);
            }
        }
    }

    /// Takes the key from the environment, if there is one.
    pub(in crate::config) fn take_key(&mut self, section: &mut Section<'_>, defaults: &Defaults) {
        self.api_keys.extend(api_key::of_environment(section, defaults.key));
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
