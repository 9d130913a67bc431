//! A request's messages as input items.

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::api::wire::responses::id;
use crate::llm::openai::messages::parts;
use crate::types::conversation::{Part, PartKind, Source, lines};
use crate::types::{Message, Role, RunId};

/// The items of the messages that came with a request, with their ids.
pub fn items(run: &RunId, leg: u32, messages: &[Message]) -> Vec<(String, Box<RawValue>)> {
    let mut found = Vec::new();
    for message in messages {
        for mut item in of_message(message) {
            let id = id::given(run, leg, found.len());
            item["id"] = id.clone().into();
            found.push((id, to_raw_value(&item).expect("values are JSON")));
        }
    }
    found
}

/// A message as items, which have no ids.
pub fn of_message(message: &Message) -> Vec<Value> {
    let Ok(parts) = parts(message) else { return Vec::new() };
    let role = match message.role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::User => "user",
        Role::Assistant => return said(&parts.list),
        Role::Tool => return parts.list.iter().filter_map(Part::as_result).map(result).collect(),
    };
    let content: Vec<_> = parts.list.iter().filter_map(given).collect();
    vec![json!({"type": "message", "role": role, "status": "completed", "content": content})]
}

fn result(result: &crate::types::conversation::ToolResult) -> Value {
    json!({
        "type": "function_call_output", "call_id": result.call.as_str(), "output": lines(&result.parts),
        "status": "completed",
    })
}

/// What a model said, an item for each part.
fn said(parts: &[Part]) -> Vec<Value> {
    let item = |part: &Part| match &part.kind {
        PartKind::ToolCall(call) => Some(json!({
            "type": "function_call", "call_id": call.id.as_str(), "name": call.name, "arguments": call.arguments,
            "status": "completed",
        })),
        PartKind::Text(text) => Some(json!({
            "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
        })),
        PartKind::Refusal(text) => Some(json!({
            "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "refusal", "refusal": text}],
        })),
        PartKind::Thinking(_)
        | PartKind::Image { .. }
        | PartKind::Audio { .. }
        | PartKind::File { .. }
        | PartKind::Link(_)
        | PartKind::ToolResult(_)
        | PartKind::Unknown { .. } => None,
    };
    parts.iter().filter_map(item).collect()
}

/// A part of what the caller says.
fn given(part: &Part) -> Option<Value> {
    let url = |source: &Source| match source {
        Source::Url(url) => url.clone(),
        Source::Base64 { media_type, data } => format!("data:{media_type};base64,{data}"),
        Source::Id(id) => id.clone(),
    };
    match &part.kind {
        PartKind::Text(text) => Some(json!({"type": "input_text", "text": text})),
        PartKind::Image { source, detail } => Some(json!({
            "type": "input_image", "image_url": url(source), "detail": detail.as_deref().unwrap_or("auto"),
        })),
        PartKind::File { source, name } => Some(match source {
            Source::Url(url) => json!({"type": "input_file", "file_url": url, "filename": name}),
            source @ (Source::Base64 { .. } | Source::Id(_)) => {
                json!({"type": "input_file", "file_data": url(source), "filename": name})
            }
        }),
        PartKind::Audio { source: Source::Base64 { media_type, data } } => {
            let format = media_type.strip_prefix("audio/").unwrap_or(media_type);
            Some(json!({"type": "input_audio", "input_audio": {"data": data, "format": format}}))
        }
        PartKind::Audio { .. }
        | PartKind::Refusal(_)
        | PartKind::Thinking(_)
        | PartKind::Link(_)
        | PartKind::ToolCall(_)
        | PartKind::ToolResult(_)
        | PartKind::Unknown { .. } => None,
    }
}
