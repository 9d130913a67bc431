//! One input item, as what the conversation knows.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::agent::CallApproval;
use crate::api::wire::body::{clip, located, missing};
use crate::api::wire::error::WireError;
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::responses::content::read_content;
use crate::api::wire::responses::{id, tool_names};
use crate::types::approval::ApprovalDecision;
use crate::types::conversation::{Part, ToolResult};
use crate::types::json::RawValueEq;
use crate::types::{CallId, Role, ToolCall};

/// Items of transcripts that were made elsewhere: what they are about is not here.
const DROPPED: [&str; 16] = [
    "apply_patch_call",
    "apply_patch_call_output",
    "code_interpreter_call",
    "compaction",
    "computer_call",
    "computer_call_output",
    "file_search_call",
    "image_generation_call",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_list_tools",
    "shell_call",
    "shell_call_output",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
];
/// What a model is told of a call whose transcript has no result.
const NO_RESULT: &str = "The call has no result.";

/// An item as it is written.
#[derive(Deserialize)]
struct View<'a> {
    r#type: Option<String>,
    role: Option<String>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    id: Option<String>,
    call_id: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    server_label: Option<String>,
    /// A text in items that are used.
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    approval_request_id: Option<String>,
    approve: Option<bool>,
    reason: Option<String>,
}

/// What an item says.
#[derive(Debug)]
pub enum Item {
    /// A message.
    Message(Role, Vec<Part>),
    /// A call of the client's tools.
    Call(ToolCall),
    /// What a call came to.
    Output(ToolResult),
    /// A call that the server made, and what it came to.
    Made(ToolCall, ToolResult),
    /// A decision about a call.
    Approval(CallApproval),
    /// Another item.
    Reference(String),
    /// That a call waits, or waited, for an approval.
    Asked,
    /// Nothing that is not known otherwise.
    Known,
    /// Nothing that could be used: an item of this type.
    Dropped(String),
}

/// Reads an item; errors name a path in it.
pub fn read_item(json: &str) -> Result<Item, WireError> {
    let JsonObject(view): JsonObject<View<'_>> = located(json)?;
    let kind = match (&view.r#type, &view.role) {
        (Some(kind), _) => kind.as_str(),
        (None, Some(_)) => "message",
        // A reference may be written as an id alone.
        (None, None) if view.id.is_some() => "item_reference",
        (None, None) => return Err(missing("type")),
    };
    match kind {
        "message" => read_message(view),
        "function_call" => {
            let arguments = read_text(view.arguments, "arguments")?.ok_or_else(|| missing("arguments"))?;
            Ok(Item::Call(read_call(view, arguments)?))
        }
        "custom_tool_call" => {
            let input = read_text(view.input, "input")?.ok_or_else(|| missing("input"))?;
            let arguments = serde_json::json!({ "input": input }).to_string();
            Ok(Item::Call(read_call(view, arguments)?))
        }
        "function_call_output" | "custom_tool_call_output" => read_output(&view),
        "mcp_call" => read_made(view),
        "mcp_approval_response" => read_approval(view),
        "item_reference" => Ok(Item::Reference(view.id.ok_or_else(|| missing("id"))?)),
        "agent_message" => {
            let content = view.content.ok_or_else(|| missing("content"))?;
            let parts = read_content(content, Role::User).map_err(|error| error.within("content"))?;
            Ok(Item::Message(Role::User, parts))
        }
        "mcp_approval_request" => Ok(Item::Asked),
        "reasoning" => Ok(Item::Known),
        other if DROPPED.contains(&other) => Ok(Item::Dropped(other.to_owned())),
        other => Err(WireError::invalid("type", format!("items of the type {:?} are not known", clip(other)))),
    }
}

fn read_message(view: View<'_>) -> Result<Item, WireError> {
    let role = match view.role.ok_or_else(|| missing("role"))?.as_str() {
        "system" => Role::System,
        "developer" => Role::Developer,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => {
            let message = format!("{:?} is not a role: use system, developer, user or assistant", clip(other));
            return Err(WireError::invalid("role", message));
        }
    };
    let content = view.content.ok_or_else(|| missing("content"))?;
    let parts = read_content(content, role).map_err(|error| error.within("content"))?;
    Ok(Item::Message(role, parts))
}

