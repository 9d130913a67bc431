//! The `agent` object of a request.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::agent::{GuardsPatch, LimitsPatch};
use crate::api::wire::agent::context::ContextOptions;
use crate::api::wire::agent::policy::{ApprovalOptions, PolicyOptions};
use crate::api::wire::agent::prompt::PromptOptions;
use crate::api::wire::agent::rules::{LoopGuardOptions, PlanningOptions, ReflectionOptions, ToolErrorOptions};
use crate::api::wire::body::{bad_money, bad_tokens};
use crate::api::wire::error::WireError;
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::vocabulary::{
    InputModeText, OnConflictText, OnDisconnectText, OnLimitText, OnUnknownOutcomeText,
};
use crate::types::Micros;
use crate::types::guard::{InputMode, ResultBounds};
use crate::types::run::{OnConflict, OnDisconnect, OnLimit, OnUnknownOutcome};

/// What Loopgate adds to OpenAI's request. An unknown field here is an error.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentOptions {
    /// The conversation that this continues; created if it does not exist.
    #[schema(example = "sess_42", pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    pub session_id: Option<String>,
    /// The waiting run that the request's tool messages answer.
    pub run_id: Option<String>,
    /// Names and globs of the server's tools; all of the agent's without it.
    #[schema(example = json!(["calculator", "current_time"]))]
    pub tools: Option<Vec<String>>,
    /// Rules for the run's tool calls, beside those of server, key and agent: the strictest counts.
    #[schema(value_type = Option<PolicyOptions>)]
    pub policy: Option<JsonObject<PolicyOptions>>,
    /// How the run asks for the approval of calls.
    #[schema(value_type = Option<ApprovalOptions>)]
    pub approval: Option<JsonObject<ApprovalOptions>>,
    /// Narrower limits than the agent's.
    #[schema(value_type = Option<LimitOptions>)]
    pub limits: Option<JsonObject<LimitOptions>>,
    /// What a failed tool call does, beside what the agent says.
    #[schema(value_type = Option<ToolErrorOptions>)]
    pub tool_errors: Option<JsonObject<ToolErrorOptions>>,
    /// When a model that repeats its tool calls is warned and stopped: earlier than the agent says.
    #[schema(value_type = Option<LoopGuardOptions>)]
    pub loop_guard: Option<JsonObject<LoopGuardOptions>>,
    /// Whether the first model call of a conversation asks for a plan.
    #[schema(value_type = Option<PlanningOptions>)]
    pub planning: Option<JsonObject<PlanningOptions>>,
    /// Whether the model is asked from time to time how far it has come.
    #[schema(value_type = Option<ReflectionOptions>)]
    pub reflection: Option<JsonObject<ReflectionOptions>>,
    /// How a conversation is shortened that grows too long.
    #[schema(value_type = Option<ContextOptions>)]
    pub context: Option<JsonObject<ContextOptions>>,
    /// What its prompt has beside the agent's.
    #[schema(value_type = Option<PromptOptions>)]
    pub prompt: Option<JsonObject<PromptOptions>>,
    /// Stricter guards than the agent's.
    #[schema(value_type = Option<GuardOptions>)]
    pub guards: Option<JsonObject<GuardOptions>>,
    /// What happens at a limit: `stop`, `synthesize` or `error`.
    #[schema(value_type = Option<OnLimitText>)]
    pub on_limit: Option<OnLimit>,
    /// What happens when the last reader has gone: `cancel` or `continue`.
    #[schema(value_type = Option<OnDisconnectText>)]
    pub on_disconnect: Option<OnDisconnect>,
    /// When it is unknown whether a call with side effects took effect: `fail`, `ask` or `tell_model`.
    #[schema(value_type = Option<OnUnknownOutcomeText>)]
    pub on_unknown_outcome: Option<OnUnknownOutcome>,
    /// When the session has a live run: `reject`, `enqueue`, `interrupt` or `concurrent`.
    #[schema(value_type = Option<OnConflictText>)]
    pub on_conflict: Option<OnConflict>,
    /// How long a run outlives its last reader, in milliseconds.
    pub reconnect_grace_ms: Option<u64>,
    /// Whether to say what the run would be, in place of a run: nothing is called, stored or reserved.
    pub dry_run: Option<bool>,
    /// Whether to answer at once with the run's id and go on without a reader.
    pub background: Option<bool>,
    /// What the stream shows beside text.
    pub events: Option<EventsMode>,
    /// Whether a stream of native events shows all that happens in the runs to which this one delegates; what the agent says without
    /// it.
    pub delegate_events: Option<bool>,
    /// Whether the last event and the plain response bear the report.
    pub include_report: Option<bool>,
    /// Whether text is shown that turns out not to be the last step's.
    pub intermediate_text: Option<IntermediateText>,
    /// Whether arguments are shown as the model writes them.
    pub stream_tool_arguments: Option<bool>,
}

