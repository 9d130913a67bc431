//! From a call to the head of its answer: which address and key it gets, and what becomes of it if they fail.
//!
//! A call that failed at no cost goes at once to another address, or to the same one with another key, each of which it
//! tries once at most. What may have cost something is not sent again here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::answer_timer::AnswerTimer;
use super::call::Call;
use super::failure::{Report, refusal};
use super::pools::{Exhausted, KeyFault, Pools};
use super::rate_limit::reset;
use super::upstream::{Upstream, encoding};
use crate::llm::{ModelError, ModelErrorKind, Spent};
use crate::net::client::{Body, Response};
use crate::net::retry_after::retry_after;
use crate::types::clock::now_ms;

/// Most of an error's body that is read, in bytes.
const MAX_ERROR_BODY: usize = 64 << 10;
/// How long an error's body may take to follow its status, which says most.
const ERROR_TIMEOUT: Duration = Duration::from_secs(1);

/// An answer that began.
pub(super) struct Opened {
    pub(super) seat: Seat,
    pub(super) body: Body,
    pub(super) form: Form,
    pub(super) timer: AnswerTimer,
}

/// How the upstream answers.
pub(super) enum Form {
    /// As a stream of events.
    Events,
    /// As one JSON object, collected here: it ignores that a stream was asked for.
    Whole(Vec<u8>),
}

/// A call's place at an address of an upstream, until it is dropped.
pub(super) struct Seat {
    pub(super) upstream: Arc<Upstream>,
    address: usize,
}

impl Seat {
    /// Says that the answer came whole.
    pub(super) fn finish(&self) {
        if let Some(pools) = &self.upstream.pools {
            pools.finish(self.address);
        }
    }

    /// Says that the answer broke off for this reason. Returns the error with how far it reaches.
    pub(super) fn break_off(&self, error: ModelError) -> ModelError {
        let Some(pools) = &self.upstream.pools else { return error };
        pools.break_off(self.address, &error);
        ModelError { extent: pools.extent(self.address, &error), ..error }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(pools) = &self.upstream.pools {
            pools.leave(self.address);
        }
    }
}

/// Why a call got no answer, and when the limit on the use of its key ends, if an answer says that alone.
struct Failed {
    error: ModelError,
    reset: Option<Duration>,
}

impl From<ModelError> for Failed {
    fn from(error: ModelError) -> Self {
        Self { error, reset: None }
    }
}

/// Makes a call, and waits for the head of its answer.
pub(super) async fn open(upstream: Arc<Upstream>, call: Call, deadline: Instant) -> Result<Opened, ModelError> {
    if upstream.pools.is_some() {
        return Box::pin(open_somewhere(upstream, call, deadline)).await;
    }
    attempt(Seat { upstream, address: 0 }, call.into_request(), deadline).await.map_err(|failed| failed.error)
}

/// The same at an upstream that has several addresses or keys.
async fn open_somewhere(upstream: Arc<Upstream>, call: Call, deadline: Instant) -> Result<Opened, ModelError> {
    let Some(pools) = &upstream.pools else { return Err(upstream.error(ModelErrorKind::Rejected, "has no pools")) };
    let (mut tried, mut last) = (pools.tried_by_first(&call.pairing), None);
    loop {
        let choice = match pools.enter(call.affinity, call.model, &tried) {
            Ok(choice) => choice,
            Err(exhausted) => return Err(nothing_left(&upstream, pools, exhausted, last)),
        };
        pools.note(choice, &call.pairing);
        let seat = Seat { upstream: upstream.clone(), address: choice.address };
        match attempt(seat, call.request(pools, choice), deadline).await {
            Ok(opened) => {
                pools.rest_forbidden_keys(call.model, &tried);
                return Ok(opened);
            }
            // The run's time was up: that is nothing about the upstream.
            Err(Failed { error, .. }) if Instant::now() >= deadline => return Err(error),
            Err(Failed { error, reset }) => {
                let may_succeed = pools.fail(choice, call.model, &error, reset, &mut tried);
                let message = format!("{} ({})", error.message, pools.place(choice));
                let error = ModelError { message, extent: pools.extent(choice.address, &error), ..error };
                if !may_succeed || error.spent != Spent::Nothing {
                    return Err(error);
                }
                if pools.next_is_retry(&tried) && !upstream.take_retry() {
                    return Err(error);
                }
                last = Some(error);
            }
        }
    }
}

