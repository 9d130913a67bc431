//! `[tools.web_fetch]` and the like: built-in tools that are there only if the operator declares them, as they reach beyond the
//! server, or take much of it.

use std::time::Duration;

use http::{HeaderName, Method};

use super::headers::read_headers;
use super::quantity::{Size, seconds};
use super::reader::Section;
use super::run_code::RunCodeConfig;
use super::secret::Secret;
use crate::net::guard::HostPattern;
use crate::types::Effect;

/// The built-in tools that are there only if they are declared.
pub const DECLARED_TOOLS: [&str; 3] = ["http_request", "run_code", "web_fetch"];

/// Those that are declared.
#[derive(Debug, Clone, Default)]
pub struct BuiltinTools {
    /// Reads pages.
    pub web_fetch: Option<WebFetchConfig>,
    /// Sends requests to listed hosts.
    pub http_request: Option<HttpRequestConfig>,
    /// Runs code.
    pub run_code: Option<RunCodeConfig>,
}

/// How pages are read.
#[derive(Debug, Clone)]
pub struct WebFetchConfig {
    /// Most time for a page.
    pub timeout: Duration,
    /// Most bytes of a page.
    pub max_response: u64,
}

/// Which requests are sent.
#[derive(Debug, Clone)]
pub struct HttpRequestConfig {
    /// Where they may go; never empty.
    pub hosts: Vec<HostPattern>,
    /// How; never empty.
    pub methods: Vec<Method>,
    /// What repeating one would do; `None` if the methods say it.
    pub effect: Option<Effect>,
    /// Sent with each, to the host that the model names.
    pub headers: Vec<(HeaderName, Secret)>,
    /// Most time for an answer.
    pub timeout: Duration,
    /// Most bytes of an answer.
    pub max_response: u64,
}

impl BuiltinTools {
    /// Reads `[tools.NAME]`: those of built-in tools, and by `read` all others.
    pub(super) fn read_beside<T>(
        root: &mut Section<'_>,
        mut read: impl FnMut(&str, &mut Section<'_>) -> Option<T>,
    ) -> (Self, Vec<T>) {
        let mut tools = Self::default();
        let others = root.named("tools", None, |name, section| {
            match name {
                "web_fetch" => tools.web_fetch = Some(WebFetchConfig::read(section)),
                "http_request" => tools.http_request = HttpRequestConfig::read(section),
                "run_code" => tools.run_code = RunCodeConfig::read(section),
                _ => return read(name, section),
            }
            None
        });
        if root.is_described() {
            root.unwritten("tools.web_fetch", WebFetchConfig::read);
            root.unwritten("tools.http_request", HttpRequestConfig::read);
            root.unwritten("tools.run_code", RunCodeConfig::read);
        }
        (tools, others)
    }
}

impl WebFetchConfig {
    fn read(section: &mut Section<'_>) -> Self {
        let timeout = section.key("timeout", "Most time for a page, redirects included.", seconds(20));
        let Size(max_response) = section.key(
            "max_response",
            "Most bytes of a page that are read; the model is told if there are more.",
            Size(2 << 20),
        );
        Self { timeout, max_response }
    }
}

impl HttpRequestConfig {
    fn read(section: &mut Section<'_>) -> Option<Self> {
        let hosts: Option<Vec<HostPattern>> = section.required(
            "hosts",
            "Hosts that requests may go to: names such as `\"api.example.com\"`, or `\"*.example.com\"` for all names below one. \
             They are [bounded](#urls-that-others-name) as well.",
        );
        let methods = section.key(
            "methods",
            "Methods that requests may have; the first is that of a request that names none.",
            vec![Method::GET],
        );
        let effect = section.optional(
            "effect",
            "What a repeated request does, as for other tools; if absent, `read` where `methods` are only `GET`, else `write`.",
        );
        let headers = read_headers(section, &[]).into_iter().map(|(name, value)| (name, value.whole)).collect();
        let timeout = section.key("timeout", "Most time for an answer.", seconds(30));
        let Size(max_response) = section.key(
            "max_response",
            "Most bytes of an answer that are read; the model is told if there are more.",
            Size(1 << 20),
        );
        if methods.is_empty() {
            section.refuse("methods", "must name a method");
        }
        let hosts = hosts?;
        if hosts.is_empty() {
            section.refuse("hosts", "must name a host");
        }
        (!methods.is_empty() && !hosts.is_empty()).then_some(Self {
            hosts,
            methods,
            effect,
            headers,
            timeout,
            max_response,
        })
    }
}
