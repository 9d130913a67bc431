//! Why there is no answer, or not all of it.

use std::time::Duration;

use crate::net::client::HttpError;
use crate::net::guard::Refusal;

/// Why there is no answer, or not all of it.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct FetchError {
    /// Why.
    pub reason: FetchFailure,
    /// Whether a server may have acted on the request.
    pub was_sent: bool,
}

/// Why there is no answer, or not all of it: a clause for the caller or model that named the URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchFailure {
    /// The URL, or one that it was redirected to, is refused.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// It was redirected too often.
    #[error("the server redirects more than three times")]
    TooManyRedirects,
    /// It was redirected to another origin, and is more than reading.
    #[error("the server redirects to another server, and only requests without a body that read are sent on")]
    BodyElsewhere,
    /// No connection could be opened.
    #[error("the server could not be reached")]
    Unreachable,
    /// The server's certificate is not trusted, or it speaks no TLS that is understood.
    #[error("the server cannot be trusted or understood in TLS")]
    Untrusted,
    /// The connection broke, or the answer is no HTTP.
    #[error("the server broke off its answer, or answered no HTTP")]
    BrokeOff,
    /// It took too long.
    #[error("the server did not answer in whole within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The answer is compressed.
    #[error("the server compressed its answer ({0}), which was not asked for and is not read")]
    Compressed(String),
    /// The answer is of another type.
    #[error("the answer is of the type {0}, which is not read here")]
    ContentType(String),
    /// The answer is too long.
    #[error("the answer is longer than {0} bytes")]
    TooLarge(usize),
}

/// Why no answer came.
pub(super) fn of(error: &HttpError) -> FetchFailure {
    match error.refusal() {
        Some(refusal) => FetchFailure::Refused(refusal.clone()),
        None if error.is_tls() => FetchFailure::Untrusted,
        None if error.is_connect() => FetchFailure::Unreachable,
        None => FetchFailure::BrokeOff,
    }
}
