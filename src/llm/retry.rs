//! A model that repeats a failed call, as long as the call cost nothing.
//!
//! A request that was sent may be paid for, and what the model has said would be said again. Then the driver
//! decides, because it knows the budgets and what it passed on.

use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep};

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

/// A model around another one that repeats calls which failed at no cost.
#[derive(Debug)]
pub struct Retrying {
    inner: Arc<dyn Model>,
    policy: RetryPolicy,
}

impl Retrying {
    /// Repeats calls of `inner` by this policy.
    #[must_use]
    pub fn new(inner: Arc<dyn Model>, policy: RetryPolicy) -> Self {
        Self { inner, policy }
    }
}

impl Model for Retrying {
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<String>, ModelError>> {
        self.inner.list_models()
    }

    fn stream(&self, request: ModelRequest) -> DeltaStream {
        let inner = Arc::clone(&self.inner);
        let policy = if request.has_fallback { self.policy.before_fallback() } else { self.policy };
        Box::pin(stream! {
            let mut end = request.deadline.min(Instant::now() + policy.budget);
            for attempt in 1.. {
                let mut deltas = inner.stream(request.clone());
                let mut has_begun = false;
                let error = loop {
                    match deltas.next().await {
                        Some(Ok(delta)) => {
                            if let Delta::Dequeued { waited } = delta {
                                // While a call waits for its turn it makes no attempt.
                                end = request.deadline.min(end + waited);
                            }
                            has_begun |= !matches!(delta, Delta::Retry { .. } | Delta::Queued | Delta::Dequeued { .. });
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
                // An answer that began is neither free nor to be said again, whatever its failure is said to have cost.
                let error = if has_begun { error.having(Spent::Unknown) } else { error };
                let left = end.saturating_duration_since(Instant::now());
                let delay = policy.delay(attempt, &error, left, random());
                let delay = delay.filter(|_| error.spent == Spent::Nothing);
                let Some(delay) = delay else {
                    yield Err(error);
                    return;
                };
                yield Ok(Delta::Retry { attempt, delay, kind: error.failure(), cause: error.message });
                sleep(delay).await;
            }
        })
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

    fn unsent<'s>(&self, sampling: &'s Sampling) -> Vec<&'s str> {
        self.inner.unsent(sampling)
    }
}

fn ended_early() -> ModelError {
    let message = "the model ended its answer before it was finished";
    ModelError::new(ModelErrorKind::Transient, message).having(Spent::Unknown)
}

#[cfg(test)]
mod tests;
