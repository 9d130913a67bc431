//! A service behind tools: what all requests to it have, and what its answers mean.

use std::fmt;
use std::time::Duration;

use ::http::header::{HeaderMap, HeaderName, HeaderValue};
use ::http::uri::Authority;
use ::http::{Request, StatusCode};
use bytes::Bytes;

use super::answer::{self, Answer, Unreadable};
use super::identity;
use super::later::AnswersLater;
use crate::config::{Secret, SentIdentity};
use crate::failpoint;
use crate::net::client::{HttpClient, HttpError, common_headers};
use crate::net::correlation::Correlation;
use crate::tools::{CallContext, ToolAnswer, ToolError};
use crate::types::conversation::Part;
use crate::types::{TraceContext, TraceParent};

// What the service is told of a call. Names that are made at run time are checked letter by letter.
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
static CALL_ID: HeaderName = HeaderName::from_static("x-loopgate-call-id");
static RUN_ID: HeaderName = HeaderName::from_static("x-loopgate-run-id");
static STEP: HeaderName = HeaderName::from_static("x-loopgate-step");
static FENCE: HeaderName = HeaderName::from_static("x-loopgate-fence");
static DEADLINE_MS: HeaderName = HeaderName::from_static("x-loopgate-deadline-ms");

/// Why a tool cannot be set up, in one sentence without secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HttpToolError(pub String);

/// A service, and how it is asked.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) client: HttpClient,
    headers: HeaderMap,
    pub(super) send_identity: SentIdentity,
    max_response_bytes: usize,
    /// How it may answer later, if it may. Boxed, as few do.
    answers_later: Option<Box<AnswersLater>>,
}

impl Service {
    /// A service that gets these headers with each request. Fails if one of them cannot be sent.
    pub(super) fn new(
        client: HttpClient,
        headers: &[(HeaderName, Secret)],
        send_identity: SentIdentity,
        max_response: u64,
    ) -> Result<Self, HttpToolError> {
        let own = headers.iter().map(|(name, value)| {
            let sent = HeaderValue::from_str(value.expose());
            let mut sent = sent.map_err(|_| HttpToolError(format!("the header {name} cannot be sent")))?;
            sent.set_sensitive(true);
            Ok((name.clone(), sent))
        });
        let mut headers = common_headers();
        headers.extend(own.collect::<Result<HeaderMap, HttpToolError>>()?);
        let max_response_bytes = usize::try_from(max_response).unwrap_or(usize::MAX);
        Ok(Self { client, headers, send_identity, max_response_bytes, answers_later: None })
    }

    /// The same, which may answer later if this is given.
    pub(super) fn answering_later(self, answers_later: Option<AnswersLater>) -> Self {
        Self { answers_later: answers_later.map(Box::new), ..self }
    }

    /// How long after a call its answer may come, if it may come later.
    pub(super) fn answers_within(&self) -> Option<Duration> {
        self.answers_later.as_ref().map(|later| later.timeout)
    }

    /// Whether it is told anything of a run's caller.
    pub(super) fn tells_caller(&self) -> bool {
        self.send_identity != SentIdentity::default()
    }

    /// The headers of a call: the operator's, and what the service should know of the call.
    pub(super) fn headers(&self, context: &CallContext) -> Result<HeaderMap, ToolError> {
        let mut headers = self.headers.clone();
        let id = |text: &str| {
            HeaderValue::from_str(text).map_err(|_| ToolError::Failed("The call's id fits no header.".into()))
        };
        headers.insert(&IDEMPOTENCY_KEY, id(context.call.as_str())?);
        headers.insert(&CALL_ID, id(context.call.as_str())?);
        headers.insert(&RUN_ID, id(context.run.as_str())?);
        headers.insert(&STEP, HeaderValue::from(context.step));
        headers.insert(&FENCE, HeaderValue::from(context.fence));
        let remaining_ms = u64::try_from(context.timeout.as_millis()).unwrap_or(u64::MAX);
        headers.insert(&DEADLINE_MS, HeaderValue::from(remaining_ms));
        let parent = context.trace.as_ref().map(TraceContext::parent);
        let correlation = Correlation {
            trace_parent: parent.as_ref().map(TraceParent::as_str),
            trace_state: context.trace.as_ref().and_then(|trace| trace.state.as_deref()),
            request_id: context.request_id.as_deref(),
        };
        correlation.add_to(&mut headers);
        identity::add(&mut headers, &self.send_identity, context)?;
        if let (Some(later), Some(token)) = (&self.answers_later, &context.callback_token) {
            later.add_to(&mut headers, &context.call, token);
        }
        Ok(headers)
    }

