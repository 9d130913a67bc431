//! Asks a model whether a text passes a guardrail: one call, of which what it may take is reserved before, and which is charged
//! however it ends.
//!
//! Between two steps the call is reserved and settled by itself. Within a step, once the model's turn is whole, it is paid from
//! what that turn has left of its reservation, if it fits, and is settled with the step.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::context::request::judging_request;
use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::guarded;
use crate::agent::drive::signals::Interruption;
use crate::agent::drive::steps::beside::{End, Heard, charge, hear};
use crate::agent::limits::quota::Refusal;
use crate::agent::machine::budget::{self, partial_usage};
use crate::failpoint;
use crate::guard::question;
use crate::llm::Spent;
use crate::store::CommitError;
use crate::types::event::Reservation;
use crate::types::fallback::CallTerms;
use crate::types::guard::{
    Asked, GuardPoint, Guarded, Guardrail, JudgeCall, Judged, Judging, ModelJudge, Triggered, Verdict,
};
use crate::types::pauses::spread;
use crate::types::price::{PriceOrigin, StepModel};
use crate::types::shortfall::BudgetKind;
use crate::types::{Event, Shortfall, StopReason, Used};

/// How long a run waits at most for what other runs have reserved before it looks again.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A text that a model is to judge.
pub(super) struct Question<'a> {
    pub(super) rail: &'a Guardrail,
    pub(super) judge: &'a ModelJudge,
    pub(super) asked: Asked,
    pub(super) text: &'a str,
    /// What the step's own call took, if the step is under way.
    pub(super) in_step: Option<Used>,
}

/// Asks, and records what was said. `None` if the run is to stop, or another replica goes on with it, before there is a verdict.
pub(super) async fn judge(driver: &mut Driver, question: &Question<'_>) -> Result<Option<Judged>, Exit> {
    let begun = Instant::now();
    let (model, terms) = match terms(driver, question).await {
        Ok(found) => found,
        Err(why) => {
            let unanswered = unanswered(driver, question, &why, begun);
            record(driver, question, unanswered.clone()).await?;
            return Ok(Some(unanswered));
        }
    };
    let Some(judging) = begin(driver, question, model, terms).await? else { return Ok(None) };
    failpoint::hit("guardrail.before_ask");
    let request = judging_request(driver.recorder.run(), &judging, (question.judge, question.text));
    let mut deltas = driver.generation.catalog.model(&judging.model.upstream).stream(request);
    let mut heard = Heard::default();
    let patience = Duration::from_millis(question.judge.timeout_ms);
    let end = hear(driver, &mut deltas, &mut heard, (patience, "no verdict")).await;
    drop(deltas);
    failpoint::hit("guardrail.answered");
    let (verdict, failed) = match &end {
        End::Said(turn) => (question::verdict(&turn.text()), None),
        End::Failed(error) => (None, Some(error.failure())),
        End::Interrupted(Interruption::Leave) if heard.spent() != Spent::Nothing => return Err(Exit::HandedOff),
        End::Interrupted(_) => (Some(Verdict::Dropped), None),
    };
    if verdict.is_none() {
        let why = if let End::Failed(error) = &end { error.to_string() } else { "its answer is no verdict".to_owned() };
        warn(driver, question, &why);
    }
    let (usage, unconfirmed) = charge(judging.reserved, &judging.model, &end, &heard);
    let call = JudgeCall { model: judging.model.clone(), usage, unconfirmed, failed, in_step: judging.in_step };
    let judged = Judged {
        asked: judging.asked,
        verdict: verdict.unwrap_or(Verdict::NoAnswer),
        reason: None,
        latency_ms: millis(begun),
        call: Some(Box::new(call)),
    };
    record(driver, question, judged.clone()).await?;
    match end {
        End::Interrupted(interruption) => driver.handle_interruption(interruption).map(|()| None),
        End::Said(_) | End::Failed(_) => Ok(Some(judged)),
    }
}

/// Charges a call that a crash interrupted: what it had said is lost, and the guardrail is asked again if the run goes on.
pub async fn drop_judging(driver: &mut Driver, judging: Judging) -> Result<(), Exit> {
    let judged = interrupted(judging);
    Ok(driver.meter.settle(&mut driver.recorder, Reservation::default(), judged, None).await?)
}

