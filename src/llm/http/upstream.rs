//! One upstream: how it is called, and how its failures are worded.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri};
use url::{Url, form_urlencoded};
use xxhash_rust::xxh3::xxh3_64;

use super::call::{Call, Uris};
use super::failure::Report;
use super::fault::Fault;
use super::pools::{PoolState, Pools};
use crate::config::{HttpUpstream, Secret};
use crate::llm::health::UpstreamHealth;
use crate::llm::{Extent, ModelError, ModelErrorKind, ModelRequest, Spent};
use crate::net::client::{HttpClient, HttpError, common_headers};
use crate::net::correlation::Correlation;
use crate::types::{TraceContext, TraceParent};

/// Longest message of an error, in characters.
pub const MAX_MESSAGE: usize = 500;
/// The wait before an attempt that need not wait.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Why an upstream cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// Another scheme than HTTP.
    #[error("the base_url must begin with http:// or https://")]
    BaseUrl,
    /// The key holds line ends or other control characters.
    #[error("the key holds characters that no header can carry")]
    ApiKey,
    /// Another header holds such characters.
    #[error("a header holds characters that no header can carry")]
    Header,
    /// The address is longer than any server takes with the parameters of the query.
    #[error("the query is too long")]
    Query,
    /// It is part of a program, and the program does not have it.
    #[error("the program has no such model")]
    Absent,
}

/// What an upstream is reached with.
#[derive(Debug, Clone)]
pub struct Access {
    /// Comes from [`http_client`](super::http_client), which decides on connecting.
    pub client: HttpClient,
    /// What is remembered of its addresses and keys.
    pub state: Arc<PoolState>,
    /// Which retries its calls have earned; without it they are not bounded.
    pub health: Option<Arc<UpstreamHealth>>,
}

impl From<HttpClient> for Access {
    fn from(client: HttpClient) -> Self {
        Self { client, state: Arc::default(), health: None }
    }
}

/// An upstream, ready to be asked.
pub struct Upstream {
    name: String,
    /// What its dialect is called in a sentence: `a chat completions API`.
    api: &'static str,
    models: Uris,
    /// Sent with each request.
    headers: HeaderMap,
    api_keys: Vec<Secret>,
    /// Part of the address of each request.
    query: Option<Secret>,
    /// What else no error tells.
    secrets: Vec<Secret>,
    /// Where it has several addresses or keys.
    pub(super) pools: Option<Pools>,
    pub(super) first_byte_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) client: HttpClient,
    health: Option<Arc<UpstreamHealth>>,
}

