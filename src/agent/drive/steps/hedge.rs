//! Asks a second model beside one that says nothing, and goes on with the one that speaks first.
//!
//! What both may take is reserved before the second call is made, and the log says that it is. The call that is dropped is
//! charged as one that was interrupted. Its upstream's breaker counts no failure, as nothing failed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep_until};

use crate::agent::context::turn::TurnBuffer;
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::steps::ask::{ask_first, ask_second, output_bound};
use crate::agent::drive::steps::fall_back;
use crate::agent::drive::steps::listen::{End, record_news, take_delta};
use crate::agent::drive::when_woken::WhenWoken;
use crate::agent::limits::quota::Refusal;
use crate::agent::machine::budget::{estimated_usage, partial_usage};
use crate::agent::machine::{HedgePlan, HedgeTarget};
use crate::llm::pairing::Place;
use crate::llm::{Delta, DeltaStream, ModelError, ModelErrorKind, Spent};
use crate::store::CommitError;
use crate::types::event::Reservation;
use crate::types::hedge::{HedgeStarted, KeptCall};
use crate::types::price::StepModel;
use crate::types::{ErrorKind, Event, StopReason, Usage, Used};

/// A second call that is under way.
struct Second {
    deltas: DeltaStream,
    buffer: TurnBuffer,
}

/// How long the model may say nothing before a second call is made; `None` if there is to be none.
pub(super) fn patience(driver: &Driver, closing: Option<StopReason>) -> Option<Duration> {
    let run = driver.recorder.run();
    let patience = run.spec().hedge_after_ms.filter(|_| closing.is_none())?;
    let may_ask = driver.model.has_elsewhere() || run.has_fallback();
    may_ask.then(|| Duration::from_millis(patience))
}

/// Sends the model the request of this step, and if it says nothing for so long, another model too. Returns the answer that the
/// step goes on with, and its end if that came already. The buffer has what was heard of it.
pub(super) async fn ask_patiently(
    driver: &mut Driver,
    buffer: &mut TurnBuffer,
    reserve: Reservation,
    patience: Duration,
) -> Result<(DeltaStream, Option<End>), Exit> {
    let place = Arc::<Place>::default();
    let mut first = ask_first(driver, reserve, place.clone());
    if let Some(end) = listen_until(driver, buffer, &mut first, patience).await? {
        return Ok((first, Some(end)));
    }
    if buffer.bytes() > 0 {
        return Ok((first, None));
    }
    let Some(plan) = begin(driver, reserve, patience).await? else { return Ok((first, None)) };
    race(driver, buffer, first, (plan, place)).await
}

/// Hears the model until it speaks or was silent for so long; `Some` if its answer ended.
async fn listen_until(
    driver: &mut Driver,
    buffer: &mut TurnBuffer,
    deltas: &mut DeltaStream,
    patience: Duration,
) -> Result<Option<End>, Exit> {
    let mut interrupted = WhenWoken::new(driver.signals.interrupted());
    while buffer.bytes() == 0 {
        let end = if buffer.has_news() {
            record_news(&mut driver.recorder, buffer, deltas).await?
        } else {
            let until = buffer.is_silent_for(patience);
            tokio::select! {
                biased;
                delta = deltas.next() => take_delta(buffer, delta),
                interruption = &mut interrupted => Some(End::Interrupted(interruption)),
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return Ok(None),
            }
        };
        if end.is_some() {
            return Ok(end);
        }
    }
    Ok(None)
}

