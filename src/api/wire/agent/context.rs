//! What a request says of a conversation that grows too long.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::agent::ContextPatch;
use crate::api::wire::error::WireError;
use crate::api::wire::vocabulary::CompactionText;
use crate::types::context::Compaction;

/// Most messages that a request keeps.
const MOST_KEPT: u32 = 1_000;

/// How a conversation is shortened that grows too long, in what a model is sent; the session keeps all of it.
#[derive(Debug, Default, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextOptions {
    /// How what is left out is replaced: `auto`, `llm`, `local`, `truncate` or `off`. A model is asked for summaries only where the
    /// agent does that.
    #[schema(value_type = Option<CompactionText>)]
    pub compaction: Option<Compaction>,
    /// Which part of the window the conversation may fill; more than the agent's is an error.
    #[schema(minimum = 0.05, maximum = 1.0, example = 0.5)]
    pub threshold: Option<f64>,
    /// How many of the newest messages are kept as they are.
    #[schema(minimum = 1, maximum = 1000, example = 6)]
    pub keep_last: Option<u32>,
    /// How many turns of the user the model is shown at most; more than the agent's is an error.
    #[schema(minimum = 1, example = 20)]
    pub turn_limit: Option<u32>,
}

impl ContextOptions {
    /// Checks what can be checked without the agent.
    pub fn check(self) -> Result<ContextPatch, WireError> {
        let Self { compaction, threshold, keep_last, turn_limit } = self;
        if threshold.is_some_and(|threshold| !(0.05..=1.0).contains(&threshold)) {
            return Err(WireError::invalid("agent.context.threshold", "must be a number from 0.05 to 1"));
        }
        if keep_last.is_some_and(|count| !(1..=MOST_KEPT).contains(&count)) {
            let message = format!("must be an integer from 1 to {MOST_KEPT}");
            return Err(WireError::invalid("agent.context.keep_last", message));
        }
        if turn_limit == Some(0) {
            return Err(WireError::invalid("agent.context.turn_limit", "must be above 0"));
        }
        Ok(ContextPatch { compaction, threshold, keep_last, turn_limit, only: false })
    }
}