    /// Sends the request of a call of the tool `name`, and says what came of it.
    pub(super) async fn call(
        &self,
        name: &str,
        request: Request<Bytes>,
        context: &CallContext,
    ) -> Result<ToolAnswer, ToolError> {
        let address = Address(request.uri().authority().cloned());
        let response = self.client.send(request).await.map_err(|error| unanswered(name, &address, &error, context))?;
        failpoint::hit("tool.answering");
        let status = response.status;
        if status == StatusCode::ACCEPTED && self.answers_later.is_some() && context.callback_token.is_some() {
            // What it says beside that is for nobody, and might not end.
            return Ok(ToolAnswer { is_pending: true, status: Some(status.as_u16()), ..ToolAnswer::default() });
        }
        let answer = answer::read(response, self.max_response_bytes, &context.progress).await;
        let answer = answer.map_err(|error| unreadable(name, status, error, context))?;
        if is_of_gateway(status) {
            let page = answer.parts.first().map_or_else(String::new, |part| format!(": {}", clip(&part.in_words())));
            return Err(ToolError::Lost(format!(
                "The service behind `{name}` was called, and its answer did not arrive. HTTP {status}{page}"
            )));
        }
        Ok(judge(status, answer))
    }
}

/// Host and port of a service, without a name and a password.
struct Address(Option<Authority>);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(authority) = &self.0 else { return Ok(()) };
        f.write_str(authority.host())?;
        authority.port_u16().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// What the model is told where no answer came.
fn unanswered(name: &str, address: &Address, error: &HttpError, context: &CallContext) -> ToolError {
    // Of all failures only this one is certain to have come before the service got the request.
    let was_reached = !error.is_connect();
    let (run, call) = (&context.run, &context.call);
    tracing::warn!(%run, %call, tool = name, %address, was_reached, %error, "an HTTP tool gave no answer");
    // A server that refuses us later has not read the request, as far as it keeps to the rules.
    if error.is_tls() && !was_reached {
        ToolError::Failed(format!(
            "The service behind `{name}` cannot be trusted or understood in TLS. Nothing was sent."
        ))
    } else if was_reached {
        ToolError::Lost(format!("The service behind `{name}` was called, and the connection broke before it answered."))
    } else {
        ToolError::Failed(format!("The service behind `{name}` could not be reached. Nothing was sent."))
    }
}

/// What the model is told of an answer that could not be read.
fn unreadable(name: &str, status: StatusCode, error: Unreadable, context: &CallContext) -> ToolError {
    let why = match error {
        Unreadable::Broken(error) => {
            tracing::warn!(run = %context.run, call = %context.call, tool = name, %error, "an HTTP tool's answer broke off");
            format!("The service behind `{name}` broke off its answer, HTTP {status}.")
        }
        Unreadable::Compressed(encoding) => format!(
            "The service behind `{name}` answered HTTP {status}, but compressed its answer ({encoding}), which was not asked \
             for and cannot be read."
        ),
    };
    // A status of failure says what came of the call, whatever its reasons were. One of success does not: only
    // the body may tell that the service did nothing.
    if status.is_success() || is_of_gateway(status) { ToolError::Lost(why) } else { ToolError::Failed(why) }
}

/// Whether a gateway answers in place of the service, which it asked and of which it got no answer that it could pass on.
/// So it is unknown what the service did. With 503, 429 and 425 a service or gateway says that it does not do what it was
/// asked, and with 408 that it never got all of it.
fn is_of_gateway(status: StatusCode) -> bool {
    // A widespread gateway says 520, 522 or 524 in place of 502 and 504.
    matches!(status.as_u16(), 502 | 504 | 520 | 522 | 524)
}

/// The beginning of a gateway's page.
fn clip(page: &str) -> &str {
    const MOST: usize = 1_000;
    &page[..page.floor_char_boundary(MOST)]
}

/// What the model is told of an answer, by its status.
fn judge(status: StatusCode, Answer { parts, bytes }: Answer) -> ToolAnswer {
    let parts = match parts.first() {
        _ if status.is_redirection() => {
            vec![Part::text(format!("HTTP {status}: the service redirects elsewhere, which is not followed."))]
        }
        None => vec![Part::text(format!("HTTP {status}, without content."))],
        Some(_) if status.is_success() => parts,
        Some(part) => vec![Part::text(format!("HTTP {status}: {}", part.in_words()))],
    };
    let is_error = !status.is_success();
    ToolAnswer { parts, is_error, bytes, status: Some(status.as_u16()), ..ToolAnswer::default() }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("headers", &self.headers.keys().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}
