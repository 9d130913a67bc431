//! OpenAI's JSON into parts.

use serde_json::value::RawValue;

use crate::types::conversation::{Dialect, Extra, Part, PartKind, Parts, Source, ToolCall, ToolResult};
use crate::types::json::{Members, RawValueEq};
use crate::types::{CallId, Role};

/// The members of a message object. A member whose value is not of OpenAI's type is kept as an unknown member.
pub(super) fn decode(json: &str) -> Result<Parts, serde_json::Error> {
    let mut members: Members = serde_json::from_str(json)?;
    let role: Role = members
        .take("role")
        .map(|role| serde_json::from_str(role.get()))
        .transpose()?
        .ok_or_else(|| <serde_json::Error as serde::de::Error>::missing_field("role"))?;
    let mut list = content(members.take("content"))?;
    if let Some(refusal) = members.read::<String>("refusal") {
        list.push(PartKind::Refusal(refusal).into());
    }
    if let Some(audio) = members.open("audio", |audio| Some(Source::Id(audio.read("id")?))) {
        list.push(PartKind::Audio { source: audio }.into());
    }
    for call in members.read::<Vec<Members>>("tool_calls").into_iter().flatten() {
        list.push(tool_call(call));
    }
    if role == Role::Tool
        && let Some(call) = members.read::<String>("tool_call_id")
    {
        let result = ToolResult { call: CallId::foreign(&call), parts: list, structured: None, is_error: false };
        list = vec![PartKind::ToolResult(Box::new(result)).into()];
    }
    Ok(Parts { list, extra: Extra::new(Dialect::OpenaiChat, members) })
}

fn content(content: Option<RawValueEq>) -> Result<Vec<Part>, serde_json::Error> {
    let Some(content) = content.filter(|content| content.get() != "null") else { return Ok(Vec::new()) };
    if content.get().starts_with('"') {
        return Ok(vec![Part::text(serde_json::from_str::<String>(content.get())?)]);
    }
    let parts: Vec<Box<RawValue>> = serde_json::from_str(content.get())?;
    Ok(parts.into_iter().map(part).collect())
}

/// A part of `content`.
fn part(json: Box<RawValue>) -> Part {
    known_part(&json).unwrap_or_else(|| unknown("content", json))
}

fn known_part(json: &RawValue) -> Option<Part> {
    let mut members: Members = serde_json::from_str(json.get()).ok()?;
    let kind = match members.read::<String>("type")?.as_str() {
        "text" => PartKind::Text(members.read("text")?),
        "refusal" => PartKind::Refusal(members.read("refusal")?),
        "image_url" => members.open("image_url", |image| {
            Some(PartKind::Image { source: by_url(image.read("url")?), detail: image.read("detail") })
        })?,
        "input_audio" => members.open("input_audio", |audio| {
            let format: String = audio.read("format")?;
            let source = Source::Base64 { media_type: format!("audio/{format}"), data: audio.read("data")? };
            Some(PartKind::Audio { source })
        })?,
        "file" => members.open("file", |file| {
            let data = file.read("file_data").map(by_url);
            let source = data.or_else(|| file.read("file_id").map(Source::Id))?;
            Some(PartKind::File { source, name: file.read("filename") })
        })?,
        _ => return None,
    };
    Some(Part { kind, extra: Extra::new(Dialect::OpenaiChat, members) })
}

fn tool_call(mut members: Members) -> Part {
    let whole = members.clone();
    let read = |members: &mut Members| {
        let kind: String = members.read("type")?;
        let id: String = members.read("id")?;
        let (name, arguments) =
            members.open("function", |function| Some((function.read("name")?, function.read("arguments")?)))?;
        (kind == "function").then(|| ToolCall { id: CallId::foreign(&id), name, arguments })
    };
    match read(&mut members) {
        Some(call) => Part { kind: PartKind::ToolCall(call), extra: Extra::new(Dialect::OpenaiChat, members) },
        None => unknown("tool_calls", serde_json::value::to_raw_value(&whole).expect("members are JSON")),
    }
}

fn unknown(member: &str, json: Box<RawValue>) -> Part {
    PartKind::Unknown { dialect: Dialect::OpenaiChat, member: member.to_owned(), json: RawValueEq(json) }.into()
}

/// A data URL holds its bytes; any other names them.
fn by_url(url: String) -> Source {
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match data {
        Some((media_type, data)) => Source::Base64 { media_type: media_type.to_owned(), data: data.to_owned() },
        None => Source::Url(url),
    }
}
