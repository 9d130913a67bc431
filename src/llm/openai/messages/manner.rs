//! Messages for a server that takes some of them otherwise than OpenAI writes them.

use std::borrow::Cow;

use super::json;
use crate::config::ChatManner;
use crate::llm::call_id::of_length;
use crate::llm::object::Object;
use crate::types::Role;
use crate::types::conversation::{Content, Message, Part, Proof, joined};
use crate::types::json::{Members, RawValueEq};

/// The message as a JSON object for a server of this manner. `author` is its model, as it signs, where the server wants the
/// model's reasoning back.
pub(in crate::llm::openai) fn json_for<'m>(message: &'m Message, chat: &ChatManner, author: &str) -> Cow<'m, str> {
    let json = json(message);
    if !differs(message.role, chat) {
        return Cow::Borrowed(json);
    }
    match serde_json::from_str(json) {
        Ok(members) => Cow::Owned(rewritten(message, &members, chat, author)),
        Err(_) => Cow::Borrowed(json),
    }
}

/// Whether messages of this role may have to be written otherwise.
fn differs(role: Role, chat: &ChatManner) -> bool {
    match role {
        Role::System | Role::User => false,
        Role::Developer => !chat.developer_role,
        Role::Assistant => chat.call_id_length.is_some() || chat.returned_reasoning.is_some(),
        Role::Tool => chat.call_id_length.is_some(),
    }
}

fn rewritten(message: &Message, members: &Members, chat: &ChatManner, author: &str) -> String {
    let mut out = Vec::with_capacity(message.bytes() + 128);
    let mut object = Object::new(&mut out);
    let reasoning = chat.returned_reasoning.filter(|_| message.role == Role::Assistant);
    let is_told = reasoning.is_some_and(|member| members.get(member).is_some_and(|json| json != "null"));
    for (name, value) in members.as_slice() {
        match (name.as_str(), chat.call_id_length) {
            ("role", _) if message.role == Role::Developer => object.text(name, "system"),
            ("tool_call_id", Some(length)) => write_id(name, value, length, &mut object),
            ("tool_calls", Some(length)) => object.raw(name, |out| write_calls(value, length, out)),
            (member, _) if Some(member) == reasoning && !is_told => {}
            _ => object.json(name, value.get()),
        }
    }
    if let Some(member) = reasoning.filter(|_| !is_told) {
        // Empty where there is none: the server refuses a message that says nothing of it.
        object.text(member, &reasoning_of(message, author));
    }
    object.close();
    String::from_utf8(out).expect("it was written from strings")
}

/// What this model thought as it wrote the message.
fn reasoning_of<'m>(message: &'m Message, author: &str) -> Cow<'m, str> {
    let Content::Parts(parts) = message.content() else { return Cow::Borrowed("") };
    joined(parts.list.iter().filter_map(Part::as_thinking).filter_map(|thinking| {
        let seal = thinking.seal.as_ref().filter(|seal| seal.author == author && seal.proof == Proof::Unsigned);
        seal.map(|_| thinking.text.as_str())
    }))
}

fn write_calls(calls: &RawValueEq, length: usize, out: &mut Vec<u8>) {
    let Ok(calls) = serde_json::from_str::<Vec<Members>>(calls.get()) else {
        return out.extend_from_slice(calls.get().as_bytes());
    };
    let mut before = b'[';
    for call in &calls {
        out.push(before);
        before = b',';
        let mut object = Object::new(out);
        for (name, value) in call.as_slice() {
            if name == "id" {
                write_id(name, value, length, &mut object);
            } else {
                object.json(name, value.get());
            }
        }
        object.close();
    }
    out.extend_from_slice(if before == b'[' { b"[]" } else { b"]" });
}

/// The same call has the same id wherever it is written.
fn write_id(name: &str, value: &RawValueEq, length: usize, object: &mut Object<'_>) {
    match serde_json::from_str::<String>(value.get()) {
        Ok(id) => object.text(name, &of_length(&id, length)),
        Err(_) => object.json(name, value.get()),
    }
}
