//! What all upstreams over HTTP share.

use std::time::Duration;

use crate::net::client::{CannotConnect, HttpClient, Reach};

/// The HTTP client for upstreams: one for the whole process, so that connections are shared.
///
/// Adapters time each phase themselves, for an overall timeout would cut long answers. Proxies of the environment are
/// honoured.
pub fn http_client(connect_timeout: Duration) -> Result<HttpClient, CannotConnect> {
    HttpClient::new(Reach { connect_timeout: Some(connect_timeout), proxies: true, ..Reach::default() })
}
