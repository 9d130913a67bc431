//! Begins a step: reserves its budgets and records that it began.

use std::time::Duration;

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::steps::fall_back;
use crate::agent::limits::quota::Refusal;
use crate::agent::machine::budget;
use crate::failpoint;
use crate::types::event::Reservation;
use crate::types::pauses::spread;
use crate::types::shortfall::BudgetKind;
use crate::types::{Event, StopReason};

/// How long a run waits at most for what other runs have reserved before it looks again.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Reserves the step's budgets and records that the step begins, with a smaller reservation if the budgets have no more
/// room. `None` if a command comes first, or if a budget of the key or the session has no room at all: then the run goes on
/// with another model that has room, or it stops, or it waits a while if it lacks only what other runs have reserved.
pub async fn begin_step(
    driver: &mut Driver,
    step: u32,
    mut reserve: Reservation,
    closing: Option<StopReason>,
) -> Result<Option<Reservation>, Exit> {
    failpoint::hit("step.before_start");
    loop {
        let short = match try_begin(driver, step, reserve, closing).await {
            Ok(true) => {
                driver.waits_for = None;
                return Ok(Some(reserve));
            }
            Ok(false) => {
                driver.meter.cancel(&driver.recorder).await?;
                return Ok(None);
            }
            Err(Refusal::Short(short)) => short,
            Err(Refusal::Failed(error)) => return Err(error.into()),
        };
        let run = driver.recorder.run();
        if let Some(smaller) = budget::shrink(&run.terms(), reserve, &short) {
            reserve = smaller;
            continue;
        }
        driver.meter.cancel(&driver.recorder).await?;
        if closing.is_none() && fall_back::leave_for_room(driver, &short) {
            driver.waits_for = None;
        } else if short.may_pass() {
            driver.waits_for = Some(Box::new(short));
            driver.recorder.flush().await?;
            let _ = tokio::time::timeout(spread(LOOK_EVERY), driver.signals.interrupted()).await;
        } else {
            let reason = match short.kind {
                BudgetKind::Tokens => StopReason::TokenBudget,
                BudgetKind::Cost => StopReason::CostBudget,
            };
            driver.recorder.queue(Event::StopRequested { reason, error: None, short: Some(short) });
        }
        return Ok(None);
    }
}

/// Reserves in the key's budgets, then records the step and reserves in the session's budgets in one commit; `false` if
/// a command comes first.
async fn try_begin(
    driver: &mut Driver,
    step: u32,
    reserve: Reservation,
    closing: Option<StopReason>,
) -> Result<bool, Refusal> {
    driver.meter.reserve(&driver.recorder, step, reserve).await?;
    let model = driver.recorder.run().unnamed_model().cloned();
    let event = Event::StepStarted { step, reserved: reserve, model, closing };
    let change = driver.meter.begin(driver.recorder.run(), reserve);
    match driver.record_unless_told([event], change).await {
        Ok(begun) => Ok(begun),
        Err(error) => Err(driver.meter.refusal(&driver.recorder, error, reserve).await),
    }
}