/// A text, if it is given.
fn read_text(raw: Option<&RawValue>, member: &str) -> Result<Option<String>, WireError> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
    serde_json::from_str(raw.get()).map(Some).map_err(|_| WireError::invalid(member, "must be a string"))
}

fn read_call(view: View<'_>, arguments: String) -> Result<ToolCall, WireError> {
    let own = named(view.name, "name")?;
    let name = view.namespace.map_or_else(|| own.clone(), |namespace| tool_names::joined(&namespace, &own));
    let id = CallId::foreign(&named(view.call_id, "call_id")?);
    Ok(ToolCall { id, name, arguments })
}

/// A text that is there and not empty.
fn named(text: Option<String>, member: &str) -> Result<String, WireError> {
    let text = text.ok_or_else(|| missing(member))?;
    if text.is_empty() { Err(WireError::invalid(member, "must not be empty")) } else { Ok(text) }
}

fn read_output(view: &View<'_>) -> Result<Item, WireError> {
    let call = CallId::foreign(&named(view.call_id.clone(), "call_id")?);
    let output = view.output.ok_or_else(|| missing("output"))?;
    let parts = match output.get().as_bytes().first() {
        Some(b'"' | b'[') => read_content(output, Role::Tool).map_err(|error| error.within("output"))?,
        // Some clients send the object itself.
        _ => vec![Part::text(output.get())],
    };
    Ok(Item::Output(ToolResult { call, parts, structured: None::<RawValueEq>, is_error: false }))
}

/// A call of the server's tools, with its result.
fn read_made(view: View<'_>) -> Result<Item, WireError> {
    let own = named(view.name, "name")?;
    let label = view.server_label.unwrap_or_else(|| tool_names::OWN.to_owned());
    let given = view.id.unwrap_or_default();
    let id = id::read_call("mcp", &given).unwrap_or_else(|| CallId::foreign(&given));
    if given.is_empty() {
        return Err(missing("id"));
    }
    let is_given = |raw: &&RawValue| raw.get() != "null";
    let (text, is_error) = match (view.output.filter(is_given), view.error.filter(is_given)) {
        (Some(output), _) => (text_of(output), false),
        (None, Some(error)) => (error_text(error), true),
        (None, None) => (NO_RESULT.to_owned(), true),
    };
    let call = ToolCall {
        id: id.clone(),
        name: tool_names::joined(&label, &own),
        arguments: read_text(view.arguments, "arguments")?.unwrap_or_else(|| "{}".to_owned()),
    };
    let result = ToolResult { call: id, parts: vec![Part::text(text)], structured: None, is_error };
    Ok(Item::Made(call, result))
}

/// A text, or JSON as it is written.
fn text_of(raw: &RawValue) -> String {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned())
}

/// What an item's error says: a text, or the texts of its content.
fn error_text(raw: &RawValue) -> String {
    #[derive(Deserialize)]
    struct View {
        content: Vec<Text>,
    }
    #[derive(Deserialize)]
    struct Text {
        text: String,
    }
    match serde_json::from_str::<View>(raw.get()) {
        Ok(View { content }) => content.into_iter().map(|part| part.text).collect::<Vec<_>>().join("\n"),
        Err(_) => text_of(raw),
    }
}

fn read_approval(view: View<'_>) -> Result<Item, WireError> {
    let asked = named(view.approval_request_id, "approval_request_id")?;
    let call = id::read_call("mcpr", &asked).ok_or_else(|| {
        let message = format!("there is no approval request {:?}", clip(&asked));
        WireError::invalid("approval_request_id", message)
    })?;
    let approve = view.approve.ok_or_else(|| missing("approve"))?;
    let decision = if approve { ApprovalDecision::Approve } else { ApprovalDecision::Deny };
    let reason = view.reason.filter(|reason| !reason.is_empty());
    Ok(Item::Approval(CallApproval { call, decision, digest: None, reason, arguments: None, result: None }))
}
