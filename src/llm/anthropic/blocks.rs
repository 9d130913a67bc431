//! A message as blocks, separated by commas.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::media;
use crate::llm::call_id::portable;
use crate::llm::kept;
use crate::llm::object::Object;
use crate::types::conversation::{Dialect, Message, Part, PartKind, Parts, Proof, Thinking, ToolCall, ToolResult};
use crate::types::json::Members;

/// The blocks of a message for the model that signs as `author`; empty if the dialect has no place for anything in it.
pub(super) fn blocks<'m>(message: &'m Message, author: &str) -> Cow<'m, str> {
    kept::encoded(message, Dialect::AnthropicMessages, |parts| encode(parts, author))
}

fn encode(parts: &Parts, author: &str) -> String {
    let mut out = Vec::new();
    write_list(&parts.list, author, &mut out);
    String::from_utf8(out).expect("it was written from strings")
}

fn write_list(parts: &[Part], author: &str, out: &mut Vec<u8>) {
    let mut is_first = true;
    for part in parts {
        let begin = out.len();
        if !is_first {
            out.push(b',');
        }
        if write(part, author, out) {
            is_first = false;
        } else {
            out.truncate(begin);
        }
    }
}

/// Writes a part; `false` if the dialect has no place for it.
fn write(part: &Part, author: &str, out: &mut Vec<u8>) -> bool {
    match &part.kind {
        PartKind::Text(text) | PartKind::Refusal(text) => write_text(text, out),
        PartKind::Thinking(thinking) => write_thinking(thinking, author, out),
        PartKind::Image { source, .. } => media::write_image(source, out) || write_text(&part.in_words(), out),
        PartKind::File { source, name } => {
            media::write_document(source, name.as_deref(), out) || write_text(&part.in_words(), out)
        }
        PartKind::Audio { .. } | PartKind::Link(_) => write_text(&part.in_words(), out),
        PartKind::ToolCall(call) => write_call(call, out),
        PartKind::ToolResult(result) => write_result(result, author, out),
        PartKind::Unknown { dialect: Dialect::AnthropicMessages, json, .. } => {
            out.extend_from_slice(json.get().as_bytes());
            true
        }
        PartKind::Unknown {
            dialect: Dialect::OpenaiChat | Dialect::OpenaiResponses | Dialect::GeminiContents, ..
        } => false,
    }
}

/// The API refuses blocks of text without any.
fn write_text(text: &str, out: &mut Vec<u8>) -> bool {
    if text.trim().is_empty() {
        return false;
    }
    let mut object = Object::new(out);
    object.text("type", "text");
    object.text("text", text);
    object.close();
    true
}

/// Thinking goes back as it came, and only to the model that sealed it: any other would refuse it.
fn write_thinking(thinking: &Thinking, author: &str, out: &mut Vec<u8>) -> bool {
    let Some(seal) = thinking.seal.as_ref().filter(|seal| seal.author == author) else { return false };
    match &seal.proof {
        Proof::Signature(signature) => {
            let mut object = Object::new(out);
            object.text("type", "thinking");
            object.text("thinking", &thinking.text);
            object.text("signature", signature);
            object.close();
        }
        Proof::Encrypted(data) => {
            let mut object = Object::new(out);
            object.text("type", "redacted_thinking");
            object.text("data", data);
            object.close();
        }
        // This API signs no other parts, and all thinking.
        Proof::Following(_) | Proof::Unsigned => return false,
    }
    true
}

fn write_call(call: &ToolCall, out: &mut Vec<u8>) -> bool {
    let mut object = Object::new(out);
    object.text("type", "tool_use");
    object.text("id", &portable(&call.id));
    object.text("name", &call.name);
    object.nested("input", |input| {
        // An object in any case: the API takes nothing else.
        match serde_json::from_str::<Members>(&call.arguments) {
            Ok(members) => members.0.iter().for_each(|(name, json)| input.json(name, json.get())),
            Err(_) if call.arguments.trim().is_empty() => {}
            Err(_) => input.text("malformed_arguments", &call.arguments),
        }
    });
    object.close();
    true
}

fn write_result(result: &ToolResult, author: &str, out: &mut Vec<u8>) -> bool {
    let mut content = Vec::new();
    match result.structured.as_ref().filter(|_| result.parts.is_empty()) {
        Some(json) => {
            write_text(json.get(), &mut content);
        }
        None => write_list(&result.parts, author, &mut content),
    }
    let mut object = Object::new(out);
    object.text("type", "tool_result");
    object.text("tool_use_id", &portable(&result.call));
    if !content.is_empty() {
        object.raw("content", |out| {
            out.push(b'[');
            out.extend_from_slice(&content);
            out.push(b']');
        });
    }
    if result.is_error {
        object.value("is_error", &true);
    }
    object.close();
    true
}

/// Whether JSON is an object without members.
pub(super) fn is_empty_object(json: &RawValue) -> bool {
    serde_json::from_str::<Members>(json.get()).is_ok_and(|members| members.is_empty())
}

#[cfg(test)]
mod tests;