/// Bounds of one run; asking for more than the agent's is an error.
#[derive(Debug, Default, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitOptions {
    /// Most model calls.
    #[schema(example = 20, minimum = 1)]
    pub max_iterations: Option<u32>,
    /// Most calls of server-side tools.
    #[schema(minimum = 1)]
    pub max_tool_calls: Option<u32>,
    /// From start to end, in milliseconds.
    #[schema(minimum = 1)]
    pub timeout_ms: Option<u64>,
    /// For each tool call, in milliseconds.
    #[schema(minimum = 1)]
    pub tool_timeout_ms: Option<u64>,
    /// Most input and output tokens.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_992_u64)]
    pub token_budget: Option<u64>,
    /// Most money, in US dollars.
    #[schema(exclusive_minimum = 0, maximum = 1_000_000_000)]
    pub cost_budget_usd: Option<f64>,
}

/// Guards of one run; asking for less than the agent's is an error.
#[derive(Debug, Default, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GuardOptions {
    /// What happens to messages that look like attempts to instruct the model in the operator's place.
    #[schema(value_type = Option<InputModeText>)]
    pub input: Option<InputMode>,
    /// Most characters of a message of a user.
    #[schema(minimum = 1)]
    pub max_message_chars: Option<u32>,
    /// Most bytes that are kept of the result of a tool call.
    #[schema(minimum = 1024)]
    pub max_tool_result_bytes: Option<usize>,
}

impl GuardOptions {
    /// The guards, each of which lets something pass.
    pub fn check(self) -> Result<GuardsPatch, WireError> {
        let Self { input, max_message_chars, max_tool_result_bytes } = self;
        if max_message_chars == Some(0) {
            let message = "must be above 0; leave it out for the agent's limit";
            return Err(WireError::invalid("agent.guards.max_message_chars", message));
        }
        if max_tool_result_bytes.is_some_and(|bytes| bytes < ResultBounds::LEAST_BYTES) {
            let message = format!("must be at least {}; leave it out for the agent's limit", ResultBounds::LEAST_BYTES);
            return Err(WireError::invalid("agent.guards.max_tool_result_bytes", message));
        }
        Ok(GuardsPatch { input, max_message_chars, max_tool_result_bytes })
    }
}

/// What a stream shows beside text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventsMode {
    /// Named events with ids.
    Native,
    /// OpenAI's chunks, other events riding on them in a field `loopgate`.
    Extension,
    /// Nothing but OpenAI's chunks.
    None,
    /// The chunks of the AI SDK's UI messages.
    #[serde(rename = "ai-sdk")]
    AiSdk,
    /// The events of AG-UI.
    #[serde(rename = "ag-ui")]
    AgUi,
}

/// Whether text of a step that goes on to call tools is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum IntermediateText {
    /// As it comes.
    Show,
    /// Text is held until its step is known to be the last.
    Hide,
}

impl LimitOptions {
    /// The bounds, each above nothing.
    pub fn check(self) -> Result<LimitsPatch, WireError> {
        let path = |name: &str| format!("agent.limits.{name}");
        let whole = [
            ("max_iterations", self.max_iterations.map(u64::from)),
            ("max_tool_calls", self.max_tool_calls.map(u64::from)),
            ("timeout_ms", self.timeout_ms),
            ("tool_timeout_ms", self.tool_timeout_ms),
        ];
        for (name, value) in whole {
            if value == Some(0) {
                return Err(WireError::invalid(path(name), "must be above 0; leave it out for the agent's limit"));
            }
        }
        let money = self.cost_budget_usd;
        if let Some(wrong) = bad_tokens(self.token_budget, "the agent's limit") {
            return Err(WireError::invalid(path("token_budget"), wrong));
        }
        if let Some(wrong) = bad_money(money, "the agent's limit") {
            return Err(WireError::invalid(path("cost_budget_usd"), wrong));
        }
        Ok(LimitsPatch {
            max_iterations: self.max_iterations,
            max_tool_calls: self.max_tool_calls,
            timeout_ms: self.timeout_ms,
            tool_timeout_ms: self.tool_timeout_ms,
            token_budget: self.token_budget,
            cost_budget: money.map(Micros::from_usd),
        })
    }
}
