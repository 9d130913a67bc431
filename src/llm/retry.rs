//! A model that repeats a failed call, as long as the call cost nothing, the upstream is not known to be down, and its calls have
//! earned a retry.
//!
//! A request that was sent may be paid for, and what the model has said would be said again. Then the driver
//! decides, because it knows the budgets and what it passed on.

use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, sleep};

use super::error_class::ErrorClass;
use super::health::UpstreamHealth;
use super::health::call::Call;
use super::offered::OfferedModel;
use super::refusal::Refusal;
use super::{Delta, DeltaStream, Model, ModelError, ModelErrorKind, ModelRequest, Spent, Unsupported};
use crate::types::Message;
use crate::types::pauses::random;
use crate::types::sampling::Sampling;
use crate::types::tool::WrittenCalls;

/// How often and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Most attempts after the first.
    pub retries: u32,
    /// The wait before the first retry; it doubles from one to the next.
    pub base: Duration,
    /// The longest wait of our own choice.
    pub cap: Duration,
    /// No attempt begins later than this after the first one began.
    pub budget: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { retries: 3, base: Duration::from_secs(1), cap: Duration::from_secs(30), budget: Duration::from_secs(45) }
    }
}

/// How long a model is asked again that has another one behind it. Not a setting: the other model is there to be asked.
const BUDGET_BEFORE_FALLBACK: Duration = Duration::from_secs(2);

/// How long a call waits for a model that is known to be down, in place of failing at once. Not a setting: it is about as long as
/// retries take.
const DOWN_BUDGET: Duration = Duration::from_secs(10);
/// The least time between two looks at whether a model is asked again.
const LEAST_WAIT: Duration = Duration::from_millis(50);
/// How much later than the first the last of those calls looks that wait for a model.
const MOST_SPREAD: Duration = Duration::from_secs(1);

impl RetryPolicy {
    /// The policy for a model in whose place another one can be asked: a hiccup is waited for, and no more.
    #[must_use]
    pub fn before_fallback(self) -> Self {
        Self { retries: self.retries.min(1), budget: self.budget.min(BUDGET_BEFORE_FALLBACK), ..self }
    }

    /// How long to wait before retry number `retry`, counted from 1, if it may begin within `left`.
    ///
    /// An upstream that names a wait is taken at its word. Otherwise the wait lies between half and
    /// the whole of its doubling step, by `jitter` from 0 to 1, so that runs that failed together do
    /// not come back together.
    ///
    /// A timeout of a request that was sent is final: the upstream may be busy with it, and would begin anew.
    pub fn delay(&self, retry: u32, error: &ModelError, left: Duration, jitter: f64) -> Option<Duration> {
        let may_pass = match error.kind {
            ModelErrorKind::Transient => true,
            ModelErrorKind::Timeout => error.spent == Spent::Nothing,
            ModelErrorKind::Rejected | ModelErrorKind::ContextLength => false,
        };
        let step = self.base.saturating_mul(2_u32.saturating_pow(retry.saturating_sub(1))).min(self.cap);
        let own = step.mul_f64(0.5 + jitter / 2.0);
        let delay = error.retry_after.filter(|asked| !asked.is_zero()).unwrap_or(own);
        (may_pass && retry <= self.retries && delay < left).then_some(delay)
    }
}

/// A model around another one that repeats calls which failed at no cost, and makes none of a model that is known to be down.
#[derive(Debug)]
pub struct Retrying {
    inner: Arc<dyn Model>,
    policy: RetryPolicy,
    health: Arc<UpstreamHealth>,
}

impl Retrying {
    /// Repeats calls of `inner` by this policy, as the health of its upstream allows.
    #[must_use]
    pub fn new(inner: Arc<dyn Model>, policy: RetryPolicy, health: Arc<UpstreamHealth>) -> Self {
        Self { inner, policy, health }
    }
}

impl Model for Retrying {
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        self.inner.list_models()
    }

    fn stream(&self, request: ModelRequest) -> DeltaStream {
        let policy = if request.has_fallback { self.policy.before_fallback() } else { self.policy };
        if !request.is_repeat {
            self.health.earn_retries();
        }
        Box::pin(attempts(self.inner.clone(), self.health.clone(), policy, request))
    }

    fn refusal(&self, model: &str) -> Option<Refusal> {
        self.health.refusal(model)
    }

    fn take_retry(&self) -> bool {
        self.health.take_retry()
    }

    fn has_elsewhere(&self) -> bool {
        self.inner.has_elsewhere()
    }

    fn written_calls(&self) -> WrittenCalls {
        self.inner.written_calls()
    }

    fn may_answer_in_one_piece(&self) -> bool {
        self.inner.may_answer_in_one_piece()
    }

    fn refuses(&self, sampling: &Sampling, messages: &[Message]) -> Option<Unsupported> {
        self.inner.refuses(sampling, messages)
    }

    fn refuses_part(&self, message: &Message) -> Option<(usize, String)> {
        self.inner.refuses_part(message)
    }

    fn unsent<'s>(&self, model: &str, sampling: &'s Sampling) -> Vec<&'s str> {
        self.inner.unsent(model, sampling)
    }
}

