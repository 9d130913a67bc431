//! What a request says of a conversation that grows too long.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::agent::{ContextPatch, TriggersPatch};
use crate::api::wire::error::WireError;
use crate::api::wire::vocabulary::CompactionText;
use crate::types::context::Compaction;
use crate::types::json::MAX_NUMBER;

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
    /// What else makes it too long.
    pub triggers: Option<TriggerOptions>,
}

/// What makes a conversation too long beside the window of its model. More than the agent's is an error.
#[derive(Debug, Default, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TriggerOptions {
    /// More messages than this that a model is shown, and than twice `keep_last`.
    #[schema(minimum = 1, example = 50)]
    pub messages: Option<u32>,
    /// So many input tokens of all calls since it was shortened last.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_992_u64, example = 100_000)]
    pub input_tokens: Option<u64>,
    /// Whether it is shortened in the background after the run, and not before the next call; only where the agent does that.
    pub after_run: Option<bool>,
}

impl ContextOptions {
    /// Checks what can be checked without the agent.
    pub fn check(self) -> Result<ContextPatch, WireError> {
        let Self { compaction, threshold, keep_last, turn_limit, triggers } = self;
        let TriggerOptions { messages, input_tokens, after_run } = triggers.unwrap_or_default();
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
        if messages == Some(0) {
            return Err(WireError::invalid("agent.context.triggers.messages", "must be above 0"));
        }
        if input_tokens.is_some_and(|tokens| !(1..=MAX_NUMBER).contains(&tokens)) {
            let message = format!("must be an integer from 1 to {MAX_NUMBER}");
            return Err(WireError::invalid("agent.context.triggers.input_tokens", message));
        }
        let triggers = TriggersPatch { messages, input_tokens, after_run };
        Ok(ContextPatch { compaction, threshold, keep_last, turn_limit, triggers, only: false })
    }
}
