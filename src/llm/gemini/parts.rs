//! A message as parts, separated by commas.

use std::borrow::Cow;
use std::collections::HashMap;

use super::media;
use super::models::Wants;
use super::piece::SIGNATURE;
use super::tool_name;
use crate::llm::kept::MAX_KEPT;
use crate::llm::message_parts;
use crate::llm::object::Object;
use crate::types::conversation::{
    Content, Dialect, Message, Part, PartKind, Parts, Proof, Thinking, ToolCall, ToolResult,
};
use crate::types::json::Members;

/// What stands for the signature of a call that another model made, or a client: models that insist on one take this.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";
/// The name of the tool of a result whose call is not there.
const NO_NAME: &str = "unknown";

/// Writes messages for one model, in their order.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    /// The model, as it signs.
    author: &'a str,
    wants: Wants,
    /// The names of the tools that were called, by the calls' ids: results must name them too.
    names: HashMap<String, String>,
}

impl<'a> Writer<'a> {
    /// For the model that signs as `author` and wants this.
    pub(super) fn new(author: &'a str, wants: Wants) -> Self {
        Self { author, wants, names: HashMap::new() }
    }

    /// The parts of a message; empty if the dialect has no place for anything in it. What a client sends short and
    /// without calls is written once.
    pub(super) fn parts<'m>(&mut self, message: &'m Message) -> Cow<'m, str> {
        let is_kept = matches!(message.content(), Content::Encoded(..)) && message.bytes() <= MAX_KEPT;
        let mut fresh = |parts: &Parts| self.list(&parts.list);
        match message_parts(message) {
            Err(_) => Cow::Borrowed(""),
            Ok(parts) if is_kept && !parts.list.iter().any(is_bound) => {
                Cow::Borrowed(message.encoded(Dialect::GeminiContents, |_| fresh(&parts)))
            }
            Ok(parts) => Cow::Owned(fresh(&parts)),
        }
    }

    fn list(&mut self, parts: &[Part]) -> String {
        let mut out = Vec::new();
        let mut signature = None;
        let mut has_calls = false;
        for part in parts {
            if let Some(following) = part.as_thinking().and_then(|thinking| self.following(thinking)) {
                signature = Some(following);
                continue;
            }
            // Of calls that are made at the same time the first one alone is signed.
            if part.as_call().is_some() && !std::mem::replace(&mut has_calls, true) && self.wants.signatures {
                signature = signature.or(Some(NO_SIGNATURE));
            }
            let begin = out.len();
            if begin > 0 {
                out.push(b',');
            }
            if !self.write(part, signature.take(), &mut out) {
                out.truncate(begin);
            }
        }
        String::from_utf8(out).expect("it was written from strings")
    }

    /// The signature of the part that follows, if this is one for the model.
    fn following<'t>(&self, thinking: &'t Thinking) -> Option<&'t str> {
        let seal = thinking.seal.as_ref().filter(|seal| seal.author == self.author)?;
        if let Proof::Following(signature) = &seal.proof { Some(signature) } else { None }
    }

    /// Writes a part and its signature; `false` if the dialect has no place for it.
    fn write(&mut self, part: &Part, signature: Option<&str>, out: &mut Vec<u8>) -> bool {
        if let PartKind::Unknown { dialect, json, .. } = &part.kind {
            return *dialect == Dialect::GeminiContents && write_unknown(json.get(), signature, out);
        }
        let mut object = Object::new(out);
        let is_written = match &part.kind {
            PartKind::Text(text) | PartKind::Refusal(text) => {
                object.text("text", text);
                !text.is_empty()
            }
            PartKind::Thinking(thinking) => self.write_thinking(thinking, &mut object),
            PartKind::Image { .. } | PartKind::Audio { .. } | PartKind::File { .. } => {
                if !media::write(&part.kind, &mut object) {
                    object.text("text", &part.in_words());
                }
                true
            }
            PartKind::Link(_) => {
                object.text("text", &part.in_words());
                true
            }
            PartKind::ToolCall(call) => {
                self.names.insert(call.id.as_str().to_owned(), tool_name::sent(&call.name).into_owned());
                write_call(call, &mut object);
                true
            }
            PartKind::ToolResult(result) => {
                self.write_result(result, &mut object);
                true
            }
            PartKind::Unknown { .. } => false,
        };
        if let Some(signature) = signature {
            object.text(SIGNATURE, signature);
        }
        object.close();
        is_written
    }

    /// Thinking goes back as it came, and only to the model that signed it: any other may refuse it.
    fn write_thinking(&self, thinking: &Thinking, object: &mut Object<'_>) -> bool {
        let seal = thinking.seal.as_ref().filter(|seal| seal.author == self.author);
        let Some(Proof::Signature(signature)) = seal.map(|seal| &seal.proof) else { return false };
        object.text("text", &thinking.text);
        if !thinking.text.is_empty() {
            object.value("thought", &true);
        }
        object.text(SIGNATURE, signature);
        true
    }

    /// What a result says is text in any case: numbers of JSON that the API reads may lose digits.
    fn write_result(&self, result: &ToolResult, object: &mut Object<'_>) {
        let is_media = |part: &&Part| self.wants.pictures_in_results && media::is_for_results(&part.kind);
        let (media, told): (Vec<&Part>, Vec<&Part>) = result.parts.iter().partition(is_media);
        let text = match &result.structured {
            Some(json) if result.parts.is_empty() => Cow::Borrowed(json.get()),
            Some(_) | None => in_words(&told),
        };
        object.nested("functionResponse", |response| {
            response.text("id", result.call.as_str());
            response.text("name", self.names.get(result.call.as_str()).map_or(NO_NAME, String::as_str));
            let key = if result.is_error { "error" } else { "output" };
            response.nested("response", |said| said.text(key, &text));
            if !media.is_empty() {
                response.raw("parts", |out| {
                    let mut before = b'[';
                    for part in media {
                        out.push(before);
                        before = b',';
                        let mut object = Object::new(out);
                        media::write(&part.kind, &mut object);
                        object.close();
                    }
                    out.push(b']');
                });
            }
        });
    }
}

/// Whether a part is written with what other messages or the model say of it.
fn is_bound(part: &Part) -> bool {
    part.as_call().is_some() || part.as_result().is_some()
}

fn in_words<'p>(parts: &[&'p Part]) -> Cow<'p, str> {
    match parts {
        [part] => part.in_words(),
        parts => Cow::Owned(parts.iter().map(|part| part.in_words()).collect::<Vec<_>>().join("\n")),
    }
}

fn write_call(call: &ToolCall, object: &mut Object<'_>) {
    object.nested("functionCall", |object| {
        object.text("id", call.id.as_str());
        object.text("name", &tool_name::sent(&call.name));
        object.nested("args", |args| {
            // An object in any case: the API takes nothing else.
            match serde_json::from_str::<Members>(&call.arguments) {
                Ok(members) => members.0.iter().for_each(|(name, json)| args.json(name, json.get())),
                Err(_) if call.arguments.trim().is_empty() => {}
                Err(_) => args.text("malformed_arguments", &call.arguments),
            }
        });
    });
}

/// Writes a part as it came, with the signature that came with it.
fn write_unknown(json: &str, signature: Option<&str>, out: &mut Vec<u8>) -> bool {
    let Ok(members) = serde_json::from_str::<Members>(json) else { return false };
    let mut object = Object::new(out);
    members.0.iter().for_each(|(name, json)| object.json(name, json.get()));
    if let Some(signature) = signature {
        object.text(SIGNATURE, signature);
    }
    object.close();
    true
}

#[cfg(test)]
mod tests;
