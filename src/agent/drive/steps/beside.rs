//! Hears a model that is asked something beside the conversation: for a verdict, a summary, or what it writes down. Nothing of its answer is shown to
//! readers, and it is charged however it ends.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use crate::agent::drive::driver::Driver;
use crate::agent::drive::signals::Interruption;
use crate::agent::limits::quota::Refusal;
use crate::agent::machine::budget::{self, arrived_usage, estimated_usage, partial_usage};
use crate::llm::{Delta, DeltaStream, ModelError, ModelErrorKind, ModelTurn, Spent};
use crate::store::{CommitError, Tx};
use crate::types::event::Reservation;
use crate::types::fallback::CallTerms;
use crate::types::price::{PriceOrigin, StepModel};
use crate::types::{Event, Usage, Used};

/// How a call ended.
pub(super) enum End {
    Said(Box<ModelTurn>),
    Failed(ModelError),
    Interrupted(Interruption),
}

/// What was heard of the model.
#[derive(Debug, Default)]
pub(super) struct Heard {
    bytes: usize,
    has_begun: bool,
    is_queued: bool,
    /// Until when surely nothing is sent.
    pauses_until: Option<Instant>,
}

impl Heard {
    fn take(&mut self, delta: &Delta) {
        match delta {
            Delta::Text(text) | Delta::Refusal(text) | Delta::Thinking(text) => self.bytes += text.len(),
            Delta::CallArguments { delta, .. } => self.bytes += delta.len(),
            Delta::Queued => self.is_queued = true,
            Delta::Dequeued { .. } => self.is_queued = false,
            Delta::Begun => self.has_begun = true,
            Delta::Retry { delay, .. } => self.pauses_until = Some(Instant::now() + *delay),
            Delta::Finished(_) => {}
        }
    }

    /// What the call may have cost so far.
    pub(super) fn spent(&self) -> Spent {
        let pauses = self.pauses_until.is_some_and(|until| Instant::now() < until);
        match () {
            () if self.has_begun || self.bytes > 0 => Spent::Unknown,
            () if self.is_queued || pauses => Spent::Nothing,
            // The answer may be asked for in one piece, which begins to arrive after its last token.
            () => Spent::Unknown,
        }
    }
}

/// Hears the model until its turn is whole, it fails or takes too long, or the run is interrupted. `lacking` names what was not
/// said if it takes too long.
pub(super) async fn hear(
    driver: &mut Driver,
    deltas: &mut DeltaStream,
    heard: &mut Heard,
    (patience, lacking): (Duration, &str),
) -> End {
    let listening = async {
        while let Some(delta) = deltas.next().await {
            match delta {
                Ok(Delta::Finished(turn)) => return End::Said(turn),
                Ok(delta) => heard.take(&delta),
                Err(error) => return End::Failed(error),
            }
        }
        let error = ModelError::new(ModelErrorKind::Transient, "the model's stream ended before its turn was finished");
        End::Failed(error.having(Spent::Unknown))
    };
    let end = tokio::select! {
        biased;
        end = timeout_at(Instant::now() + patience, listening) => end.ok(),
        interruption = driver.signals.interrupted() => Some(End::Interrupted(interruption)),
    };
    let end = end.unwrap_or_else(|| {
        let error = ModelError::new(ModelErrorKind::Timeout, format!("{lacking} within {} ms", patience.as_millis()));
        End::Failed(error.having(heard.spent()))
    });
    match (end, driver.signals.now()) {
        // The model gave up because the run's time was up: that is no failure of the model's.
        (End::Failed(_), Some(interruption)) => End::Interrupted(interruption),
        (end, _) => end,
    }
}

/// What the run is charged for the call, and what that may have taken beyond it.
pub(super) fn charge(reserved: Reservation, model: &StepModel, end: &End, heard: &Heard) -> (Usage, Used) {
    let bound = Some(reserved.output_tokens);
    let by = |spent, told: Option<Usage>| match (spent, told) {
        (Spent::Nothing, _) => (Usage::default(), Used::default()),
        (Spent::Input, _) => (estimated_usage(reserved, 0), Used::default()),
        (Spent::Unknown, Some(told)) => (told, Used::default()),
        (Spent::Unknown, None) => partial_usage(reserved, bound, &model.price, heard.bytes),
    };
    match end {
        End::Said(turn) => {
            let bytes = heard.bytes.max(turn.bytes());
            let most = reserved.tokens().saturating_mul(4);
            let told = turn.usage.and_then(|usage| budget::believable(&usage, most, bytes));
            (told.unwrap_or_else(|| arrived_usage(reserved, bound, bytes)), Used::default())
        }
        End::Failed(error) => {
            by(error.spent.max(if heard.bytes > 0 { Spent::Unknown } else { Spent::Nothing }), error.usage)
        }
        End::Interrupted(_) => by(heard.spent(), None),
    }
}

/// The model that is asked about the conversation, and what its calls are planned by: the one of this name, or the run's own. Or else
/// why none is asked.
pub(super) async fn called(driver: &Driver, name: Option<&str>) -> Result<(Arc<StepModel>, CallTerms), String> {
    let run = driver.recorder.run();
    let (model, terms) = match name {
        None => (run.model().clone(), run.terms()),
        Some(name) => {
            let called = driver.generation.catalog.called(name).await.map_err(|error| error.to_string())?;
            let facts = called.facts;
            let terms = CallTerms {
                price: facts.price,
                context_window: facts.context_window,
                max_output_tokens: facts.max_output_tokens,
            };
            (Arc::new(called.into_step_model()), terms)
        }
    };
    let has_cost_budget = run.spec().limits.cost_budget.is_some() || driver.meter.has_cost_budget();
    if model.price_origin == PriceOrigin::Guessed && has_cost_budget {
        return Err(format!("there is a cost budget, and no price is known for the model {}", model.model));
    }
    Ok((model, terms))
}

/// Reserves in the key's budgets what is set aside for a call before this step, then records the call, reserves in the session's budgets
/// and makes the `change` in one commit; `false` if a command comes first.
pub(super) async fn reserve_and_record(
    driver: &mut Driver,
    (step, reserved): (u32, Reservation),
    event: Event,
    change: impl FnOnce(Tx) -> Tx,
) -> Result<bool, Refusal> {
    driver.meter.reserve(&driver.recorder, step, reserved).await?;
    let begin = driver.meter.begin(driver.recorder.run(), reserved);
    let refusal = match driver.record_unless_told([event], |tx| change(begin(tx))).await {
        Ok(true) => return Ok(true),
        Ok(false) => None,
        Err(error) => Some(driver.meter.refusal(&driver.recorder, error, reserved).await),
    };
    let given_back: Result<(), CommitError> = driver.meter.cancel(&driver.recorder).await;
    given_back.map_err(Refusal::Failed)?;
    refusal.map_or(Ok(false), Err)
}