/// The same within a step that is voided, with which it is settled.
pub(in crate::agent::drive) fn drop_in_step(driver: &mut Driver) {
    if let Some(judging) = driver.recorder.run().open_judging().cloned() {
        driver.recorder.queue(interrupted(judging));
    }
}

fn interrupted(judging: Judging) -> Event {
    // What was to be paid from the reservation of the step's own call is charged with that call, all of whose reservation is.
    let Judging { asked, model, set_aside, in_step, .. } = judging;
    let (usage, unconfirmed) = partial_usage(set_aside, Some(set_aside.output_tokens), &model.price, 0);
    let call = Some(Box::new(JudgeCall { model, usage, unconfirmed, failed: None, in_step }));
    let judged = Judged { asked, verdict: Verdict::Dropped, reason: None, latency_ms: 0, call };
    Event::Guarded(Box::new(Guarded::Judged(judged)))
}

/// The model that is asked, and what its call is planned by; else why it is not asked.
async fn terms(driver: &Driver, question: &Question<'_>) -> Result<(StepModel, CallTerms), String> {
    let ModelJudge { model, prompt, max_output_tokens, .. } = question.judge;
    let called = driver.generation.catalog.called(model).await.map_err(|error| error.to_string())?;
    let facts = called.facts;
    let model = called.into_step_model();
    let spec = driver.recorder.run().spec();
    let has_cost_budget = spec.limits.cost_budget.is_some() || driver.meter.has_cost_budget();
    if model.price_origin == PriceOrigin::Guessed && has_cost_budget {
        return Err(format!("there is a cost budget, and no price is known for the model {}", model.model));
    }
    let tokens = tokens(prompt, question.asked.on, question.text);
    if tokens > facts.context_window {
        let window = facts.context_window;
        return Err(format!("the text has about {tokens} tokens with the prompt, and the model takes {window}"));
    }
    let max_output_tokens = u64::from(*max_output_tokens).min(facts.max_output_tokens);
    Ok((model, CallTerms { price: facts.price, context_window: facts.context_window, max_output_tokens }))
}

/// What the question takes, by estimate.
fn tokens(prompt: &str, on: GuardPoint, text: &str) -> u64 {
    let asked = question::instructions(prompt).len() + question::contained(on, text).len();
    budget::estimate(asked)
}

/// Reserves what the call may take and records that it is made. `None` if the run is to stop: a budget has no room, or it is
/// interrupted while it waits for what other runs have reserved.
async fn begin(
    driver: &mut Driver,
    question: &Question<'_>,
    model: StepModel,
    mut terms: CallTerms,
) -> Result<Option<Judging>, Exit> {
    let tokens = tokens(&question.judge.prompt, question.asked.on, question.text);
    let model = Arc::new(model);
    loop {
        if let Some(interruption) = driver.signals.now() {
            return driver.handle_interruption(interruption).map(|()| None);
        }
        let run = driver.recorder.run();
        let taken = question.in_step.unwrap_or_default();
        let reserved = match run.plan_judging(&terms, tokens, taken) {
            Ok(reserved) => reserved,
            Err(reason) => {
                driver.recorder.queue(Event::stop(reason));
                return Ok(None);
            }
        };
        let set_aside = question.in_step.map_or(reserved, |taken| run.beyond_step(reserved, taken));
        let in_step = question.in_step.is_some();
        let (asked, model) = (question.asked.clone(), model.clone());
        let judging = Judging { asked, model, reserved, set_aside, in_step };
        let short = match try_begin(driver, &judging).await {
            Ok(true) => {
                driver.waits_for = None;
                return Ok(Some(judging));
            }
            // A command came first, and is applied.
            Ok(false) => continue,
            Err(Refusal::Short(short)) => short,
            Err(Refusal::Failed(error)) => return Err(error.into()),
        };
        let smaller = budget::shrink(&terms, reserved, &short).filter(|_| !in_step);
        if let Some(smaller) = smaller.filter(|smaller| smaller.output_tokens < reserved.output_tokens) {
            terms.max_output_tokens = smaller.output_tokens;
            continue;
        }
        if in_step || !short.may_pass() {
            driver.recorder.queue(out_of_budget(short));
            return Ok(None);
        }
        driver.waits_for = Some(Box::new(short));
        driver.recorder.flush().await?;
        let _ = tokio::time::timeout(spread(LOOK_EVERY), driver.signals.interrupted()).await;
    }
}

