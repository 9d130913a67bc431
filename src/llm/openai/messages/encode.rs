//! Parts into OpenAI's JSON.

use std::borrow::Cow;

use crate::llm::object::{Object, write_text};
use crate::types::Role;
use crate::types::conversation::{Dialect, Part, PartKind, Parts, Source, ToolCall, ToolResult};

/// The message object.
pub(super) fn encode(role: Role, parts: &Parts) -> String {
    let mut out = Vec::with_capacity(128 + parts.list.iter().filter_map(Part::as_text).map(str::len).sum::<usize>());
    let mut object = Object::open(&mut out, Dialect::OpenaiChat, &parts.extra);
    object.text("role", role_name(role));
    match parts.list.iter().find_map(Part::as_result) {
        Some(result) => {
            object.text("tool_call_id", result.call.as_str());
            object.raw("content", |out| write_result(result, out));
        }
        None => write_members(role, &parts.list, &mut object),
    }
    object.close();
    String::from_utf8(out).expect("it was written from strings")
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

/// `content` and the other members of the message.
fn write_members(role: Role, list: &[Part], object: &mut Object<'_>) {
    let mut content: Vec<&Part> = Vec::with_capacity(list.len());
    let mut calls: Vec<&Part> = Vec::new();
    let (mut refusals, mut audio): (Vec<&str>, _) = (Vec::new(), None);
    for part in list {
        match &part.kind {
            // A seal cannot be told here, and thinking without it is nothing to this dialect.
            PartKind::Thinking(_)
            | PartKind::ToolResult(_)
            | PartKind::Unknown {
                dialect: Dialect::AnthropicMessages | Dialect::OpenaiResponses | Dialect::GeminiContents,
                ..
            } => {}
            PartKind::Refusal(text) => refusals.push(text),
            PartKind::Audio { source: Source::Id(id) } => audio = Some(id),
            PartKind::ToolCall(_) => calls.push(part),
            PartKind::Unknown { dialect: Dialect::OpenaiChat, member, .. } if member == "tool_calls" => {
                calls.push(part);
            }
            PartKind::Text(_)
            | PartKind::Image { .. }
            | PartKind::Audio { .. }
            | PartKind::File { .. }
            | PartKind::Link(_)
            | PartKind::Unknown { .. } => content.push(part),
        }
    }
    // Not every server knows `refusal`, and without calls they all want a text.
    let says_otherwise = audio.is_some() || !calls.is_empty();
    object.raw("content", |out| {
        if content.is_empty() && says_otherwise {
            out.extend_from_slice(b"null");
        } else if let Some(text) = as_one_text(&content, role) {
            write_text(&text, out);
        } else {
            write_list(&content, out);
        }
    });
    if !refusals.is_empty() {
        object.text("refusal", &refusals.concat());
    }
    if let Some(id) = audio {
        object.nested("audio", |audio| audio.text("id", id));
    }
    if !calls.is_empty() {
        object.raw("tool_calls", |out| write_list(&calls, out));
    }
}

/// What may be written as a plain string, which every server reads: one plain text, or whatever a model
/// or a tool said piece by piece.
fn as_one_text<'a>(parts: &[&'a Part], role: Role) -> Option<Cow<'a, str>> {
    let plain = |part: &&'a Part| part.as_text().filter(|_| part.extra.members(Dialect::OpenaiChat).is_empty());
    match parts {
        [] => Some(Cow::Borrowed("")),
        [part] => plain(part).map(Cow::Borrowed),
        parts if matches!(role, Role::Assistant | Role::Tool) => {
            let texts: Option<Vec<&str>> = parts.iter().map(plain).collect();
            texts.map(|texts| texts.join(if role == Role::Tool { "\n" } else { "" }).into())
        }
        _ => None,
    }
}

