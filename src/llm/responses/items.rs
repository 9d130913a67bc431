//! A message as input items, separated by commas.

use std::borrow::Cow;

use super::content;
use crate::llm::call_id::portable;
use crate::llm::kept;
use crate::llm::object::Object;
use crate::types::Role;
use crate::types::conversation::{
    Dialect, Message, Part, PartKind, Parts, Proof, Thinking, ToolCall, ToolResult, lines,
};

/// The items of a message for the model that signs as `author`; empty if the dialect has no place for anything in it.
pub(super) fn items<'m>(message: &'m Message, author: &str) -> Cow<'m, str> {
    kept::encoded(message, Dialect::OpenaiResponses, |parts| encode(message.role, parts, author))
}

fn encode(role: Role, parts: &Parts, author: &str) -> String {
    let mut items = Items::default();
    match role {
        Role::System => write_message("system", &parts.list, &mut items),
        Role::Developer => write_message("developer", &parts.list, &mut items),
        Role::User => write_message("user", &parts.list, &mut items),
        Role::Assistant => parts.list.iter().for_each(|part| write_said(part, author, &mut items)),
        Role::Tool => parts.list.iter().filter_map(Part::as_result).for_each(|result| write_result(result, &mut items)),
    }
    String::from_utf8(items.out).expect("it was written from strings")
}

/// Items that are being written.
#[derive(Default)]
struct Items<'p> {
    out: Vec<u8>,
    /// Reasoning that nothing has followed yet. The API refuses reasoning without what it led to.
    reasoning: Vec<&'p Thinking>,
}

impl Items<'_> {
    fn add(&mut self, kind: &str, write: impl FnOnce(&mut Object<'_>)) {
        for thinking in std::mem::take(&mut self.reasoning) {
            self.write("reasoning", |object| write_reasoning(thinking, object));
        }
        self.write(kind, write);
    }

    fn write(&mut self, kind: &str, write: impl FnOnce(&mut Object<'_>)) {
        if !self.out.is_empty() {
            self.out.push(b',');
        }
        let mut object = Object::new(&mut self.out);
        object.text("type", kind);
        write(&mut object);
        object.close();
    }
}

/// Instructions, or what the user says.
fn write_message(role: &str, list: &[Part], items: &mut Items<'_>) {
    let mut content = Vec::new();
    let count = content::write_list(list, &mut content);
    if count == 0 && !list.is_empty() {
        return;
    }
    items.add("message", |item| {
        item.text("role", role);
        match list {
            [] => item.text("content", ""),
            [only] if only.as_text().is_some() => item.text("content", only.as_text().unwrap_or_default()),
            _ => item.raw("content", |out| out.extend_from_slice(&content)),
        }
    });
}

/// A part of what the model said.
fn write_said<'p>(part: &'p Part, author: &str, items: &mut Items<'p>) {
    match &part.kind {
        PartKind::Thinking(thinking) => {
            if is_reasoning_of(part, author) {
                items.reasoning.push(thinking);
            }
        }
        PartKind::ToolCall(call) => items.add("function_call", |item| write_call(call, item)),
        PartKind::Text(_)
        | PartKind::Refusal(_)
        | PartKind::Image { .. }
        | PartKind::Audio { .. }
        | PartKind::File { .. }
        | PartKind::Link(_) => {
            let text = part.in_words();
            if !text.is_empty() {
                items.add("message", |item| {
                    item.text("role", "assistant");
                    // A plain string: what compatible servers read of a list differs.
                    item.text("content", &text);
                    for (name, json) in part.extra.members(Dialect::OpenaiResponses) {
                        item.json(name, json.get());
                    }
                });
            }
        }
        PartKind::ToolResult(_) | PartKind::Unknown { .. } => {}
    }
}

/// Whether a part is reasoning that goes back to the model that signs as `author`.
pub(super) fn is_reasoning_of(part: &Part, author: &str) -> bool {
    let seal = part.as_thinking().and_then(|thinking| thinking.seal.as_ref());
    seal.is_some_and(|seal| seal.author == author && matches!(seal.proof, Proof::Encrypted(_)))
}

/// Reasoning goes back as it came, and only to the model that encrypted it: any other would refuse it.
fn write_reasoning(thinking: &Thinking, item: &mut Object<'_>) {
    let Some(seal) = &thinking.seal else { return };
    if let Some(id) = &seal.id {
        item.text("id", id);
    }
    item.raw("summary", |out| {
        out.push(b'[');
        if !thinking.text.is_empty() {
            let mut summary = Object::new(out);
            summary.text("type", "summary_text");
            summary.text("text", &thinking.text);
            summary.close();
        }
        out.push(b']');
    });
    if let Proof::Encrypted(data) = &seal.proof {
        item.text("encrypted_content", data);
    }
}

fn write_call(call: &ToolCall, item: &mut Object<'_>) {
    item.text("call_id", &portable(&call.id));
    item.text("name", &call.name);
    item.text("arguments", if call.arguments.trim().is_empty() { "{}" } else { &call.arguments });
}

/// The result of a call: text, or a list where it has pictures or documents.
fn write_result(result: &ToolResult, items: &mut Items<'_>) {
    items.add("function_call_output", |item| {
        item.text("call_id", &portable(&result.call));
        match &result.structured {
            Some(json) if result.parts.is_empty() => item.text("output", json.get()),
            _ if result.parts.iter().any(content::is_for_results) => {
                item.raw("output", |out| content::write_result(&result.parts, out));
            }
            _ => item.text("output", &lines(&result.parts)),
        }
    });
}

#[cfg(test)]
mod tests;
