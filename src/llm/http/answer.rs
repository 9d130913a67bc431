//! Reads an upstream's answer as it arrives: timeouts, kinds of answers, and how they end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_stream::try_stream;
use bytes::Bytes;
use http::Request;
use http::header::CONTENT_TYPE;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::decode::{Decode, Progress};
use super::failure::{Report, refusal, retry_after};
use super::fault::Fault;
use super::fault::MAX_TURN;
use super::upstream::{Upstream, encoding};
use crate::llm::{Delta, DeltaStream, ModelError, ModelErrorKind, ModelTurn, Spent};
use crate::net::client::{Body, Response};
use crate::types::clock::now_ms;

/// Most of an error's body that is read, in bytes.
const MAX_ERROR_BODY: usize = 64 << 10;
/// How long an error's body may take to follow its status, which says most.
const ERROR_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the usage may take to follow the finish reason.
const USAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of the body may take to follow the last event: read, it lets the connection be used again.
const END_TIMEOUT: Duration = Duration::from_millis(10);

/// Sends a request and reads the answer as `decoder` does.
pub fn ask<D: Decode>(upstream: Arc<Upstream>, request: Request<Bytes>, deadline: Instant, decoder: D) -> DeltaStream {
    Box::pin(try_stream! {
        let mut answer = Answer::request(upstream, request, deadline, decoder).await?;
        yield Delta::Begun;
        let mut deltas = Vec::new();
        loop {
            let more = answer.read(&mut deltas).await;
            for delta in deltas.drain(..) {
                yield delta;
            }
            if !more? {
                break;
            }
        }
        yield Delta::Finished(Box::new(answer.finish()?));
    })
}

/// A model's answer while it arrives.
struct Answer<D> {
    upstream: Arc<Upstream>,
    body: Body,
    form: Form,
    decoder: D,
    timer: AnswerTimer,
}

/// How the upstream answers.
enum Form {
    /// As a stream of events.
    Events,
    /// As one JSON object, collected here: it ignores that a stream was asked for.
    Whole(Vec<u8>),
}

impl<D: Decode> Answer<D> {
    /// Sends a request and waits for the head of the answer.
    async fn request(
        upstream: Arc<Upstream>,
        request: Request<Bytes>,
        deadline: Instant,
        decoder: D,
    ) -> Result<Self, ModelError> {
        let mut timer = AnswerTimer::new(upstream.first_byte_timeout, deadline);
        let response = timer.wait_for(&upstream, upstream.client.send(request)).await;
        // Nothing tells how far a request came that took too long.
        let response = response.map_err(|error| error.having(Spent::Input))?;
        let response = response.map_err(|error| upstream.unreachable(&error))?;
        if !response.status.is_success() {
            return Err(refused(&upstream, response, deadline).await);
        }
        // The headers are dropped here: they would keep the memory that they were read into while the model speaks.
        let Response { headers, body, .. } = response;
        upstream.check_encoding(&headers)?;
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let form = if kind.starts_with("application/json") {
            Form::Whole(Vec::new())
        } else if kind.starts_with("text/html") {
            return Err(upstream.is_a_web_page());
        } else {
            Form::Events
        };
        Ok(Self { upstream, body, form, decoder, timer })
    }

    /// Reads what arrives next and adds what it says to `deltas`. Returns whether more may follow;
    /// deltas said before a failure are there as well.
    async fn read(&mut self, deltas: &mut Vec<Delta>) -> Result<bool, ModelError> {
        let arrived = match self.timer.wait_for(&self.upstream, self.body.chunk()).await {
            Ok(Ok(arrived)) => match self.take(arrived, deltas).map_err(|fault| self.upstream.fault(&fault)) {
                // What an upstream says after the end of a turn may take back its calls.
                Err(error) if self.decoder.has_calls() => return Err(error.having(Spent::Unknown)),
                taken => taken,
            },
            Ok(Err(error)) => Err(self.upstream.broken_off(&error)),
            Err(silent) => Err(silent),
        };
        match arrived {
            Ok(Progress::Done) => {
                let end = Instant::now() + END_TIMEOUT;
                // Whether it comes or not makes no difference to the answer.
                let _ = timeout_at(end, self.body.chunk()).await;
                Ok(false)
            }
            Ok(Progress::Spoke | Progress::Silent) => Ok(true),
            Err(_) if self.decoder.is_finished() => Ok(false),
            Err(error) => Err(error.having(Spent::Unknown)),
        }
    }