fn out_of_budget(short: Shortfall) -> Event {
    let reason = match short.kind {
        BudgetKind::Tokens => StopReason::TokenBudget,
        BudgetKind::Cost => StopReason::CostBudget,
    };
    Event::StopRequested { reason, error: None, short: Some(short) }
}

/// Reserves in the key's budgets, then records the call and reserves in the session's budgets in one commit; `false` if a
/// command comes first.
async fn try_begin(driver: &mut Driver, judging: &Judging) -> Result<bool, Refusal> {
    let run = driver.recorder.run();
    let own = if judging.in_step { run.reserved().and(run.reserved_beside()) } else { Reservation::default() };
    let (place, is_covered) = if judging.in_step {
        (run.step(), judging.set_aside == Reservation::default())
    } else {
        (judging.asked.next_step(), false)
    };
    let event = Event::Guarded(Box::new(Guarded::Judging(judging.clone())));
    if is_covered {
        return driver.record_unless_told([event], |tx| tx).await.map_err(Refusal::Failed);
    }
    // If that is refused within a step, the step's own reservation stands as it did.
    driver.meter.reserve(&driver.recorder, place, own.and(judging.set_aside)).await?;
    let change = driver.meter.begin_beside(driver.recorder.run(), own, judging.set_aside);
    let recorded = driver.record_unless_told([event], change).await;
    if matches!(recorded, Ok(true)) {
        return Ok(true);
    }
    let refusal = match recorded {
        Ok(_) => None,
        Err(error) => Some(driver.meter.refusal(&driver.recorder, error, judging.set_aside).await),
    };
    give_back(driver, (place, own), judging.in_step).await.map_err(Refusal::Failed)?;
    refusal.map_or(Ok(false), Err)
}

/// Gives back in the key's budgets what was reserved for a call that is not made.
async fn give_back(driver: &mut Driver, (place, own): (u32, Reservation), in_step: bool) -> Result<(), CommitError> {
    if !in_step {
        return driver.meter.cancel(&driver.recorder).await;
    }
    match driver.meter.reserve(&driver.recorder, place, own).await {
        Ok(()) | Err(Refusal::Short(_)) => Ok(()),
        Err(Refusal::Failed(error)) => Err(error),
    }
}

/// That nothing was said that counts.
fn unanswered(driver: &Driver, question: &Question<'_>, why: &str, begun: Instant) -> Judged {
    warn(driver, question, why);
    let (asked, latency_ms) = (question.asked.clone(), millis(begun));
    Judged { asked, verdict: Verdict::NoAnswer, reason: None, latency_ms, call: None }
}

fn warn(driver: &Driver, question: &Question<'_>, why: &str) {
    let (run, guardrail, model) = (&driver.recorder.run().spec().id, &question.rail.name, &question.judge.model);
    tracing::warn!(%run, guardrail, model, why, "a guardrail's model gave no verdict");
}

/// Records what was said, and that the text fails if it does; between two steps, the call is settled with it.
async fn record(driver: &mut Driver, question: &Question<'_>, judged: Judged) -> Result<(), Exit> {
    let triggered = Triggered::by(question.rail, &judged).map(Guarded::Triggered);
    let is_settled_now = judged.call.as_ref().is_some_and(|call| !call.in_step);
    let spec = driver.recorder.run().spec().clone();
    let judged = Guarded::Judged(judged);
    for told in std::iter::once(&judged).chain(&triggered) {
        guarded::log(&spec, told);
    }
    let event = |guarded| Event::Guarded(Box::new(guarded));
    let (judged, triggered) = (event(judged), triggered.map(event));
    if is_settled_now {
        return Ok(driver.meter.settle(&mut driver.recorder, Reservation::default(), judged, triggered).await?);
    }
    driver.recorder.queue(judged);
    if let Some(triggered) = triggered {
        driver.recorder.queue(triggered);
    }
    Ok(())
}

fn millis(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}
