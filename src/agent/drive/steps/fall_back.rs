//! Goes on with another model of the run's.

use std::sync::Arc;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::machine::{Lack, NextModel, Run, Unasked};
use crate::types::event::Reservation;
use crate::types::fallback::FellBack;
use crate::types::price::StepModel;
use crate::types::{ErrorKind, Event, Shortfall};

/// That the run leaves its present model for `to`, for this cause.
pub fn from_present(
    run: &Run,
    to: Arc<StepModel>,
    (kind, cause): (ErrorKind, String),
    skipped: Vec<String>,
) -> FellBack {
    let StepModel { upstream, model, .. } = &**run.model();
    FellBack {
        step: run.step(),
        to,
        from_upstream: upstream.clone(),
        from_model: model.clone(),
        attempt: run.models_left() + 1,
        kind,
        cause,
        skipped,
    }
}

/// Ends a step with `discarded`, and goes on with another model, in one commit.
pub async fn after_step(
    driver: &mut Driver,
    (reserved, discarded): (Reservation, Event),
    fell_back: Box<FellBack>,
) -> Result<(), Exit> {
    tell(driver, &fell_back);
    driver.end_step_and(reserved, discarded, Some(Event::ProviderFallback(fell_back))).await?;
    driver.take_model();
    Ok(())
}

/// Goes on with a model that takes more than the present one, which the conversation does not fit. If all of these are left
/// alone, it is the first of them, and the call waits for it.
pub fn as_it_has_grown(driver: &mut Driver) -> Result<(), Exit> {
    if let Some(interruption) = driver.signals.before_a_step() {
        return driver.handle_interruption(interruption);
    }
    let run = driver.recorder.run();
    let asked_now = run.next_model(Lack::Window, |model| refusal(driver, model));
    let next = if asked_now.model.is_some() { asked_now } else { run.next_model(Lack::Window, |_| None) };
    // The step is asked for only if there is one.
    let NextModel { model: Some(to), skipped } = next else { return Ok(()) };
    let cause = format!("the conversation does not fit the context window of {}", run.model().model);
    let fell_back = from_present(run, to, (ErrorKind::ContextLength, cause), skipped);
    between_steps(driver, Box::new(fell_back));
    Ok(())
}

/// Goes on with another model before the next step begins, if the present one is not asked for now and another is.
pub fn leave_refused(driver: &mut Driver) -> bool {
    let run = driver.recorder.run();
    if !run.has_fallback() {
        return false;
    }
    let Some(refused) = driver.model.refusal(&run.model().model) else { return false };
    let NextModel { model: Some(to), skipped } = run.next_model(Lack::Answer, |model| refusal(driver, model)) else {
        return false;
    };
    let cause = format!("upstream {} is left alone: {refused}", run.model().upstream);
    let fell_back = from_present(run, to, (ErrorKind::UpstreamUnavailable, cause), skipped);
    between_steps(driver, Box::new(fell_back));
    true
}

/// Goes on with another model before a step begins for which a budget has no room, if the run left another one for the present
/// model and there is room for one that follows. A run whose own model does not fit stops.
pub fn leave_for_room(driver: &mut Driver, short: &Shortfall) -> bool {
    let run = driver.recorder.run();
    if run.models_left() == 0 || !run.has_fallback() {
        return false;
    }
    let next = run.next_model(Lack::Room(*short), |model| refusal(driver, model));
    let NextModel { model: Some(to), skipped } = next else { return false };
    let cause = format!("a budget of the {} has no room for {}", short.owner, run.model().model);
    let fell_back = from_present(run, to, (ErrorKind::BudgetExceeded, cause), skipped);
    between_steps(driver, Box::new(fell_back));
    true
}

/// Whether the run can go on with another model that is asked now.
pub fn has_other(driver: &Driver) -> bool {
    let run = driver.recorder.run();
    run.has_fallback() && run.next_model(Lack::Answer, |model| refusal(driver, model)).model.is_some()
}

/// Why a model is not asked for now.
pub fn refusal(driver: &Driver, model: &StepModel) -> Option<Unasked> {
    let upstream = driver.generation.catalog.model(&model.upstream);
    upstream.refusal(&model.model).map(|refusal| refusal.to_string())
}

/// Goes on with another model before the next step begins.
pub fn between_steps(driver: &mut Driver, fell_back: Box<FellBack>) {
    tell(driver, &fell_back);
    driver.recorder.queue(Event::ProviderFallback(fell_back));
    driver.take_model();
}

fn tell(driver: &Driver, fell_back: &FellBack) {
    let FellBack { step, to, from_upstream, from_model, cause, skipped, .. } = fell_back;
    let (run, upstream, model) = (&driver.recorder.run().spec().id, &to.upstream, &to.model);
    let skipped = skipped.join("; ");
    tracing::warn!(%run, step, %from_upstream, %from_model, %upstream, %model, %cause, %skipped, "the run goes on with another model");
}