/// The result of a call. In this dialect a result has only text: the tool's other parts are described in words, so that
/// the model knows of them.
fn write_result(result: &ToolResult, out: &mut Vec<u8>) {
    if result.parts.is_empty() {
        return write_text(result.structured.as_ref().map_or("", |json| json.get()), out);
    }
    let told: Vec<Cow<'_, Part>> = result.parts.iter().map(told).collect();
    let parts: Vec<&Part> = told.iter().map(|part| &**part).collect();
    match as_one_text(&parts, Role::Tool) {
        Some(text) => write_text(&text, out),
        None => write_list(&parts, out),
    }
}

/// A part of a result as this dialect can tell it.
fn told(part: &Part) -> Cow<'_, Part> {
    match &part.kind {
        PartKind::Image { .. } | PartKind::Audio { .. } | PartKind::File { .. } | PartKind::Link(_) => {
            Cow::Owned(Part::text(part.in_words()))
        }
        PartKind::Text(_)
        | PartKind::Refusal(_)
        | PartKind::Thinking(_)
        | PartKind::ToolCall(_)
        | PartKind::ToolResult(_)
        | PartKind::Unknown { .. } => Cow::Borrowed(part),
    }
}

fn write_list(parts: &[&Part], out: &mut Vec<u8>) {
    let mut before = b'[';
    for part in parts {
        let begin = out.len();
        out.push(before);
        if write_part(part, out) {
            before = b',';
        } else {
            out.truncate(begin);
        }
    }
    out.extend_from_slice(if before == b'[' { b"[]" } else { b"]" });
}

/// Writes an entry of a list; `false` if the dialect has no place for it.
fn write_part(part: &Part, out: &mut Vec<u8>) -> bool {
    if let PartKind::Unknown { dialect: Dialect::OpenaiChat, json, .. } = &part.kind {
        out.extend_from_slice(json.get().as_bytes());
        return true;
    }
    let mut object = Object::open(out, Dialect::OpenaiChat, &part.extra);
    match &part.kind {
        PartKind::Text(text) => {
            object.text("type", "text");
            object.text("text", text);
        }
        PartKind::Refusal(text) => {
            object.text("type", "refusal");
            object.text("refusal", text);
        }
        PartKind::Image { source, detail } => {
            object.text("type", "image_url");
            object.nested("image_url", |image| {
                image.text("url", &url(source));
                if let Some(detail) = detail {
                    image.text("detail", detail);
                }
            });
        }
        PartKind::Audio { source } => {
            object.text("type", "input_audio");
            object.nested("input_audio", |audio| write_audio(source, audio));
        }
        PartKind::File { source, name } => {
            object.text("type", "file");
            object.nested("file", |file| {
                match source {
                    Source::Id(id) => file.text("file_id", id),
                    Source::Url(_) | Source::Base64 { .. } => file.text("file_data", &url(source)),
                }
                if let Some(name) = name {
                    file.text("filename", name);
                }
            });
        }
        PartKind::Link(_) => {
            object.text("type", "text");
            object.text("text", &part.in_words());
        }
        PartKind::ToolCall(call) => write_call(call, &mut object),
        PartKind::Thinking(_) | PartKind::ToolResult(_) | PartKind::Unknown { .. } => return false,
    }
    object.close();
    true
}

fn write_audio(source: &Source, audio: &mut Object<'_>) {
    match source {
        Source::Base64 { media_type, data } => {
            audio.text("data", data);
            audio.text("format", media_type.strip_prefix("audio/").unwrap_or(media_type));
        }
        Source::Url(url) => audio.text("url", url),
        Source::Id(id) => audio.text("id", id),
    }
}

fn write_call(call: &ToolCall, object: &mut Object<'_>) {
    object.text("id", call.id.as_str());
    object.text("type", "function");
    object.nested("function", |function| {
        function.text("name", &call.name);
        function.text("arguments", &call.arguments);
    });
}

/// The URL of a source, which may hold its bytes. A vendor's id stands for itself.
fn url(source: &Source) -> Cow<'_, str> {
    match source {
        Source::Url(url) | Source::Id(url) => Cow::Borrowed(url),
        Source::Base64 { media_type, data } => Cow::Owned(format!("data:{media_type};base64,{data}")),
    }
}