/// The error of a call that nothing is left for; `last` is that of its last attempt.
fn nothing_left(upstream: &Upstream, pools: &Pools, why: Exhausted, last: Option<ModelError>) -> ModelError {
    let Exhausted::Keys(Some((wait, fault))) = why else {
        return last.unwrap_or_else(|| upstream.error(ModelErrorKind::Transient, "has no address left to ask"));
    };
    let (kind, status) = match fault {
        KeyFault::RateLimit => (ModelErrorKind::Transient, StatusCode::TOO_MANY_REQUESTS),
        KeyFault::Quota => (ModelErrorKind::Rejected, StatusCode::PAYMENT_REQUIRED),
        KeyFault::Refused => (ModelErrorKind::Rejected, StatusCode::UNAUTHORIZED),
        KeyFault::Forbidden => (ModelErrorKind::Rejected, StatusCode::FORBIDDEN),
    };
    let (count, seconds) = (pools.key_count(), wait.as_secs_f64().ceil());
    let rest = format!("all {count} keys are left out after failures, the first for {seconds} s");
    let message = match last {
        Some(last) => format!("{}; {rest}", last.message),
        None => upstream.error(kind, format_args!("cannot be asked: {rest}")).message,
    };
    ModelError { status: Some(status.as_u16()), retry_after: Some(wait), ..ModelError::new(kind, message) }
}

/// Sends a request and waits for the head of the answer.
async fn attempt(seat: Seat, request: Request<Bytes>, deadline: Instant) -> Result<Opened, Failed> {
    let upstream = &seat.upstream;
    let mut timer = AnswerTimer::new(upstream.first_byte_timeout, deadline);
    let response = timer.wait_for(upstream, upstream.client.send(request)).await;
    // Nothing tells how far a request came that took too long.
    let response = response.map_err(|error| error.having(Spent::Input))?;
    let response = response.map_err(|error| upstream.unreachable(&error))?;
    if !response.status.is_success() {
        let is_limited = upstream.pools.is_some() && response.status == StatusCode::TOO_MANY_REQUESTS;
        let reset = if is_limited { reset(&response.headers, now_ms()) } else { None };
        return Err(Failed { error: refused(upstream, response, deadline).await, reset });
    }
    // The headers are dropped here: they would keep the memory that they were read into while the model speaks.
    let Response { headers, body, .. } = response;
    upstream.check_encoding(&headers)?;
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let form = if kind.starts_with("application/json") {
        Form::Whole(Vec::new())
    } else if kind.starts_with("text/html") {
        return Err(upstream.is_a_web_page().into());
    } else {
        Form::Events
    };
    Ok(Opened { seat, body, form, timer })
}

/// What an upstream that refused says, as an error.
async fn refused(upstream: &Upstream, response: Response, deadline: Instant) -> ModelError {
    let (status, retry_after) = (response.status, retry_after(&response.headers, now_ms()));
    let report = match encoding(&response.headers) {
        Some(encoding) => Report::unreadable(&encoding),
        None => Report::read(&error_body(response, deadline).await),
    };
    let what = refusal(status, &report);
    let (status, retry_after) = (report.status_of(status), retry_after.or(report.retry_after()));
    let (status, spent) = (Some(status.as_u16()), report.spent(status.as_u16()));
    let (refuses_reasoning, told) = (report.refuses_reasoning(), report.told());
    ModelError {
        status,
        retry_after,
        refuses_reasoning,
        told,
        ..upstream.error(report.kind(status), what).having(spent)
    }
}

/// As much of the body of an error as is read.
async fn error_body(mut response: Response, deadline: Instant) -> Vec<u8> {
    let until = deadline.min(Instant::now() + ERROR_TIMEOUT);
    let mut body = Vec::new();
    // A body that does not arrive leaves the status to speak for itself.
    while let Ok(Ok(Some(bytes))) = timeout_at(until, response.body.chunk()).await {
        let room = MAX_ERROR_BODY - body.len();
        body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if body.len() == MAX_ERROR_BODY {
            break;
        }
    }
    body
}
