//! The response object.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::wire::agent::object::AgentObject;
use crate::types::json::RawValueEq;
use crate::types::response::{Echo, ResponseTerms};
use crate::types::{SessionId, Usage};

/// A response: what its request asked for, and what came of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResponseObject<'a> {
    /// Its id.
    #[schema(example = "resp_019a0000000070008000000000000000")]
    pub id: &'a str,
    /// `response`.
    pub object: &'static str,
    /// Unix seconds.
    pub created_at: u64,
    /// Unix seconds, once it is completed.
    pub completed_at: Option<u64>,
    /// `queued`, `in_progress`, `completed`, `incomplete`, `cancelled` or `failed`.
    pub status: &'static str,
    /// Why it failed.
    pub error: Option<FailureObject<'a>>,
    /// Why it is incomplete.
    pub incomplete_details: Option<IncompleteDetails>,
    /// The request's instructions.
    pub instructions: Option<&'a str>,
    /// Most output tokens.
    pub max_output_tokens: Option<u64>,
    /// Most calls of the server's tools.
    pub max_tool_calls: Option<u32>,
    /// The model or agent as it was asked for.
    pub model: &'a str,
    /// What was said and done.
    #[schema(value_type = Vec<Value>)]
    pub output: Vec<&'a RawValue>,
    /// Whether several tools may be called in one turn.
    pub parallel_tool_calls: bool,
    /// The response that it continues.
    pub previous_response_id: Option<&'a str>,
    /// Groups requests for the upstream's cache.
    pub prompt_cache_key: Option<&'a str>,
    /// How much the model thinks.
    pub reasoning: ReasoningObject<'a>,
    /// The end user, for the upstream's safety checks.
    pub safety_identifier: Option<&'a str>,
    /// `default`.
    pub service_tier: &'static str,
    /// Whether it can be read and continued by its id.
    pub store: bool,
    /// How freely tokens are chosen.
    pub temperature: f64,
    /// The form and the length of the answer.
    pub text: TextObject<'a>,
    /// Which tools may be chosen.
    #[schema(value_type = Value)]
    pub tool_choice: Choice<'a>,
    /// The request's tools.
    #[schema(value_type = Vec<Value>)]
    pub tools: &'a [RawValueEq],
    /// 0.
    pub top_logprobs: u32,
    /// The share of probability from which tokens are chosen.
    pub top_p: f64,
    /// `auto` or `disabled`.
    pub truncation: &'a str,
    /// Tokens of all model calls, once it ended.
    pub usage: Option<ResponseUsage>,
    /// The caller's notes.
    pub metadata: &'a BTreeMap<String, String>,
    /// Whether its request was answered at once.
    pub background: bool,
    /// 0.
    pub frequency_penalty: f64,
    /// 0.
    pub presence_penalty: f64,
    /// The session that it is of.
    pub conversation: Option<ConversationObject<'a>>,
    /// How the run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentObject<'a>>,
}

/// Why a response failed.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FailureObject<'a> {
    /// The code to branch on.
    pub code: &'static str,
    /// One or two sentences.
    pub message: &'a str,
    /// The kind of error.
    pub r#type: &'static str,
    /// Null.
    pub param: Option<&'a str>,
}

/// Why a response is incomplete.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct IncompleteDetails {
    /// `max_output_tokens`, `content_filter` or `cancelled`.
    pub reason: &'static str,
}

/// How much the model thinks.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReasoningObject<'a> {
    effort: Option<&'a str>,
    summary: Option<&'a str>,
}

/// The form and the length of the answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct TextObject<'a> {
    #[schema(value_type = Value)]
    format: Format<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verbosity: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Format<'a> {
    Given(&'a RawValueEq),
    Text { r#type: &'static str },
}

/// Which tools may be chosen.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Choice<'a> {
    /// As the request says.
    Given(&'a RawValueEq),
    /// Left to the model.
    Auto(&'static str),
}

/// The session of a response.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConversationObject<'a> {
    id: &'a str,
}

/// Tokens, as responses count them.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct ResponseUsage {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
}

/// About the input tokens.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct InputDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

/// About the output tokens.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct OutputDetails {
    reasoning_tokens: u64,
}

impl From<&Usage> for ResponseUsage {
    fn from(usage: &Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: usage.cached_tokens,
                cache_write_tokens: usage.cache_write_tokens,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputDetails { reasoning_tokens: usage.reasoning_tokens },
            total_tokens: usage.total(),
        }
    }
}

impl<'a> ResponseObject<'a> {
    /// A response of this request that has said nothing yet.
    pub fn begun(id: &'a str, model: &'a str, session: Option<&'a SessionId>, terms: &'a ResponseTerms) -> Self {
        let echo: &Echo = &terms.echo;
        Self {
            id,
            object: "response",
            created_at: 0,
            completed_at: None,
            status: "in_progress",
            error: None,
            incomplete_details: None,
            instructions: echo.instructions.as_deref(),
            max_output_tokens: echo.max_output_tokens,
            max_tool_calls: echo.max_tool_calls,
            model,
            output: Vec::new(),
            parallel_tool_calls: echo.parallel_tool_calls.unwrap_or(true),
            previous_response_id: terms.previous.as_deref(),
            prompt_cache_key: echo.prompt_cache_key.as_deref(),
            reasoning: ReasoningObject { effort: echo.effort.as_deref(), summary: None },
            safety_identifier: echo.safety_identifier.as_deref(),
            service_tier: "default",
            store: terms.store,
            temperature: echo.temperature.unwrap_or(1.0),
            text: TextObject {
                format: echo.format.as_ref().map_or(Format::Text { r#type: "text" }, Format::Given),
                verbosity: echo.verbosity.as_deref(),
            },
            tool_choice: echo.tool_choice.as_ref().map_or(Choice::Auto("auto"), Choice::Given),
            tools: &echo.tools,
            top_logprobs: 0,
            top_p: echo.top_p.unwrap_or(1.0),
            truncation: echo.truncation.as_deref().unwrap_or("disabled"),
            usage: None,
            metadata: &echo.metadata,
            background: terms.background,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            conversation: session.map(|id| ConversationObject { id: id.as_str() }),
            agent: None,
        }
    }
}