/// Begins the second call: reserves its budgets, and records that it begins. `None` if there is no model for it, no earned
/// retry, or no room in a budget, or if a command comes first.
async fn begin(driver: &mut Driver, first: Reservation, patience: Duration) -> Result<Option<HedgePlan>, Exit> {
    let run = driver.recorder.run();
    let target = if driver.model.has_elsewhere() { HedgeTarget::Elsewhere } else { HedgeTarget::Fallback };
    let Some(plan) = run.plan_hedge(target, |model| fall_back::refusal(driver, model)) else { return Ok(None) };
    // Second calls are bounded as retries are: they too burden upstreams that are slow already.
    if !driver.model.take_retry() {
        return Ok(None);
    }
    let (step, both) = (run.step(), first.and(plan.reserved));
    match driver.meter.reserve(&driver.recorder, step, both).await {
        Ok(()) => {}
        Err(Refusal::Short(_)) => return Ok(None),
        Err(Refusal::Failed(error)) => return Err(error.into()),
    }
    let started = started(driver, &plan, patience);
    let change = driver.meter.begin_beside(driver.recorder.run(), first, plan.reserved);
    match driver.record_unless_told([started], change).await {
        Ok(true) => return Ok(Some(plan)),
        // A budget of the session has no room for both.
        Ok(false) | Err(CommitError::CeilingReached { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    match driver.meter.reserve(&driver.recorder, step, first).await {
        Ok(()) | Err(Refusal::Short(_)) => Ok(None),
        Err(Refusal::Failed(error)) => Err(error.into()),
    }
}

fn started(driver: &Driver, plan: &HedgePlan, patience: Duration) -> Event {
    let (run, HedgePlan { to, reserved }) = (driver.recorder.run(), plan);
    let StepModel { upstream: from_upstream, model: from_model, .. } = &**run.model();
    let after_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    let (id, step, upstream, model) = (&run.spec().id, run.step(), &to.upstream, &to.model);
    tracing::info!(run = %id, step, %from_upstream, %from_model, %upstream, %model, after_ms, "a model says nothing; another one is asked beside it");
    let (from_upstream, from_model) = (from_upstream.clone(), from_model.clone());
    let (to, reserved) = (to.clone(), *reserved);
    Event::HedgeStarted(Box::new(HedgeStarted { step, to, from_upstream, from_model, after_ms, reserved }))
}

/// Makes the second call, and hears both until one speaks or one fails.
async fn race(
    driver: &mut Driver,
    buffer: &mut TurnBuffer,
    mut first: DeltaStream,
    (plan, place): (HedgePlan, Arc<Place>),
) -> Result<(DeltaStream, Option<End>), Exit> {
    // What came while the second call was recorded: it is not made if the first has spoken.
    while let Some(delta) = first.next().now_or_never() {
        let end = take_delta(buffer, delta);
        if end.is_some() || buffer.bytes() > 0 {
            go_on_with(driver, KeptCall::First, Spent::Nothing, None);
            return Ok((first, end));
        }
    }
    let mut second = second(driver, plan, place);
    let (kept, end) = first_to_speak(driver, buffer, &mut first, &mut second).await?;
    if kept == KeptCall::First {
        return Ok((first, end));
    }
    // Nothing of what is known of the first is lost: what it failed with is an event.
    for event in buffer.take_news() {
        driver.recorder.queue(event);
    }
    *buffer = second.buffer;
    Ok((second.deltas, end))
}

fn second(driver: &Driver, HedgePlan { to, reserved }: HedgePlan, place: Arc<Place>) -> Second {
    let (run, model) = (driver.recorder.run(), driver.generation.catalog.model(&to.upstream));
    let buffer = TurnBuffer::new(run, (&*model, &to), &driver.tools, run.step(), (false, false));
    Second { deltas: ask_second(driver, (&*model, &to), reserved, place), buffer }
}

/// Hears both calls until one speaks or one fails, and says with which the step goes on, and how that one ended if it did.
async fn first_to_speak(
    driver: &mut Driver,
    buffer: &mut TurnBuffer,
    first: &mut DeltaStream,
    second: &mut Second,
) -> Result<(KeptCall, Option<End>), Exit> {
    loop {
        let mut interrupted = WhenWoken::new(driver.signals.interrupted());
        let (call, end) = tokio::select! {
            biased;
            delta = first.next() => (KeptCall::First, take_delta(buffer, delta)),
            delta = second.deltas.next() => (KeptCall::Second, second.hear(delta)),
            interruption = &mut interrupted => (KeptCall::First, Some(End::Interrupted(interruption))),
        };
        drop(interrupted);
        let (heard, other) = match call {
            KeptCall::First => (&*buffer, &second.buffer),
            KeptCall::Second => (&second.buffer, &*buffer),
        };
        match end {
            Some(End::Failed(error)) => {
                let spent = if heard.spent() == Spent::Unknown { Spent::Unknown } else { error.spent };
                let kept = call.other();
                go_on_with(driver, kept, spent, Some(&error));
                return Ok((kept, None));
            }
            end if end.is_some() || heard.bytes() > 0 => {
                go_on_with(driver, call, other.spent(), None);
                return Ok((call, end));
            }
            _ => {}
        }
    }
}

impl Second {
    /// Takes in what the second call says. It is made once: if it is to be made again, it has failed.
    fn hear(&mut self, delta: Option<Result<Delta, ModelError>>) -> Option<End> {
        if let Some(Ok(Delta::Retry { cause, .. })) = delta {
            return Some(End::Failed(ModelError::new(ModelErrorKind::Transient, cause)));
        }
        take_delta(&mut self.buffer, delta)
    }
}

/// Goes on with one of the step's two calls. The other one has cost so much, and has failed if there is an error.
fn go_on_with(driver: &mut Driver, kept: KeptCall, spent: Spent, error: Option<&ModelError>) {
    let told = error.and_then(|error| error.usage);
    let failed = error.map(|error| (error.failure(), error.to_string()));
    drop_other(driver, kept, (spent, told), failed);
    driver.take_model();
}

/// Drops the second call of a step whose driver died before one of the two had spoken.
pub(in crate::agent::drive) fn drop_interrupted(driver: &mut Driver) {
    drop_other(driver, KeptCall::First, (Spent::Unknown, None), None);
}

/// Records which of the step's two calls is kept, if it has two, and what the other one is charged: the rule is that of any call
/// that was interrupted while the run goes on.
fn drop_other(
    driver: &mut Driver,
    kept: KeptCall,
    (spent, told): (Spent, Option<Usage>),
    failed: Option<(ErrorKind, String)>,
) {
    let charged = |reserved: Reservation, model: &StepModel| match (spent, told) {
        (Spent::Nothing, _) => (Usage::default(), Used::default()),
        (Spent::Input, _) => (estimated_usage(reserved, 0), Used::default()),
        (Spent::Unknown, Some(told)) => (told, Used::default()),
        (Spent::Unknown, None) => partial_usage(reserved, output_bound(driver, reserved, false), &model.price, 0),
    };
    let Some(ended) = driver.recorder.run().hedge_ended(kept, charged, failed) else { return };
    driver.recorder.queue(Event::HedgeEnded(Box::new(ended)));
}
