//! Text, pictures and documents as the content of an item.

use crate::llm::object::Object;
use crate::types::conversation::{Part, PartKind, Source};

/// What a document is called that has no name: the API wants one.
const NAMELESS: &str = "document";

/// The types of pictures that the API takes.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Whether a part of a tool's result is sent as more than text. Tools answer with whatever they have, and the API refuses
/// the whole request for a type that it does not take.
pub(super) fn is_for_results(part: &Part) -> bool {
    let (source, is_taken): (_, fn(&str) -> bool) = match &part.kind {
        PartKind::Image { source, .. } => (source, |kind| IMAGES.contains(&kind)),
        PartKind::File { source, .. } => (source, |kind| kind == "application/pdf"),
        PartKind::Text(_)
        | PartKind::Refusal(_)
        | PartKind::Thinking(_)
        | PartKind::Audio { .. }
        | PartKind::Link(_)
        | PartKind::ToolCall(_)
        | PartKind::ToolResult(_)
        | PartKind::Unknown { .. } => return false,
    };
    matches!(source, Source::Base64 { media_type, .. } if is_taken(media_type))
}

/// Writes the list of the parts of a tool's result.
pub(super) fn write_result(parts: &[Part], out: &mut Vec<u8>) {
    let told: Vec<Part> = parts
        .iter()
        .map(|part| if is_for_results(part) { part.clone() } else { Part::text(part.in_words()) })
        .filter(|part| !part.is_empty())
        .collect();
    write_list(&told, out);
}

/// Writes a list of these parts. Returns how many it has.
pub(super) fn write_list(parts: &[Part], out: &mut Vec<u8>) -> usize {
    let mut count = 0;
    out.push(b'[');
    for part in parts {
        let begin = out.len();
        if count > 0 {
            out.push(b',');
        }
        if write(part, out) {
            count += 1;
        } else {
            out.truncate(begin);
        }
    }
    out.push(b']');
    count
}

/// Writes a part; `false` if the dialect has no place for it.
fn write(part: &Part, out: &mut Vec<u8>) -> bool {
    let mut object = Object::new(out);
    match &part.kind {
        PartKind::Text(text) | PartKind::Refusal(text) => write_text(text, &mut object),
        PartKind::Audio { .. } | PartKind::Link(_) => write_text(&part.in_words(), &mut object),
        PartKind::Image { source, detail } => {
            object.text("type", "input_image");
            match source {
                Source::Id(id) => object.text("file_id", id),
                Source::Url(url) => object.text("image_url", url),
                Source::Base64 { media_type, data } => object.text("image_url", &data_url(media_type, data)),
            }
            object.text("detail", detail.as_deref().unwrap_or("auto"));
        }
        PartKind::File { source, name } => {
            object.text("type", "input_file");
            write_file(source, name.as_deref(), &mut object);
        }
        PartKind::Thinking(_) | PartKind::ToolCall(_) | PartKind::ToolResult(_) | PartKind::Unknown { .. } => {
            return false;
        }
    }
    object.close();
    true
}

fn write_text(text: &str, object: &mut Object<'_>) {
    object.text("type", "input_text");
    object.text("text", text);
}

fn write_file(source: &Source, name: Option<&str>, object: &mut Object<'_>) {
    let data = match source {
        Source::Id(id) => return object.text("file_id", id),
        Source::Url(url) if url.starts_with("https://") || url.starts_with("http://") => {
            return object.text("file_url", url);
        }
        // Bytes whose type their sender did not name.
        Source::Url(data) => data.clone(),
        Source::Base64 { media_type, data } => data_url(media_type, data),
    };
    object.text("filename", name.filter(|name| !name.trim().is_empty()).unwrap_or(NAMELESS));
    object.text("file_data", &data);
}

fn data_url(media_type: &str, data: &str) -> String {
    format!("data:{media_type};base64,{data}")
}
