//! One upstream: how it is called, and how its failures are worded.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};
use http::{Method, Request, Uri};
use http_body_util::Full;

use super::fault::Fault;
use super::request::{self, OutputBound};
use crate::config::Secret;
use crate::llm::{ModelError, ModelErrorKind, ModelRequest, Spent};
use crate::net::client::{HttpClient, HttpError};

/// Longest message of an error, in characters.
pub(super) const MAX_MESSAGE: usize = 500;
/// The wait before an attempt that need not wait.
const AT_ONCE: Duration = Duration::from_millis(1);

/// An upstream, ready to be asked.
pub(super) struct Upstream {
    pub(super) name: String,
    pub(super) completions: Uri,
    pub(super) models: Uri,
    /// Sent with each request.
    pub(super) headers: HeaderMap,
    pub(super) api_key: Option<Secret>,
    pub(super) bound: OutputBound,
    /// Whether it is sent what OpenAI does not document.
    pub(super) takes_unknown: bool,
    pub(super) first_byte_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) client: HttpClient,
}

impl Upstream {
    /// What asks for a completion.
    pub(super) fn post(&self, request: &ModelRequest) -> Request<Full<Bytes>> {
        let body = request::body(request, self.bound, self.takes_unknown);
        let mut post = self.request(Method::POST, &self.completions, body.into());
        for (name, value) in [("traceparent", &request.trace), ("x-request-id", &request.request_id)] {
            if let Some(value) = value.as_deref().and_then(|value| HeaderValue::from_str(value).ok()) {
                post.headers_mut().insert(name, value);
            }
        }
        post
    }

    /// What asks which models there are.
    pub(super) fn get_models(&self) -> Request<Full<Bytes>> {
        self.request(Method::GET, &self.models, Bytes::new())
    }

    fn request(&self, method: Method, uri: &Uri, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        (*request.method_mut(), *request.uri_mut()) = (method, uri.clone());
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// Refuses an answer that is compressed. Asking again would give, and cost, the same.
    pub(super) fn check_encoding(&self, headers: &HeaderMap) -> Result<(), ModelError> {
        match encoding(headers) {
            None => Ok(()),
            Some(encoding) => Err(self
                .error(
                    ModelErrorKind::Rejected,
                    format_args!("compressed its answer ({encoding}), which was not asked for and cannot be read"),
                )
                .having(Spent::Unknown)),
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
        ModelError::new(kind, message)
    }

    pub(super) fn fault(&self, fault: &Fault) -> ModelError {
        let kind = match fault {
            Fault::Reported(report) => report.kind(None),
            // The same request would be answered alike, and paid for once more.
            Fault::OnlyAudio => ModelErrorKind::Rejected,
            Fault::Unreadable(_)
            | Fault::NotAChunk
            | Fault::TooLong
            | Fault::TooManyCalls
            | Fault::UnknownEnd(_)
            | Fault::Truncated => ModelErrorKind::Transient,
        };
        let status = if let Fault::Reported(report) = fault { report.status() } else { None };
        ModelError { status, ..self.error(kind, fault) }
    }

    pub(super) fn unreachable(&self, error: &HttpError) -> ModelError {
        if error.is_connect_timeout() {
            return self.error(ModelErrorKind::Timeout, "did not accept a connection in time");
        }
        if error.is_tls() {
            return self
                .error(ModelErrorKind::Rejected, format_args!("cannot be trusted or understood in TLS: {error}"));
        }
        let spent = if error.is_connect() { Spent::Nothing } else { Spent::Input };
        // A connection that was kept and is closed just as it is used says nothing about how the server is: the next
        // attempt need not wait.
        ModelError {
            retry_after: error.is_closed().then_some(AT_ONCE),
            spent,
            ..self.error(ModelErrorKind::Transient, format_args!("cannot be reached: {error}"))
        }
    }

    pub(super) fn broken_off(&self, error: &HttpError) -> ModelError {
        self.error(ModelErrorKind::Transient, format_args!("broke off its answer: {error}"))
    }
}

/// How an answer is compressed, where it is.
pub(super) fn encoding(headers: &HeaderMap) -> Option<String> {
    let encoding = headers.get(CONTENT_ENCODING)?.to_str().unwrap_or("unknown").trim();
    let is_plain = encoding.is_empty() || encoding.eq_ignore_ascii_case("identity");
    (!is_plain).then(|| encoding.chars().take(100).collect())
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}
