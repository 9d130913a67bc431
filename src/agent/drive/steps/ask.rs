//! Sends the model the request of a step.

use std::sync::Arc;

use tokio::time::Instant;

use crate::agent::context;
use crate::agent::drive::driver::Driver;
use crate::agent::drive::steps::fall_back;
use crate::llm::pairing::{Pairing, Place};
use crate::llm::{DeltaStream, Model, ModelRequest};
use crate::types::StopReason;
use crate::types::event::Reservation;
use crate::types::price::StepModel;

/// Sends the model the request of this step.
pub(super) fn ask(
    driver: &Driver,
    reserve: Reservation,
    closing: Option<StopReason>,
    in_one_piece: bool,
) -> DeltaStream {
    driver.model.stream(request(driver, reserve, closing, in_one_piece))
}

/// The same as the first of two calls, which leaves word where it goes.
pub(super) fn ask_first(driver: &Driver, reserve: Reservation, place: Arc<Place>) -> DeltaStream {
    let request = request(driver, reserve, None, false);
    driver.model.stream(ModelRequest { pairing: Pairing::First(place), ..request })
}

/// Sends the same request to this model beside the one that has it already. The call is made once, and at once or not at all.
pub(super) fn ask_second(
    driver: &Driver,
    (model, to): (&dyn Model, &StepModel),
    reserve: Reservation,
    place: Arc<Place>,
) -> DeltaStream {
    let (request, pairing) = (request(driver, reserve, None, false), Pairing::Second(place));
    model.stream(ModelRequest { model: to.model.clone(), has_fallback: true, is_repeat: true, pairing, ..request })
}

fn request(driver: &Driver, reserve: Reservation, closing: Option<StopReason>, in_one_piece: bool) -> ModelRequest {
    let deadline = driver.signals.deadline.max(Instant::now());
    let bound = output_bound(driver, reserve, closing.is_some());
    let run = driver.recorder.run();
    let has_fallback = closing.is_none() && fall_back::has_other(driver);
    let conversation = (&driver.history, driver.shown.as_deref());
    let request = context::model_request(run, conversation, &driver.tools, bound, closing, in_one_piece, deadline);
    ModelRequest { has_fallback, ..request }
}

/// The bound on the output that the upstream is told: none if the caller asked for none and no budget holds.
pub(in crate::agent::drive) fn output_bound(driver: &Driver, reserve: Reservation, closing: bool) -> Option<u64> {
    let spec = driver.recorder.run().spec();
    let has_budget = spec.limits.token_budget.is_some() || spec.limits.cost_budget.is_some();
    let holds = spec.bounds_output || closing || has_budget || driver.meter.has_budgets();
    holds.then_some(reserve.output_tokens)
}
