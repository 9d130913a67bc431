//! What upstreams that are reached by HTTP have in common.

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