impl Upstream {
    /// Sets an upstream up that speaks `api`, and lists its models at `models`. Nothing is sent yet.
    pub fn new(
        name: &str,
        api: &'static str,
        config: &HttpUpstream,
        models: Uris,
        access: Access,
    ) -> Result<Self, UpstreamError> {
        if !config.urls().all(|url| matches!(url.scheme(), "http" | "https")) {
            return Err(UpstreamError::BaseUrl);
        }
        let mut headers = common_headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        for (name, value) in &config.headers {
            let mut value = HeaderValue::try_from(value.whole.expose()).map_err(|_| UpstreamError::Header)?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let query = query(config);
        if let Some(query) = &query {
            models.with(|uri| with_query(uri, query.expose())).ok_or(UpstreamError::Query)?;
        }
        Ok(Self {
            name: name.to_owned(),
            api,
            models,
            headers,
            api_keys: config.api_keys.clone(),
            query,
            secrets: secrets(config),
            pools: Pools::new(name, config, access.state),
            first_byte_timeout: config.first_byte_timeout,
            idle_timeout: config.idle_timeout,
            client: access.client,
            health: access.health,
        })
    }

    /// The same upstream, sent its key, if there is one, in this header after `prefix`.
    pub fn with_key(mut self, header: HeaderName, prefix: &str) -> Result<Self, UpstreamError> {
        let value = |key: &Secret| {
            let mut value = HeaderValue::try_from(format!("{prefix}{}", key.expose()))?;
            value.set_sensitive(true);
            Ok(value)
        };
        let values: Result<Vec<_>, http::Error> = self.api_keys.iter().map(value).collect();
        let mut values = values.map_err(|_| UpstreamError::ApiKey)?;
        match (&mut self.pools, values.len()) {
            (Some(pools), 2..) => pools.add_keys(&self.api_keys, header, values),
            _ => self.headers.extend(values.pop().map(|value| (header, value))),
        }
        Ok(self)
    }

    /// The same upstream, sent this header with each request.
    #[must_use]
    pub fn with_header(mut self, header: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(header, value);
        self
    }

    /// What asks for an answer: `body`, made of `request`.
    pub fn post(&self, uris: Uris, body: String, request: &ModelRequest) -> Call {
        let mut post = self.request(Method::POST, body.into());
        let parent = request.trace.as_ref().map(TraceContext::parent);
        let correlation = Correlation {
            trace_parent: parent.as_ref().map(TraceParent::as_str),
            trace_state: request.trace.as_ref().and_then(|trace| trace.state.as_deref()),
            request_id: request.request_id.as_deref(),
        };
        correlation.add_to(post.headers_mut());
        let call = Call::new(self.with_query(uris), post, request.affinity, xxh3_64(request.model.as_bytes()));
        call.paired(request.pairing.clone())
    }

    /// What asks which models there are.
    pub(super) fn get_models(&self) -> Call {
        Call::new(self.with_query(self.models.clone()), self.request(Method::GET, Bytes::new()), 0, 0)
    }

    /// Whether a second call can go to another address than the first, or with another key.
    pub fn has_elsewhere(&self) -> bool {
        self.pools.is_some()
    }

    /// The same addresses with the declared parameters.
    fn with_query(&self, uris: Uris) -> Uris {
        let with_query = self.query.as_ref().and_then(|query| uris.with(|uri| with_query(uri, query.expose())));
        with_query.unwrap_or(uris)
    }

    fn request(&self, method: Method, body: Bytes) -> Request<Bytes> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// Takes a retry, if its calls have earned one.
    pub(super) fn take_retry(&self) -> bool {
        self.health.as_ref().is_none_or(|health| health.take_retry())
    }

    /// The error of an upstream that answers with a web page.
    pub(super) fn is_a_web_page(&self) -> ModelError {
        let what = format!("answered with a web page: its base_url is not that of {}", self.api);
        self.error(ModelErrorKind::Rejected, what)
    }

    /// The error of an upstream whose list of models cannot be read.
    pub(super) fn lists_otherwise(&self) -> ModelError {
        self.error(ModelErrorKind::Rejected, format_args!("does not list its models as {} does", self.api))
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
        for key in self.api_keys.iter().map(Secret::expose).filter(|key| !key.is_empty()) {
            message = message.replace(key, "[key]");
        }
        for secret in &self.secrets {
            message = message.replace(secret.expose(), "[secret]");
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
            | Fault::NotAnEvent(_)
            | Fault::UnusableCall(_)
            | Fault::TooLong
            | Fault::TooManyCalls
            | Fault::TooManyItems
            | Fault::UnknownEnd(_)
            | Fault::Truncated => ModelErrorKind::Transient,
        };
        let report = if let Fault::Reported(report) = fault { Some(report) } else { None };
        let (status, retry_after) = (report.and_then(Report::status), report.and_then(Report::retry_after));
        let (usage, refuses_reasoning) =
            (report.and_then(Report::usage), report.is_some_and(Report::refuses_reasoning));
        let extent = if matches!(fault, Fault::UnusableCall(_)) { Extent::Answer } else { Extent::Model };
        let error = self.error(kind, fault).having(fault.spent());
        let told = report.and_then(Report::told);
        ModelError { status, retry_after, extent, usage, refuses_reasoning, told, ..error }
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
        let (retry_after, extent) =
            if error.is_closed() { (Some(AT_ONCE), Extent::Connection) } else { (None, Extent::Model) };
        let error = self.error(ModelErrorKind::Transient, format_args!("cannot be reached: {error}"));
        ModelError { retry_after, spent, extent, ..error }
    }

    pub(super) fn broken_off(&self, error: &HttpError) -> ModelError {
        self.error(ModelErrorKind::Transient, format_args!("broke off its answer: {error}"))
    }
}

/// The declared parameters of the address.
fn query(config: &HttpUpstream) -> Option<Secret> {
    let pairs = config.query.iter().map(|(name, value)| (name.as_str(), value.whole.expose()));
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    (!query.is_empty()).then(|| Secret::new(query))
}

/// The address with these parameters after its own.
fn with_query(uri: &Uri, query: &str) -> Option<Uri> {
    let before = if uri.query().is_some() { '&' } else { '?' };
    Uri::try_from(format!("{uri}{before}{query}")).ok()
}

/// What of the headers and of the query is secret, as it is written and as the address has it. The longest come first, as one may
/// be part of another.
fn secrets(config: &HttpUpstream) -> Vec<Secret> {
    let headers = config.headers.iter().filter_map(|(_, value)| value.secret.clone());
    let query = config.query.iter().filter_map(|(_, value)| value.secret.clone());
    let encoded =
        |secret: &Secret| Secret::new(form_urlencoded::byte_serialize(secret.expose().as_bytes()).collect::<String>());
    let mut all: Vec<Secret> = headers.chain(query).flat_map(|secret| [encoded(&secret), secret]).collect();
    all.sort_by_key(|secret| Reverse(secret.expose().len()));
    all
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

/// The URL of `path` at an upstream.
pub fn endpoint(base: &Url, path: &[&str]) -> Result<Uri, UpstreamError> {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    url.set_fragment(None);
    Uri::try_from(url.as_str()).map_err(|_| UpstreamError::BaseUrl)
}
