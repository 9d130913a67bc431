//! What is asked, and within which bounds.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use url::Url;

use crate::net::guard::Hosts;

/// A request to a URL that a model, a tool or a caller named.
#[derive(Debug, Clone)]
pub struct GuardedRequest {
    /// How it is asked.
    pub method: Method,
    /// What is asked.
    pub url: Url,
    /// Sent with it, and after redirects. Those of the connection are left out, and so are the host and the length of the body: the
    /// client writes them.
    pub headers: HeaderMap,
    /// Sent to the origin of `url` alone: scheme, host and port.
    pub credentials: HeaderMap,
    /// What is sent.
    pub body: Bytes,
    /// Within which bounds.
    pub limits: FetchLimits,
    /// If given, no other hosts, redirects included.
    pub only: Option<Hosts>,
}

impl GuardedRequest {
    /// Reads a URL within the usual bounds.
    #[must_use]
    pub fn get(url: Url) -> Self {
        Self {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            credentials: HeaderMap::new(),
            body: Bytes::new(),
            limits: FetchLimits::default(),
            only: None,
        }
    }
}

/// The bounds of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchLimits {
    /// Most bytes of a body.
    pub max_body: usize,
    /// Most time for all of it: redirects and the body.
    pub timeout: Duration,
    /// What is done about redirects.
    pub redirects: Redirects,
    /// The media types that are wanted, such as `text/html`, `text/*` or `+json`; `None` for all. What a server does not name is wanted.
    pub content_types: Option<&'static [&'static str]>,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self { max_body: 2 << 20, timeout: Duration::from_secs(20), redirects: Redirects::Follow, content_types: None }
    }
}

/// What is done about redirects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// At most three are followed, each checked as the first URL was.
    Follow,
    /// The same, but one that leads to another origin is the answer.
    SameOrigin,
    /// They are the answer.
    Return,
}
