//! A whole run as one chat completion.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::wire::RunNames;
use crate::api::wire::agent::object::AgentObject;
use crate::api::wire::chunk::completion_id;
use crate::api::wire::openai_chat::described::{ChatFinishReason, ChatToolCall};
use crate::api::wire::usage::UsageObject;
use crate::llm::openai::messages::CallJson;
use crate::types::{Outcome, StopReason};

/// A whole chat completion.
#[derive(Debug, Serialize, ToSchema)]
pub struct Completion<'a> {
    /// Of this response: a run that its client continues has several.
    #[schema(example = "chatcmpl-019a0000000070008000000000000000")]
    id: String,
    /// `chat.completion`.
    object: &'static str,
    /// Unix seconds.
    created: u64,
    /// The model or agent as it was asked for.
    model: &'a str,
    /// One.
    choices: [Choice<'a>; 1],
    /// Tokens of this response: since the run began, or its client answered.
    usage: UsageObject,
    /// How the run ended.
    agent: AgentObject<'a>,
}

/// The answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct Choice<'a> {
    /// 0.
    index: u32,
    /// The assistant's message.
    message: AssistantMessage<'a>,
    /// Always null.
    logprobs: Option<bool>,
    /// `stop`, `length`, `tool_calls` or `content_filter`.
    #[schema(value_type = Option<ChatFinishReason>)]
    finish_reason: Option<&'static str>,
}

/// The assistant's message.
#[derive(Debug, Serialize, ToSchema)]
pub struct AssistantMessage<'a> {
    /// `assistant`.
    role: &'static str,
    /// The final text; null where there are only calls, or the model declines.
    content: Option<&'a str>,
    /// The words in which the model declines to answer; null where it does not.
    refusal: Option<&'a str>,
    /// The calls that the client is to answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<ChatToolCall>>)]
    tool_calls: Vec<CallJson<'a>>,
}

/// The one object of a run that ended so.
pub fn completion<'a>(names: &'a RunNames, outcome: &'a Outcome, with_report: bool) -> Completion<'a> {
    let clients = outcome.required_calls.iter().filter(|_| !outcome.reason.is_told_in_words());
    let calls: Vec<CallJson<'_>> = clients.map(|required| CallJson::from(&required.call)).collect();
    let refusal = Some(outcome.refusal.as_str()).filter(|text| !text.is_empty());
    let says_otherwise = !calls.is_empty() || refusal.is_some();
    let content = Some(outcome.output_text.as_str()).filter(|text| !text.is_empty() || !says_otherwise);
    let message = AssistantMessage { role: "assistant", content, refusal, tool_calls: calls };
    let finish_reason = finish_reason(outcome.reason);
    Completion {
        id: completion_id(names),
        object: "chat.completion",
        created: names.created_ms / 1000,
        model: &names.model,
        choices: [Choice { index: 0, message, logprobs: None, finish_reason }],
        usage: outcome.leg_usage().into(),
        agent: AgentObject::new(&names.id, names.session.as_ref(), outcome, with_report),
    }
}

/// Why the answer ended, in OpenAI's words; a failed run has no answer.
pub fn finish_reason(reason: StopReason) -> Option<&'static str> {
    match reason {
        StopReason::Done
        | StopReason::NoReply
        | StopReason::AskUser
        | StopReason::Approval
        | StopReason::ToolPending
        | StopReason::Cancelled
        | StopReason::Abandoned => Some("stop"),
        StopReason::Length
        | StopReason::MaxIterations
        | StopReason::MaxToolCalls
        | StopReason::LoopGuard
        | StopReason::TokenBudget
        | StopReason::CostBudget
        | StopReason::Timeout => Some("length"),
        StopReason::ContentFilter | StopReason::Guardrail => Some("content_filter"),
        StopReason::ClientTools | StopReason::OutcomeAsked => Some("tool_calls"),
        StopReason::ProviderError
        | StopReason::ContextLimit
        | StopReason::EmptyResponse
        | StopReason::OutcomeUnknown
        | StopReason::ToolError
        | StopReason::CrashLoop
        | StopReason::StoreLostState
        | StopReason::InternalError => None,
    }
}
