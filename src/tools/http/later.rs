//! Services that may answer a call later: what they are told of where, and by when.

use std::time::Duration;

use ::http::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::config;
use crate::types::CallId;

/// Where calls are answered, behind the URL of this server.
pub const PATH: &str = "/v1/tool-results/";

/// The headers that tell a service how it may answer later.
const URL: HeaderName = HeaderName::from_static("x-loopgate-callback-url");
const TOKEN: HeaderName = HeaderName::from_static("x-loopgate-callback-token");
const TIMEOUT: HeaderName = HeaderName::from_static("x-loopgate-callback-timeout-ms");

/// How a service may answer a call later.
#[derive(Debug, Clone)]
pub(super) struct AnswersLater {
    /// How long after the call.
    pub(super) timeout: Duration,
    /// Where services reach this server, without a slash at its end.
    base: String,
}

impl AnswersLater {
    /// As the configuration says it.
    pub(super) fn new(config::AnswersLater { timeout, public_url }: &config::AnswersLater) -> Self {
        Self { timeout: *timeout, base: Url::as_str(public_url).trim_end_matches('/').to_owned() }
    }

    /// Tells the service of a call.
    pub(super) fn add_to(&self, headers: &mut HeaderMap, call: &CallId, token: &str) {
        let url = format!("{}{PATH}{call}", self.base);
        // A URL and what is written in base64 fit a header.
        if let (Ok(url), Ok(mut token)) = (HeaderValue::try_from(url), HeaderValue::from_str(token)) {
            token.set_sensitive(true);
            headers.insert(URL, url);
            headers.insert(TOKEN, token);
            headers.insert(TIMEOUT, HeaderValue::from(u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX)));
        }
    }
}
