//! What a request says of the loop of its run.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::agent::{LoopGuardPatch, PromptPatch, RulesPatch};
use crate::api::wire::agent::context::ContextOptions;
use crate::api::wire::error::WireError;
use crate::api::wire::json_object::JsonObject;
use crate::types::rules::MOST_PROMPT;

/// Most names of tools that a rule of a request has.
const MOST_PATTERNS: usize = 64;

/// What a failed tool call does to a run.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolErrorOptions {
    /// Names and globs of tools of which a failed call ends the run, beside those that the agent has.
    #[serde(default)]
    #[schema(max_items = 64, example = json!(["*"]))]
    pub end_run: Vec<String>,
}

/// When a model that repeats its tool calls is warned and stopped; asking for more than the agent's is an error.
#[derive(Debug, Default, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoopGuardOptions {
    /// After so many turns with the same calls and the same results the model is warned.
    #[schema(minimum = 2, example = 3)]
    pub warn_after: Option<u32>,
    /// After so many the run is stopped.
    #[schema(minimum = 2, example = 5)]
    pub stop_after: Option<u32>,
    /// After so many turns with the same results the model is warned.
    #[schema(minimum = 2)]
    pub same_result_warn_after: Option<u32>,
    /// After so many the run is stopped.
    #[schema(minimum = 2)]
    pub same_result_stop_after: Option<u32>,
}

/// Whether the first model call of a conversation asks for a plan.
#[derive(Debug, Default, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanningOptions {
    /// Whether it does; what the agent says without it, or yes with `prompt`.
    pub enabled: Option<bool>,
    /// What it asks.
    #[schema(min_length = 1, max_length = 16384)]
    pub prompt: Option<String>,
}

/// Whether the model is asked from time to time how far it has come.
#[derive(Debug, Default, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReflectionOptions {
    /// Whether it is; what the agent says without it, or yes with `every` or `prompt`.
    pub enabled: Option<bool>,
    /// After so many tool calls.
    #[schema(minimum = 1, example = 3)]
    pub every: Option<u32>,
    /// What it is asked.
    #[schema(min_length = 1, max_length = 16384)]
    pub prompt: Option<String>,
}

/// The rules of the loop that a request asks for.
pub fn read(
    tool_errors: Option<JsonObject<ToolErrorOptions>>,
    loop_guard: Option<JsonObject<LoopGuardOptions>>,
    planning: Option<JsonObject<PlanningOptions>>,
    reflection: Option<JsonObject<ReflectionOptions>>,
    context: Option<JsonObject<ContextOptions>>,
) -> Result<RulesPatch, WireError> {
    let JsonObject(ToolErrorOptions { end_run: ends_run }) = tool_errors.unwrap_or_default();
    if ends_run.len() > MOST_PATTERNS {
        let message = format!("must have at most {MOST_PATTERNS} names");
        return Err(WireError::invalid("agent.tool_errors.end_run", message));
    }
    let JsonObject(loop_guard) = loop_guard.unwrap_or_default();
    let JsonObject(planning) = planning.unwrap_or_default();
    let JsonObject(reflection) = reflection.unwrap_or_default();
    if reflection.every == Some(0) {
        return Err(WireError::invalid("agent.reflection.every", "must be above 0"));
    }
    Ok(RulesPatch {
        ends_run,
        loop_guard: loop_guard.check()?,
        planning: prompt("agent.planning.prompt", planning.enabled, planning.prompt)?,
        reflection: prompt("agent.reflection.prompt", reflection.enabled, reflection.prompt)?,
        reflect_every: reflection.every,
        context: context.unwrap_or_default().0.check()?,
    })
}

impl LoopGuardOptions {
    fn check(self) -> Result<LoopGuardPatch, WireError> {
        let Self { warn_after, stop_after, same_result_warn_after, same_result_stop_after } = self;
        let numbers = [
            ("warn_after", warn_after),
            ("stop_after", stop_after),
            ("same_result_warn_after", same_result_warn_after),
            ("same_result_stop_after", same_result_stop_after),
        ];
        match numbers.into_iter().find(|(_, number)| number.is_some_and(|number| number < 2)) {
            Some((name, _)) => Err(WireError::invalid(format!("agent.loop_guard.{name}"), "must be at least 2")),
            None => Ok(LoopGuardPatch { warn_after, stop_after, same_result_warn_after, same_result_stop_after }),
        }
    }
}

/// What is said of a prompt.
fn prompt(path: &str, enabled: Option<bool>, prompt: Option<String>) -> Result<PromptPatch, WireError> {
    let is_bad = |prompt: &String| prompt.trim().is_empty() || prompt.len() > MOST_PROMPT;
    if prompt.as_ref().is_some_and(is_bad) {
        return Err(WireError::invalid(path, format!("must be a text of 1 to {MOST_PROMPT} bytes")));
    }
    Ok(PromptPatch { enabled, prompt })
}
