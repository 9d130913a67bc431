//! Tools whose services may answer a call later.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;
use url::Url;

use super::quantity::seconds;
use super::reader::Section;
use super::value::{FromToml, Misread, text};

/// How a service may answer a call later.
#[derive(Debug, Clone)]
pub struct AnswersLater {
    /// How long after the call.
    pub timeout: Duration,
    /// Where services reach this server.
    pub public_url: Url,
}

impl AnswersLater {
    /// That of a tool.
    pub(super) fn read(section: &mut Section<'_>, public_url: Option<&Url>) -> Option<Self> {
        let timeout: Option<Duration> = section.optional(
            "async_timeout",
            "How long the service may take to answer a call [later](tools.md#answers-that-come-later), after it said 202 \
             Accepted. If absent, 202 is an answer as any other. No longer than [`store.wait_ttl`](#store). Needs \
             [`server.public_url`](#server).",
        );
        Self::of("async_timeout", timeout?, section, public_url)
    }

    /// That of operations of a document, and the patterns of those that may do so.
    pub(super) fn read_operations(section: &mut Section<'_>, public_url: Option<&Url>) -> (Option<Self>, Vec<String>) {
        let operations: Vec<String> = section.key(
            "async_operations",
            "Operations that may be answered [later](tools.md#answers-that-come-later), where the service says 202 Accepted. Of \
             others 202 is an answer as any other. Needs [`server.public_url`](#server).",
            Vec::new(),
        );
        let timeout = section.key(
            "async_timeout",
            "How long the service may take to answer these. No longer than [`store.wait_ttl`](#store).",
            seconds(3_600),
        );
        if operations.is_empty() {
            return (None, operations);
        }
        (Self::of("async_operations", timeout, section, public_url), operations)
    }

    fn of(key: &str, timeout: Duration, section: &Section<'_>, public_url: Option<&Url>) -> Option<Self> {
        if timeout.is_zero() {
            section.refuse("async_timeout", "must be longer than nothing");
        }
        let Some(public_url) = public_url.cloned() else {
            section.refuse(key, "needs server.public_url: the URL at which the services of tools reach this server");
            return None;
        };
        Some(Self { timeout, public_url })
    }
}

/// Where others reach this server: a URL that paths are appended to.
pub(super) struct PublicUrl(pub(super) Url);

impl PublicUrl {
    /// The name of the host in it, where that is a name.
    pub(super) fn host(&self) -> Option<String> {
        self.0.domain().map(str::to_owned)
    }
}

impl FromToml for PublicUrl {
    fn form() -> String {
        "URL".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "a URL such as \"https://agents.example.com\", without a query or password";
        let url = Url::parse(text(value, FORM)?).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let is_plain = |url: &Url| {
            let is_bare = url.query().is_none() && url.fragment().is_none();
            is_bare && url.username().is_empty() && url.password().is_none()
        };
        url.filter(is_plain).map(Self).ok_or_else(|| Misread::new(value, format!("this is not {FORM}")))
    }

    fn show(&self) -> String {
        format!("\"{}\"", self.0)
    }
}
