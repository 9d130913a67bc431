//! One upstream: how it is asked, and how its failures are said.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response};
use url::Url;

use super::fault::Fault;
use super::request::{self, OutputBound};
use crate::config::Secret;
use crate::llm::{ModelError, ModelErrorKind, ModelRequest};

/// Longest message of an error, in characters.
pub(super) const MAX_MESSAGE: usize = 500;
/// The wait before an attempt that need not wait.
const AT_ONCE: Duration = Duration::from_millis(1);

/// An upstream, ready to be asked.
pub(super) struct Upstream {
    pub(super) name: String,
    pub(super) completions: Url,
    pub(super) models: Url,
    pub(super) headers: HeaderMap,
    pub(super) api_key: Option<Secret>,
    pub(super) bound: OutputBound,
    pub(super) first_byte_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) client: Client,
}

impl Upstream {
    pub(super) fn post(&self, request: &ModelRequest) -> reqwest::RequestBuilder {
        self.client
            .post(self.completions.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(request::body(request, self.bound))
    }

    /// Refuses an answer that is compressed. Asking again would give, and cost, the same.
    pub(super) fn check_encoding(&self, response: &Response) -> Result<(), ModelError> {
        let encoding = response.headers().get(CONTENT_ENCODING).map(|encoding| encoding.to_str().unwrap_or("unknown"));
        match encoding.map(str::trim) {
            None | Some("" | "identity") => Ok(()),
            Some(encoding) => Err(self.error(
                ModelErrorKind::Rejected,
                format_args!("compressed its answer ({encoding}), which was not asked for and cannot be read"),
            )),
        }
    }

    /// An error of this upstream; `what` follows its name.
    pub(super) fn error(&self, kind: ModelErrorKind, what: impl fmt::Display) -> ModelError {
        let mut message = format!("upstream {} {what}", self.name);
        if let Some(key) = self.api_key.as_ref().map(Secret::expose).filter(|key| !key.is_empty()) {
            message = message.replace(key, "[key]");
        }
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
            message.truncate(end);
            message.push('…');
        }
        ModelError { kind, message, status: None, retry_after: None }
    }

    pub(super) fn fault(&self, fault: &Fault) -> ModelError {
        let kind = if let Fault::Reported(report) = fault { report.kind(None) } else { ModelErrorKind::Transient };
        self.error(kind, fault)
    }

    pub(super) fn unreachable(&self, error: reqwest::Error) -> ModelError {
        if error.is_timeout() {
            return self.error(ModelErrorKind::Timeout, "did not accept a connection in time");
        }
        let error = error.without_url();
        let cause = root_cause(&error);
        // Servers close connections that were kept for the next request, often just as it is sent. That
        // says nothing about how they are: the next attempt need not wait.
        let closed = cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message);
        ModelError {
            retry_after: closed.then_some(AT_ONCE),
            ..self.error(ModelErrorKind::Transient, format_args!("cannot be reached: {cause}"))
        }
    }

    pub(super) fn broken_off(&self, error: reqwest::Error) -> ModelError {
        self.error(
            ModelErrorKind::Transient,
            format_args!("broke off its answer: {}", root_cause(&error.without_url())),
        )
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The innermost error, which says what happened; the outer ones only say during what.
fn root_cause(error: &reqwest::Error) -> &(dyn Error + 'static) {
    let mut cause: &(dyn Error + 'static) = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause
}
