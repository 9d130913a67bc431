//! What upstreams that are reached by HTTP have in common.

use std::time::Duration;

use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue};

/// The HTTP client for upstreams: one for the whole process, so that connections are shared.
///
/// It has no overall timeout, which would cut long answers; adapters time each phase themselves.
/// Redirects are not followed: they would carry the key elsewhere. Proxies of the environment are
/// honoured. Answers must not be compressed: nothing here unpacks them. Fails where the system has no certificate authorities.
pub fn http_client(connect_timeout: Duration) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .default_headers(HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]))
        .connect_timeout(connect_timeout)
        .redirect(reqwest::redirect::Policy::none())
        .tcp_nodelay(true)
        .user_agent(concat!("loopgate/", env!("CARGO_PKG_VERSION")))
        .build()
}
