//! One block of a request, as what the conversation knows.

use serde_json::value::RawValue;

use crate::api::wire::body::missing;
use crate::api::wire::error::WireError;
use crate::api::wire::messages::content::{View, not_allowed, read_parts, read_shown};
use crate::api::wire::responses::{id, tool_names};
use crate::types::conversation::{Part, ToolResult};
use crate::types::{CallId, ToolCall};

/// Blocks about tools of the vendor's own servers: what they are about is not here.
const DROPPED: [&str; 10] = [
    "bash_code_execution_tool_result",
    "code_execution_tool_result",
    "compaction",
    "container_upload",
    "mcp_list_tools",
    "server_tool_use",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "web_fetch_tool_result",
    "web_search_tool_result",
];

/// Who says a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    /// Who asks.
    User,
    /// The model.
    Assistant,
}

/// What a block says.
#[derive(Debug)]
pub(super) enum Block {
    /// Text, pictures and documents.
    Said(Vec<Part>),
    /// A call of the client's tools.
    Call(ToolCall),
    /// What a call of the client's tools came to.
    Result(ToolResult),
    /// A call that the server made.
    Made(ToolCall),
    /// What a call of the server came to.
    MadeResult(ToolResult),
    /// Thinking, which only the model that wrote it could know again. The run that goes on has it.
    Thinking,
    /// Nothing that could be used: a block of this type.
    Dropped(String),
}

/// Reads a block; errors name a path in it.
pub(super) fn read_block(view: View<'_>, speaker: Speaker) -> Result<Block, WireError> {
    match (view.r#type.as_str(), speaker) {
        ("tool_result", Speaker::User) => Ok(Block::Result(read_result(&view, "toolu")?)),
        ("text" | "image" | "document" | "search_result", Speaker::User) | ("text", Speaker::Assistant) => {
            read_shown(&view).map(Block::Said)
        }
        ("tool_use", Speaker::Assistant) => Ok(Block::Call(read_call(&view, "toolu")?)),
        ("mcp_tool_use", Speaker::Assistant) => Ok(Block::Made(read_call(&view, "mcptoolu")?)),
        ("mcp_tool_result", _) => Ok(Block::MadeResult(read_result(&view, "mcptoolu")?)),
        ("thinking" | "redacted_thinking", Speaker::Assistant) => Ok(Block::Thinking),
        (dropped, _) if DROPPED.contains(&dropped) => Ok(Block::Dropped(view.r#type)),
        _ => Err(not_allowed(&view)),
    }
}

fn read_call(view: &View<'_>, prefix: &str) -> Result<ToolCall, WireError> {
    let own = named(view.name.as_deref(), "name")?;
    let input = view.input.ok_or_else(|| missing("input"))?;
    if !input.get().starts_with('{') {
        return Err(WireError::invalid("input", "must be an object"));
    }
    let name = match &view.server_name {
        Some(server) => tool_names::joined(server, own),
        None => own.to_owned(),
    };
    let id = call_id(named(view.id.as_deref(), "id")?, prefix);
    Ok(ToolCall { id, name, arguments: input.get().to_owned() })
}

fn read_result(view: &View<'_>, prefix: &str) -> Result<ToolResult, WireError> {
    let call = call_id(named(view.tool_use_id.as_deref(), "tool_use_id")?, prefix);
    let content = view.content.filter(|content: &&RawValue| content.get() != "null");
    let parts = content.map(read_parts).transpose().map_err(|error| error.within("content"))?.unwrap_or_default();
    let parts = if parts.is_empty() { vec![Part::text("")] } else { parts };
    Ok(ToolResult { call, parts, structured: None, is_error: view.is_error.unwrap_or(false) })
}

/// The call that an id names: one of ours, or one of a transcript that was made elsewhere.
fn call_id(text: &str, prefix: &str) -> CallId {
    id::read_call(prefix, text).unwrap_or_else(|| CallId::foreign(text))
}

/// A text that is there and not empty.
fn named<'v>(text: Option<&'v str>, member: &str) -> Result<&'v str, WireError> {
    let text = text.ok_or_else(|| missing(member))?;
    if text.is_empty() { Err(WireError::invalid(member, "must not be empty")) } else { Ok(text) }
}
