//! Answers that are asked for in one piece: what their failures say.

use futures_util::{StreamExt, TryStreamExt};

use crate::llm::{DeltaStream, ModelError, ModelErrorKind, Spent};

/// An answer that was asked for in one piece.
pub fn come_in_one_piece(deltas: DeltaStream) -> DeltaStream {
    deltas.map_err(failed).boxed()
}

/// What a failure says. The upstream may have made all of the answer before anything of it arrived.
fn failed(error: ModelError) -> ModelError {
    let spent = if error.spent == Spent::Input { Spent::Unknown } else { error.spent };
    // A gateway that has waited in vain for a whole answer would wait in vain for the next one.
    let has_timed_out = spent == Spent::Unknown && matches!(error.status, Some(504 | 524));
    let kind = if has_timed_out { ModelErrorKind::Timeout } else { error.kind };
    ModelError { kind, spent, ..error }
}