/// What is heard of a call that is repeated as this policy and the health of the upstream allow.
fn attempts(
    inner: Arc<dyn Model>,
    health: Arc<UpstreamHealth>,
    policy: RetryPolicy,
    request: ModelRequest,
) -> impl Stream<Item = Result<Delta, ModelError>> {
    stream! {
        let mut end = Until::new(policy, request.deadline);
        let (mut attempt, mut failed) = (1, None);
        loop {
            let since = Instant::now();
            let mut admitted = health.admit(&request.model, !request.has_fallback).await;
            let refused = admitted.as_ref().err().copied();
            if let Some(refusal) = refused.filter(|refusal| !request.has_fallback && end.wait(refusal).is_some()) {
                yield Ok(Delta::Queued);
                admitted = wait_for(&health, &request.model, end, refusal).await;
                if admitted.is_ok() {
                    yield Ok(Delta::Dequeued { waited: since.elapsed() });
                }
            }
            let call = match admitted {
                Ok(call) => call,
                Err(refusal) => {
                    yield Err(not_made(&health, &refusal, failed));
                    return;
                }
            };
            let (mut call, mut deltas) = (MadeCall::new(call, request.is_repeat), inner.stream(request.clone()));
            let error = loop {
                match deltas.next().await {
                    Some(Ok(delta)) => {
                        if let Delta::Dequeued { waited } = delta {
                            end = end.later(waited, request.deadline);
                        }
                        call.hear(&delta);
                        let last = matches!(delta, Delta::Finished(_));
                        yield Ok(delta);
                        if last {
                            return;
                        }
                    }
                    Some(Err(error)) => break error,
                    None => break ended_early(),
                }
            };
            drop(deltas);
            let error = call.fail(&request, error);
            let delay = policy.delay(attempt, &error, end.left(), random());
            let delay = delay.filter(|_| error.spent == Spent::Nothing && health.take_retry());
            let Some(delay) = delay else {
                yield Err(error);
                return;
            };
            yield Ok(again(attempt, delay, &error));
            attempt += 1;
            failed = Some(error);
            sleep(delay).await;
        }
    }
}

/// Waits until a model is asked again that was refused. Returns the last refusal if that takes too long.
async fn wait_for(
    health: &Arc<UpstreamHealth>,
    model: &str,
    end: Until,
    mut refusal: Refusal,
) -> Result<Call, Refusal> {
    while let Some(delay) = end.wait(&refusal) {
        sleep(delay).await;
        match health.admit(model, true).await {
            Ok(call) => return Ok(call),
            Err(newer) => refusal = newer,
        }
    }
    Err(refusal)
}

/// A call that is made, and what was heard of it.
struct MadeCall {
    call: Call,
    /// Whether it took a retry, as it repeats one that had cost something.
    is_repeat: bool,
    /// Whether its answer began.
    has_begun: bool,
}

impl MadeCall {
    fn new(call: Call, is_repeat: bool) -> Self {
        Self { call, is_repeat, has_begun: false }
    }

    fn hear(&mut self, delta: &Delta) {
        match delta {
            Delta::Retry { .. } | Delta::Queued | Delta::Dequeued { .. } => return,
            Delta::Begun => self.call.note_begin(),
            Delta::Text(_) | Delta::Refusal(_) | Delta::Thinking(_) | Delta::CallArguments { .. } => {
                self.call.note_word();
            }
            Delta::Finished(_) => self.call.note_end(self.is_repeat),
        }
        self.has_begun = true;
    }

    /// What its failure says. An answer that began is neither free nor to be said again, whatever its failure is said to
    /// have cost.
    fn fail(mut self, request: &ModelRequest, error: ModelError) -> ModelError {
        // A call that its caller gave no more time, such as one that found no room until then, says nothing of the model.
        if error.extent.is_of_model() && Instant::now() < request.deadline {
            self.call.note_failure(&error);
        }
        if self.has_begun { error.having(Spent::Unknown) } else { error }
    }
}

/// The failure of a call that is not made, after an attempt that `failed` or none.
fn not_made(health: &UpstreamHealth, refusal: &Refusal, failed: Option<ModelError>) -> ModelError {
    let error = failed.unwrap_or_else(|| health.error(refusal));
    ModelError { retry_after: Some(refusal.for_now), ..error }
}

/// That a call is made again after `delay`, since it failed so.
fn again(attempt: u32, delay: Duration, error: &ModelError) -> Delta {
    Delta::Retry { attempt, delay, kind: error.failure(), cause: error.message.clone() }
}

/// How long a call may wait for another attempt.
#[derive(Debug, Clone, Copy)]
struct Until {
    end: Instant,
    /// The same for a model that is known to be down.
    down: Instant,
}

impl Until {
    fn new(policy: RetryPolicy, deadline: Instant) -> Self {
        let now = Instant::now();
        let end = deadline.min(now + policy.budget);
        Self { end, down: end.min(now + DOWN_BUDGET) }
    }

    /// The same for a call that has waited for its turn: while it waits it makes no attempt.
    fn later(self, waited: Duration, deadline: Instant) -> Self {
        Self { end: deadline.min(self.end + waited), down: deadline.min(self.down + waited) }
    }

    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// How long to wait for a model that is not asked for now, if that is not too long. A limit of its rate passes for certain,
    /// so it is waited for as for any retry. Calls that wait for the same model do not come back together.
    fn wait(&self, refusal: &Refusal) -> Option<Duration> {
        let end = if refusal.class == ErrorClass::RateLimited { self.end } else { self.down };
        let left = end.saturating_duration_since(Instant::now());
        let spread = MOST_SPREAD.min(refusal.for_now / 4).mul_f64(random());
        (refusal.for_now < left).then_some((refusal.for_now + spread).max(LEAST_WAIT))
    }
}

fn ended_early() -> ModelError {
    let message = "the model ended its answer before it was finished";
    ModelError::new(ModelErrorKind::Transient, message).having(Spent::Unknown)
}

#[cfg(test)]
mod tests;
