//! The message object, and its blocks as clients are shown them.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

use crate::api::wire::agent::object::AgentObject;
use crate::api::wire::responses::{id, tool_names};
use crate::types::{ToolCall, Usage};

/// A message: what its run said and did.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MessagesObject)]
pub struct MessageObject<'a> {
    /// Its id.
    #[schema(example = "msg_019a0000000070008000000000000000")]
    pub id: &'a str,
    /// `message`.
    pub r#type: &'static str,
    /// `assistant`.
    pub role: &'static str,
    /// The model or agent as it was asked for.
    pub model: &'a str,
    /// What was said and done.
    #[schema(value_type = Vec<Value>)]
    pub content: Vec<&'a RawValue>,
    /// `end_turn`, `max_tokens`, `tool_use`, `pause_turn` or `refusal`, once it ends.
    pub stop_reason: Option<&'static str>,
    /// Unknown: null.
    pub stop_sequence: Option<&'static str>,
    /// Null.
    pub stop_details: Option<&'static str>,
    /// Null.
    pub container: Option<&'static str>,
    /// What all of its model calls took.
    pub usage: MessageUsage,
    /// What Loopgate adds to Anthropic's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentObject<'a>>,
}

/// What model calls took.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct MessageUsage {
    /// Input tokens that were neither read from the upstream's cache nor written to it.
    pub input_tokens: u64,
    /// Those that were written to it.
    pub cache_creation_input_tokens: u64,
    /// Those that were read from it.
    pub cache_read_input_tokens: u64,
    /// Null.
    pub cache_creation: Option<u64>,
    /// Output tokens, thinking included.
    pub output_tokens: u64,
    /// Null.
    pub server_tool_use: Option<u64>,
    /// `standard`.
    pub service_tier: &'static str,
    /// Null.
    pub inference_geo: Option<&'static str>,
}

impl MessageUsage {
    /// What a first call takes in, by estimate.
    pub fn estimated(input_tokens: u64) -> Self {
        Self::from(&Usage { prompt_tokens: input_tokens, ..Usage::default() })
    }
}

impl From<&Usage> for MessageUsage {
    fn from(usage: &Usage) -> Self {
        let cached = usage.cached_tokens.saturating_add(usage.cache_write_tokens);
        Self {
            input_tokens: usage.prompt_tokens.saturating_sub(cached),
            cache_creation_input_tokens: usage.cache_write_tokens,
            cache_read_input_tokens: usage.cached_tokens,
            cache_creation: None,
            output_tokens: usage.completion_tokens,
            server_tool_use: None,
            service_tier: "standard",
            inference_geo: None,
        }
    }
}

/// What the last event of a stream says of its usage.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "clients read these names")]
pub struct DeltaUsage {
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
}

impl From<MessageUsage> for DeltaUsage {
    fn from(usage: MessageUsage) -> Self {
        let MessageUsage { input_tokens, cache_creation_input_tokens, cache_read_input_tokens, output_tokens, .. } =
            usage;
        Self { input_tokens, cache_creation_input_tokens, cache_read_input_tokens, output_tokens }
    }
}

/// A block of a message.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutBlock<'a> {
    /// What the model says.
    Text {
        /// It.
        text: &'a str,
    },
    /// What the model thinks.
    Thinking {
        /// It.
        thinking: &'a str,
        /// By which clients send it back.
        signature: &'a str,
    },
    /// A call of the client's tools.
    ToolUse {
        /// Its id.
        id: String,
        /// The tool.
        name: &'a str,
        /// Its arguments.
        input: &'a RawValue,
        /// Who calls.
        caller: Direct,
    },
    /// A call of the server's tools.
    McpToolUse {
        /// Its id.
        id: String,
        /// The tool's own name.
        name: &'a str,
        /// Where the tool is.
        server_name: &'a str,
        /// Its arguments.
        input: &'a RawValue,
    },
    /// What a call of the server's tools came to.
    McpToolResult {
        /// The call.
        tool_use_id: String,
        /// Whether it failed.
        is_error: bool,
        /// What it said.
        content: [TextBlock; 1],
    },
}

/// The model itself.
#[derive(Debug, Serialize)]
pub struct Direct {
    r#type: &'static str,
}

/// A block of text in a result.
#[derive(Debug, Serialize)]
pub struct TextBlock {
    r#type: &'static str,
    text: String,
}

impl<'a> OutBlock<'a> {
    /// A call of the client's tools with these arguments.
    pub fn of_client(call: &'a ToolCall, input: &'a RawValue) -> Self {
        let id = id::of_call("toolu", &call.id);
        Self::ToolUse { id, name: &call.name, input, caller: Direct { r#type: "direct" } }
    }

    /// A call of the server's tools with these arguments.
    pub fn of_server(call: &'a ToolCall, input: &'a RawValue) -> Self {
        let (server_name, name) = tool_names::split(&call.name);
        Self::McpToolUse { id: id::of_call("mcptoolu", &call.id), name, server_name, input }
    }

    /// What a call of the server's tools came to.
    pub fn result(call: &ToolCall, text: String, is_error: bool) -> Self {
        let content = [TextBlock { r#type: "text", text }];
        Self::McpToolResult { tool_use_id: id::of_call("mcptoolu", &call.id), is_error, content }
    }
}

/// The arguments of a call as the object that they are meant to be.
pub fn input_of(call: &ToolCall) -> Box<RawValue> {
    let text = call.arguments.trim();
    let object = text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten();
    object.unwrap_or_else(|| {
        let members =
            if text.is_empty() { serde_json::json!({}) } else { serde_json::json!({"malformed_arguments": text}) };
        to_raw_value(&members).expect("values are JSON")
    })
}

/// An object without members.
pub fn no_input() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("it is JSON")
}
