//! Ends a step whose model call failed: the same model is asked again, or another one, or the run stops.

use std::time::Duration;

use tokio::time::Instant;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::steps::{compact, fall_back};
use crate::agent::machine::budget::{estimated_usage, partial_usage, whole_usage};
use crate::agent::machine::{Lack, NextModel, Run};
use crate::llm::error_class::ErrorClass;
use crate::llm::retry::RetryPolicy;
use crate::llm::{ModelError, ModelErrorKind, Spent};
use crate::types::context::{ContextEvent, WindowLearned};
use crate::types::event::{DiscardReason, Reservation};
use crate::types::fallback::FellBack;
use crate::types::pauses::{random, spread};
use crate::types::{Event, RunError, StopReason, Usage, Used};

/// How long a run waits for a retry that its model's calls have not earned yet. Not a setting: it is as long as retries of a call
/// take at most.
const RETRY_WAIT: Duration = Duration::from_secs(45);
/// How often it looks.
const RETRY_POLL: Duration = Duration::from_millis(500);

/// What follows a call that failed.
enum Next {
    /// The same model is asked again after a pause.
    Again(Duration),
    /// The same model is asked again once its calls have earned a retry.
    OnceEarned,
    /// Another model is asked.
    Other(Box<FellBack>),
    /// The same model is asked again, once the conversation is shortened that it refused as too long.
    Shortened(Box<WindowLearned>),
    /// The run stops, as these other models are not asked.
    Stop(Vec<String>),
}

/// Voids the step of a call that failed and charges what the call may have cost; then pauses where the run may
/// ask again, goes on with another model, or stops the run. `closing` tells whether the call was to close the run.
pub async fn fail_step(
    driver: &mut Driver,
    answer_bytes: usize,
    (reserve, bound, closing): (Reservation, Option<u64>, bool),
    error: &ModelError,
) -> Result<(), Exit> {
    let (run, has_spoken) = (driver.recorder.run(), answer_bytes > 0);
    let (step, price) = (run.step(), run.model().price);
    let charge = |goes_on| match (if has_spoken { Spent::Unknown } else { error.spent }, error.usage) {
        (Spent::Nothing, _) => (Usage::default(), Used::default()),
        (Spent::Input, _) => (estimated_usage(reserve, 0), Used::default()),
        (Spent::Unknown, Some(told)) => (told, Used::default()),
        (Spent::Unknown, None) if goes_on => partial_usage(reserve, bound, &price, answer_bytes),
        (Spent::Unknown, None) => (whole_usage(reserve, bound, answer_bytes), Used::default()),
    };
    let next = next(driver, (has_spoken, closing), charge(true).0, error);
    let (usage, unconfirmed) = charge(!matches!(next, Next::Stop(_)));
    if let Next::Stop(skipped) = &next {
        stop(driver, error, has_spoken, skipped);
    }
    if let Next::Again(_) | Next::OnceEarned = next {
        let (run, cause) = (&driver.recorder.run().spec().id, run_error(error, has_spoken).message);
        tracing::warn!(%run, step, %cause, "a model call failed; the run asks again");
    }
    let reason = if has_spoken { DiscardReason::StreamBroke } else { DiscardReason::NoAnswer };
    let discarded = Event::StepDiscarded { step, reason, usage, unconfirmed };
    match next {
        Next::Stop(_) => driver.end_step(reserve, discarded).await,
        Next::OnceEarned => {
            driver.end_step(reserve, discarded).await?;
            driver.recorder.flush().await?;
            if !earns_retry(driver).await {
                stop(driver, error, has_spoken, &[]);
            }
            Ok(())
        }
        Next::Shortened(learned) => {
            let (run, model, window) = (&driver.recorder.run().spec().id, &learned.model, learned.window);
            tracing::warn!(%run, %model, window, "the upstream refused the conversation as too long; it is shortened");
            let learned = Event::Context(Box::new(ContextEvent::WindowLearned(*learned)));
            driver.end_step_and(reserve, discarded, Some(learned)).await
        }
        Next::Other(fell_back) => fall_back::after_step(driver, (reserve, discarded), fell_back).await,
        Next::Again(pause) => {
            driver.end_step(reserve, discarded).await?;
            if !pause.is_zero() {
                driver.recorder.flush().await?;
                // An interruption is seen before the next step.
                let _ = tokio::time::timeout(pause, driver.signals.interrupted()).await;
            }
            Ok(())
        }
    }
}

