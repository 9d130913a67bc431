//! What a tool of a server answers, as parts. Whether models can take them is looked at for the answers of all tools.

use serde_json::Value;

use crate::tools::ToolAnswer;
use crate::types::conversation::{Link, Part, PartKind, Source};
use crate::types::json::RawValueEq;

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
    ToolAnswer { parts, structured, is_error: result["isError"] == true, bytes: bytes as u64, ..ToolAnswer::default() }
}

/// A block of content. One that is not known stays readable as it was written.
fn part(block: &Value) -> Part {
    let text = |member: &str| block[member].as_str();
    match (text("type"), text("text"), text("data")) {
        (Some("text"), Some(text), _) => Part::text(text),
        (Some("image"), _, Some(data)) => {
            PartKind::Image { source: source(text("mimeType"), data), detail: None }.into()
        }
        (Some("audio"), _, Some(data)) => PartKind::Audio { source: source(text("mimeType"), data) }.into(),
        (Some("resource"), ..) => resource(&block["resource"]),
        (Some("resource_link"), ..) => Part::link(link(block)),
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
        (None, Some(data)) => blob(source(text("mimeType"), data), uri),
        (None, None) => Part::text(format!("[resource {uri}, without content]")),
    }
}

/// Bytes, and what they are said to be.
fn source(media_type: Option<&str>, data: &str) -> Source {
    let media_type = media_type.filter(|kind| !kind.is_empty()).unwrap_or("application/octet-stream");
    Source::Base64 { media_type: media_type.to_owned(), data: data.to_owned() }
}

/// Bytes that a server embeds: a picture, a sound or a file.
fn blob(source: Source, uri: &str) -> Part {
    let kind = if let Source::Base64 { media_type, .. } = &source { media_type.as_str() } else { "" };
    if kind.starts_with("image/") {
        return PartKind::Image { source, detail: None }.into();
    }
    if kind.starts_with("audio/") {
        return PartKind::Audio { source }.into();
    }
    let name = uri.rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned);
    PartKind::File { source, name }.into()
}

/// A resource that the answer only points to.
fn link(block: &Value) -> Link {
    let text = |member: &str| block[member].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Link {
        uri: text("uri").unwrap_or_default(),
        name: text("title").or_else(|| text("name")),
        description: text("description"),
        media_type: text("mimeType"),
        bytes: block["size"].as_u64(),
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
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": "aGk="}},
            {"type": "resource", "resource": {"uri": "file:///b.png", "mimeType": "image/png", "blob": "aGk="}},
            {"type": "resource_link", "uri": "file:///c", "name": "c", "description": "the third", "size": 3},
            {"type": "hologram", "depth": 3},
        ], "structuredContent": {"n": 1}, "isError": true}));
        let words: Vec<_> = answer.parts.iter().map(Part::in_words).collect();
        assert_eq!(
            words[..4],
            ["hello", "[image, image/png, 2 bytes]", "[audio, audio/wav, 2 bytes]", "[resource file:///a.txt]\ninside"]
        );
        let PartKind::File { name, .. } = &answer.parts[4].kind else { panic!("{answer:?}") };
        assert_eq!((name.as_deref(), &*words[5]), (Some("a.pdf"), "[image, image/png, 2 bytes]"));
        let PartKind::Link(link) = &answer.parts[6].kind else { panic!("{answer:?}") };
        assert_eq!(
            (link.uri.as_str(), link.description.as_deref(), link.bytes),
            ("file:///c", Some("the third"), Some(3))
        );
        assert_eq!(words[7], r#"{"depth":3,"type":"hologram"}"#);
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
