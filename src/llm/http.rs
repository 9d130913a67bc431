//! What upstreams that are reached by HTTP have in common.

use std::fmt;
use std::time::Duration;

/// The HTTP client for upstreams: one for the whole process, so that connections are shared.
///
/// It has no overall timeout, which would cut long answers; adapters time each phase themselves.
/// Redirects are not followed: they would carry the key elsewhere. Proxies of the environment are
/// honoured. Fails where the system has no certificate authorities.
pub fn http_client(connect_timeout: Duration) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .connect_timeout(connect_timeout)
        .redirect(reqwest::redirect::Policy::none())
        .tcp_nodelay(true)
        .user_agent(concat!("loopgate/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// An upstream's key. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Wraps a key.
    #[must_use]
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// The key, for a header or for taking it out of a text.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}