/// What follows a call that failed. The same model is asked again before another one is, but only once, and only if a retry
/// is earned. A closing answer is not asked of another model, which must fit the budgets
/// once what the call has `taken` is charged.
fn next(driver: &Driver, (has_spoken, closing): (bool, bool), taken: Usage, error: &ModelError) -> Next {
    let run = driver.recorder.run();
    let again = pause_before_next(driver, has_spoken, error);
    let repeat = |pause| driver.model.take_retry().then_some(Next::Again(pause));
    let learned = if closing || has_spoken { None } else { compact::learned(run, error) };
    let shortened = |learned| Next::Shortened(Box::new(learned));
    let is_of_model = error.class().concerns_the_model_alone() && (!has_spoken || run.may_discard());
    let may_fall_back = !closing && is_of_model && run.has_fallback();
    if (!may_fall_back || run.failures() == 0)
        && let Some(next) = again.and_then(repeat)
    {
        return next;
    }
    if !may_fall_back {
        let or_stop = || learned.map_or_else(|| Next::Stop(Vec::new()), shortened);
        return again.map_or_else(or_stop, |_| Next::OnceEarned);
    }
    let lack = if error.class() == ErrorClass::ContextLength { Lack::Window } else { Lack::Answer };
    let NextModel { model, skipped } = run.next_model_after(taken, lack, |model| fall_back::refusal(driver, model));
    match (model, again) {
        (Some(to), _) => {
            let (kind, cause) = (error.failure(), run_error(error, has_spoken).message);
            Next::Other(Box::new(fall_back::from_present(run, to, (kind, cause), skipped)))
        }
        (None, again) => {
            let repeated = again.and_then(repeat).or(again.map(|_| Next::OnceEarned)).or(learned.map(shortened));
            repeated.unwrap_or(Next::Stop(skipped))
        }
    }
}

/// Stops the run for the failure of a call, as these other models are not asked.
fn stop(driver: &mut Driver, error: &ModelError, has_spoken: bool, skipped: &[String]) {
    let is_too_long = error.kind == ModelErrorKind::ContextLength;
    let reason = if is_too_long { StopReason::ContextLimit } else { StopReason::ProviderError };
    let mut error = run_error(error, has_spoken);
    if !skipped.is_empty() {
        error.message = format!("{}; not asked in its place: {}", error.message, skipped.join("; "));
    }
    driver.recorder.queue(Event::StopRequested { reason, error: Some(error), short: None });
}

/// Waits until the calls of the model have earned a retry, or the run is interrupted, which is seen before the next step;
/// `false` if that takes too long.
async fn earns_retry(driver: &mut Driver) -> bool {
    let end = Instant::now() + RETRY_WAIT;
    while !driver.model.take_retry() {
        if Instant::now() >= end {
            return false;
        }
        let pause = spread(RETRY_POLL);
        if tokio::time::timeout(pause, driver.signals.interrupted()).await.is_ok() {
            break;
        }
    }
    true
}

/// How long to pause before the model is asked again after a call that may have cost something; `None` if it is
/// not asked again. Calls that cost nothing were repeated already.
fn pause_before_next(driver: &Driver, has_spoken: bool, error: &ModelError) -> Option<Duration> {
    let run: &Run = driver.recorder.run();
    if has_spoken {
        return run.may_discard().then_some(Duration::ZERO);
    }
    let left = driver.signals.deadline.saturating_duration_since(Instant::now());
    let pause = RetryPolicy::default().delay(run.unanswered() + 1, error, left, random());
    pause.filter(|_| error.spent > Spent::Nothing)
}

fn run_error(error: &ModelError, said_something: bool) -> RunError {
    let message = if said_something { format!("{error}; its answer is incomplete") } else { error.to_string() };
    let retry_after_ms = error.retry_after.and_then(|wait| u64::try_from(wait.as_millis()).ok());
    RunError { kind: error.failure(), message, status: error.status, retry_after_ms }
}
