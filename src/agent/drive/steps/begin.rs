//! Begins a step: reserves its budgets and records that it began.

use crate::agent::drive::driver::{Driver, Exit};
use crate::agent::drive::meter::Meter;
use crate::agent::limits::quota::Refusal;
use crate::failpoint;
use crate::types::event::Reservation;
use crate::types::{Event, StopReason};

/// Records the step with its reservation, which may get smaller; `None` if a budget of the key or the
/// session has no room for it, or a command is to be taken in first.
pub async fn begin_step(
    driver: &mut Driver,
    step: u32,
    mut reserve: Reservation,
    closing: Option<StopReason>,
) -> Result<Option<Reservation>, Exit> {
    failpoint::hit("step.before_start");
    loop {
        let (kind, left) = match try_begin(driver, step, reserve, closing).await {
            Ok(true) => return Ok(Some(reserve)),
            Ok(false) => {
                driver.meter.cancel(&driver.recorder).await?;
                return Ok(None);
            }
            Err(Refusal::Short(kind, left)) => (kind, left),
            Err(Refusal::Failed(error)) => return Err(error.into()),
        };
        match Meter::shrink(driver.recorder.run().spec(), reserve, kind, left) {
            Ok(smaller) => reserve = smaller,
            Err(reason) => {
                driver.meter.cancel(&driver.recorder).await?;
                driver.recorder.queue(Event::StopRequested { reason, error: None });
                return Ok(None);
            }
        }
    }
}

/// Reserves with the key, then records the step and reserves with the session in one commit; `false` if
/// a command is to be taken in first.
async fn try_begin(
    driver: &mut Driver,
    step: u32,
    reserve: Reservation,
    closing: Option<StopReason>,
) -> Result<bool, Refusal> {
    driver.meter.reserve(&driver.recorder, step, reserve).await?;
    let model = driver.recorder.run().model().clone();
    let event = Event::StepStarted { step, reserved: reserve, model, closing };
    let change = driver.meter.begin(reserve);
    driver.record_unless_told([event], change).await.map_err(|error| driver.meter.refusal(error))
}
