//! What a tool of a server answers, as parts that models take.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::tools::ToolAnswer;
use crate::types::conversation::{Part, PartKind, Source};
use crate::types::json::RawValueEq;

/// Pictures that models can look at.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Reads the result of a call.
pub(super) fn answer(result: &Value) -> ToolAnswer {
    let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut parts: Vec<Part> = blocks.iter().map(part).collect();
    let structured = result.get("structuredContent").filter(|json| !json.is_null());
    let structured = structured.and_then(|json| serde_json::value::to_raw_value(json).ok()).map(RawValueEq);
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() && structured.is_none() {
        parts.push(Part::text("The tool answered without content."));
    }
    let bytes = parts.iter().map(Part::bytes).sum::<usize>() + structured.as_ref().map_or(0, |json| json.get().len());
    ToolAnswer { parts, structured, is_error: result["isError"] == true, bytes: bytes as u64, status: None }
}

/// A block of content. One that is not known stays readable as it was written.
fn part(block: &Value) -> Part {
    let text = |member: &str| block[member].as_str();
    match (text("type"), text("text"), text("data")) {
        (Some("text"), Some(text), _) => Part::text(text),
        (Some("image" | "audio"), _, Some(data)) => media(text("mimeType").unwrap_or_default(), data, None),
        (Some("resource"), ..) => resource(&block["resource"]),
        (Some("resource_link"), ..) => Part::text(link(block)),
        _ => Part::text(block.to_string()),
    }
}

/// What a server embeds in its answer.
fn resource(resource: &Value) -> Part {
    let text = |member: &str| resource[member].as_str();
    let uri = text("uri").unwrap_or_default();
    match (text("text"), text("blob")) {
        (Some(content), _) if uri.is_empty() => Part::text(content),
        (Some(content), _) => Part::text(format!("[resource {uri}]\n{content}")),
        (None, Some(data)) => media(text("mimeType").unwrap_or_default(), data, Some(uri)),
        (None, None) => Part::text(format!("[resource {uri}, without content]")),
    }
}

/// Bytes of a media type. Bytes that are no base64 would be refused by every upstream.
fn media(media_type: &str, data: &str, uri: Option<&str>) -> Part {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let data: String = data.split_ascii_whitespace().collect();
    let Ok(bytes) = STANDARD.decode(&data) else {
        return Part::text(format!("[{essence}, which cannot be read: its data is not base64]"));
    };
    if essence.starts_with("text/")
        && let Ok(text) = String::from_utf8(bytes)
    {
        return Part::text(text);
    }
    let media_type = if essence.is_empty() { "application/octet-stream".to_owned() } else { essence };
    let source = Source::Base64 { media_type: media_type.clone(), data };
    match media_type.as_str() {
        picture if PICTURES.contains(&picture) => PartKind::Image { source, detail: None }.into(),
        sound if sound.starts_with("audio/") => PartKind::Audio { source }.into(),
        _ => {
            let name = uri.and_then(|uri| uri.rsplit('/').next()).filter(|name| !name.is_empty()).map(str::to_owned);
            PartKind::File { source, name }.into()
        }
    }
}

/// A resource that the answer only points to.
fn link(block: &Value) -> String {
    let text = |member: &str| block[member].as_str().filter(|text| !text.is_empty());
    let uri = text("uri").unwrap_or("without an address");
    let about = [text("title").or_else(|| text("name")), text("mimeType"), text("description")];
    let about: Vec<&str> = about.into_iter().flatten().collect();
    if about.is_empty() {
        format!("[resource link {uri}]")
    } else {
        format!("[resource link {uri}: {}]", about.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_of_content_becomes_a_part() {
        let answer = answer(&json!({"content": [
            {"type": "text", "text": "hello"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "image", "data": "PHN2Zz4=", "mimeType": "image/svg+xml"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": "aGk="}},
            {"type": "resource", "resource": {"uri": "file:///b.md", "mimeType": "text/markdown", "blob": "aGk="}},
            {"type": "resource_link", "uri": "file:///c", "name": "c", "description": "the third"},
            {"type": "hologram", "depth": 3},
            {"type": "image", "data": "not base64!", "mimeType": "image/png"},
        ], "structuredContent": {"n": 1}, "isError": true}));
        let kinds: Vec<String> = answer
            .parts
            .iter()
            .map(|part| {
                if let PartKind::File { name, .. } = &part.kind {
                    format!("file {name:?}")
                } else {
                    part.in_words().into_owned()
                }
            })
            .collect();
        assert_eq!(
            kinds,
            [
                "hello",
                "[image, image/png, 2 bytes]",
                "file None",
                "[audio, audio/wav, 2 bytes]",
                "[resource file:///a.txt]\ninside",
                r#"file Some("a.pdf")"#,
                "hi",
                "[resource link file:///c: c, the third]",
                r#"{"depth":3,"type":"hologram"}"#,
                "[image/png, which cannot be read: its data is not base64]",
            ]
        );
        assert_eq!(answer.structured.unwrap().get(), r#"{"n":1}"#);
        assert!(answer.is_error);
    }

    #[test]
    fn an_answer_without_content_says_so() {
        for nothing in [json!({}), json!({"content": []}), json!({"content": [{"type": "text", "text": ""}]}), json!(7)]
        {
            assert_eq!(
                answer(&nothing),
                ToolAnswer { bytes: 34, ..ToolAnswer::text("The tool answered without content.") }
            );
        }
        assert!(answer(&json!({"structuredContent": [1]})).parts.is_empty());
    }
}
