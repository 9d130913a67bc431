//! Asks URLs that models, tools and callers name, within the guard's bounds.
//!
//! Redirects are followed here, one by one, so that each is checked as the first URL was. Compressed answers are refused: they are not
//! asked for, and a small one may unpack to anything.
//!
//! | file | holds |
//! | --- | --- |
//! | `request` | what is asked, and within which bounds |
//! | `redirect` | what a redirect leads to (pure) |
//! | `answer` | an answer whose body is still to come |
//! | `failure` | why there is none |

mod answer;
mod failure;
mod redirect;
mod request;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use tokio::time::{Instant, timeout_at};
use url::Url;

pub use self::answer::{CappedBody, GuardedResponse};
pub use self::failure::{FetchError, FetchFailure};
use self::redirect::{Hop, Next};
pub use self::request::{FetchLimits, GuardedRequest, Redirects};
use crate::net::client::{CannotConnect, HttpClient, Proxies, Reach, Response};
use crate::net::guard::{Guard, Hosts, Refusal};

/// Most time for opening a connection, names and proxies included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection is kept: others seldom ask the same server soon.
const KEEP_IDLE: Duration = Duration::from_secs(4);

/// Asks URLs within a guard's bounds. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Fetcher {
    guard: Guard,
    client: HttpClient,
}

impl Fetcher {
    /// One that asks what `guard` allows, through the proxy that the guard names. Fails where the certificate authorities of the
    /// system cannot be read.
    pub fn new(guard: Guard) -> Result<Self, CannotConnect> {
        let proxies = guard.policy().proxy.clone().map_or(Proxies::None, Proxies::One);
        let client = HttpClient::new(&Reach {
            connect_timeout: Some(CONNECT_TIMEOUT),
            keep_idle: Some(KEEP_IDLE),
            proxies,
            guard: Some(guard.clone()),
            ..Reach::default()
        })?;
        Ok(Self { guard, client })
    }

    /// What decides on its URLs.
    #[must_use]
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Sends a request, follows redirects as far as the request allows, and returns once the head of the last answer is there.
    pub async fn fetch(&self, request: GuardedRequest) -> Result<GuardedResponse, FetchError> {
        let GuardedRequest { limits, only, .. } = &request;
        let (limits, only) = (limits.clone(), only.clone());
        let deadline = Instant::now() + limits.timeout;
        let mut hop = Hop::first(request);
        // Whether a server may have acted on what it was asked before it redirected.
        let mut was_sent = false;
        loop {
            let failed = |reason, was_sent| FetchError { reason, was_sent };
            self.check(&hop.url, only.as_ref()).map_err(|refusal| failed(refusal.into(), was_sent))?;
            let sending = self.send(&hop);
            let answer = match timeout_at(deadline, sending).await {
                Ok(Ok(answer)) => answer,
                Ok(Err((reason, sent))) => return Err(failed(reason, was_sent || sent)),
                Err(_) => return Err(failed(FetchFailure::Timeout(limits.timeout), true)),
            };
            was_sent |= !hop.method.is_safe();
            match hop
                .next(answer.status, &answer.headers, limits.redirects)
                .map_err(|reason| failed(reason, was_sent))?
            {
                Next::Answer => return answer::opened(answer, hop.url, &limits, deadline),
                Next::Hop(next) => hop = *next,
            }
        }
    }

    fn check(&self, url: &Url, only: Option<&Hosts>) -> Result<(), Refusal> {
        self.guard.check(url)?;
        let host = url.host_str().unwrap_or_default();
        match only {
            Some(hosts) if !hosts.name(host) => Err(Refusal::Host(host.to_owned())),
            _ => Ok(()),
        }
    }

    /// Sends one request. A failure comes with whether anything may have been sent.
    async fn send(&self, hop: &Hop) -> Result<Response, (FetchFailure, bool)> {
        let uri = same_uri(&hop.url).ok_or((Refusal::Malformed.into(), false))?;
        let mut request: Request<Bytes> = Request::new(hop.body.clone());
        (*request.method_mut(), *request.uri_mut()) = (hop.method.clone(), uri);
        *request.headers_mut() = hop.headers();
        self.client.send(request).await.map_err(|error| {
            let host = hop.url.host_str().unwrap_or_default();
            tracing::debug!(host, %error, "a URL that was named by others gave no answer");
            let was_sent = !error.is_connect() && error.refusal().is_none();
            (failure::of(&error), was_sent)
        })
    }
}

/// The URL as the HTTP client takes it. There is one parser: what the other type reads must be the same server.
fn same_uri(url: &Url) -> Option<Uri> {
    let mut url = url.clone();
    url.set_fragment(None);
    let uri = Uri::try_from(url.as_str()).ok()?;
    let is_same =
        uri.host() == url.host_str() && uri.port_u16() == url.port() && uri.scheme_str() == Some(url.scheme());
    is_same.then_some(uri)
}
