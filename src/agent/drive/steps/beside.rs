//! Hears a model that is asked something beside the conversation: for a verdict, or a summary. Nothing of its answer is shown to
//! readers, and it is charged however it ends.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use crate::agent::drive::driver::Driver;
use crate::agent::drive::signals::Interruption;
use crate::agent::machine::budget::{self, arrived_usage, estimated_usage, partial_usage};
use crate::llm::{Delta, DeltaStream, ModelError, ModelErrorKind, ModelTurn, Spent};
use crate::types::event::Reservation;
use crate::types::price::StepModel;
use crate::types::{Usage, Used};

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
