//! An answer whose body is still to come, up to a size and until a time.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::failure::{FetchError, FetchFailure};
use super::request::FetchLimits;
use crate::net::client::{Body, Response};

/// An answer whose body is still to come.
#[derive(Debug)]
pub struct GuardedResponse {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Which URL answered, after redirects.
    pub url: Url,
    /// What follows.
    pub body: CappedBody,
}

/// A body while it arrives.
#[derive(Debug)]
pub struct CappedBody {
    arriving: Body,
    most: usize,
    left: usize,
    was_cut: bool,
    deadline: Instant,
    timeout: Duration,
}

/// Takes an answer as the last one, if it can be read.
pub(super) fn opened(
    response: Response,
    url: Url,
    limits: &FetchLimits,
    deadline: Instant,
) -> Result<GuardedResponse, FetchError> {
    let Response { status, headers, body: arriving } = response;
    let failed = |reason| FetchError { reason, was_sent: true };
    if let Some(encoding) = encoding(&headers) {
        return Err(failed(FetchFailure::Compressed(encoding)));
    }
    let (most, timeout) = (limits.max_body, limits.timeout);
    let body = CappedBody { arriving, most, left: most, was_cut: false, deadline, timeout };
    let response = GuardedResponse { status, headers, url, body };
    let is_wanted = match (limits.content_types, response.content_type()) {
        (Some(wanted), Some(kind)) if status.is_success() => wanted.iter().any(|pattern| is_meant(pattern, &kind)),
        _ => true,
    };
    match response.content_type() {
        Some(kind) if !is_wanted => Err(failed(FetchFailure::ContentType(shown(&kind)))),
        _ => Ok(response),
    }
}

impl GuardedResponse {
    /// The media type of the body in lower case and without parameters, if the server names one.
    #[must_use]
    pub fn content_type(&self) -> Option<String> {
        let kind = self.headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        (!kind.is_empty()).then_some(kind)
    }
}

impl CappedBody {
    /// What arrives next; `None` at the end, which may be that of what is read at most.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, FetchError> {
        let failed = |reason| FetchError { reason, was_sent: true };
        loop {
            if self.was_cut {
                return Ok(None);
            }
            let arrived = match timeout_at(self.deadline, self.arriving.chunk()).await {
                Ok(Ok(arrived)) => arrived,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "an answer from a URL that was named by others broke off");
                    return Err(failed(FetchFailure::BrokeOff));
                }
                Err(_) => return Err(failed(FetchFailure::Timeout(self.timeout))),
            };
            let Some(mut arrived) = arrived else { return Ok(None) };
            self.was_cut = arrived.len() > self.left;
            arrived.truncate(self.left);
            self.left -= arrived.len();
            if !arrived.is_empty() {
                return Ok(Some(arrived));
            }
        }
    }

    /// Whether there was more than is read.
    #[must_use]
    pub fn was_cut(&self) -> bool {
        self.was_cut
    }

    /// As much of it as is read, and whether there was more.
    pub async fn up_to_cap(mut self) -> Result<(Vec<u8>, bool), FetchError> {
        let mut all = Vec::new();
        while let Some(arrived) = self.chunk().await? {
            all.extend_from_slice(&arrived);
        }
        Ok((all, self.was_cut))
    }

    /// All of it. It is a failure if there is more than is read.
    pub async fn whole(self) -> Result<Vec<u8>, FetchError> {
        let most = self.most;
        match self.up_to_cap().await? {
            (all, false) => Ok(all),
            (_, true) => Err(FetchError { reason: FetchFailure::TooLarge(most), was_sent: true }),
        }
    }
}

/// Whether a media type is `text/html`, one of `text/*`, or one that ends with `+json`.
fn is_meant(pattern: &str, kind: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => kind.starts_with(beginning),
        None if pattern.starts_with('+') => kind.ends_with(pattern),
        None => kind == pattern,
    }
}

/// How the body is encoded, where it is.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let encoding = headers.get(CONTENT_ENCODING)?.to_str().unwrap_or("unknown").trim();
    let is_plain = encoding.is_empty() || encoding.eq_ignore_ascii_case("identity");
    (!is_plain).then(|| shown(encoding))
}

/// What a server says, short enough to be told on.
fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}