    /// The turn, once nothing more follows.
    fn finish(self) -> Result<ModelTurn, ModelError> {
        self.decoder.finish().map_err(|fault| self.upstream.fault(&fault).having(Spent::Unknown))
    }

    fn take(&mut self, arrived: Option<Bytes>, deltas: &mut Vec<Delta>) -> Result<Progress, Fault> {
        let progress = match (&mut self.form, arrived) {
            (Form::Events, Some(bytes)) => self.decoder.feed(&bytes, deltas)?,
            (Form::Events, None) => Progress::Done,
            (Form::Whole(body), Some(bytes)) => {
                if body.len() + bytes.len() > MAX_TURN {
                    return Err(Fault::TooLong);
                }
                body.extend_from_slice(&bytes);
                Progress::Spoke
            }
            (Form::Whole(body), None) => {
                self.decoder.feed_whole(body, deltas)?;
                Progress::Done
            }
        };
        if progress == Progress::Spoke || !self.timer.begun {
            let idle = self.upstream.idle_timeout;
            let timeout = if self.decoder.is_finished() { idle.min(USAGE_TIMEOUT) } else { idle };
            self.timer.renew(timeout);
        }
        Ok(progress)
    }
}

/// What an upstream that refused says, as an error.
pub(super) async fn refused(upstream: &Upstream, response: Response, deadline: Instant) -> ModelError {
    let (status, retry_after) = (response.status, retry_after(&response.headers, now_ms()));
    let report = match encoding(&response.headers) {
        Some(encoding) => Report::unreadable(&encoding),
        None => Report::read(&error_body(response, deadline).await),
    };
    let what = refusal(status, &report);
    let (status, retry_after) = (report.status_of(status), retry_after.or(report.retry_after()));
    let (status, spent) = (Some(status.as_u16()), report.spent(status.as_u16()));
    ModelError { status, retry_after, ..upstream.error(report.kind(status), what).having(spent) }
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

/// How long to wait: for the first byte, then between one thing said and the next, and never beyond
/// the deadline.
///
/// One timer serves a whole answer. It is set anew only once it rings, because most waits are short
/// and there is one for each token.
struct AnswerTimer {
    /// When the present phase has taken too long.
    phase_end: Instant,
    deadline: Instant,
    /// Whether any byte of the body arrived.
    begun: bool,
    timer: Pin<Box<Sleep>>,
}

impl AnswerTimer {
    fn new(first_byte: Duration, deadline: Instant) -> Self {
        let phase_end = Instant::now() + first_byte;
        Self { phase_end, deadline, begun: false, timer: Box::pin(sleep_until(phase_end.min(deadline))) }
    }

    fn until(&self) -> Instant {
        self.phase_end.min(self.deadline)
    }

    /// Something was said: the wait for more begins.
    fn renew(&mut self, idle: Duration) {
        self.begun = true;
        self.phase_end = Instant::now() + idle;
        if self.until() < self.timer.deadline() {
            let until = self.until();
            self.timer.as_mut().reset(until);
        }
    }

    /// Waits, or fails when it took too long.
    async fn wait_for<T>(&mut self, upstream: &Upstream, what: impl Future<Output = T>) -> Result<T, ModelError> {
        tokio::pin!(what);
        loop {
            tokio::select! {
                // The timer first: a flood of empty chunks must not keep it from being looked at.
                biased;
                () = self.timer.as_mut() => {
                    let (now, until) = (Instant::now(), self.until());
                    if now < until {
                        self.timer.as_mut().reset(until);
                    } else {
                        return Err(upstream.error(ModelErrorKind::Timeout, self.complaint(now)));
                    }
                }
                done = &mut what => return Ok(done),
            }
        }
    }

    fn complaint(&self, now: Instant) -> &'static str {
        match (now >= self.deadline, self.begun) {
            (true, _) => "had not finished its answer when the time for it was up",
            (false, false) => "did not begin to answer in time",
            (false, true) => "fell silent in the middle of its answer",
        }
    }
}
