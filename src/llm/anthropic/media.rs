//! Pictures and documents as blocks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::llm::object::Object;
use crate::types::conversation::Source;

/// The pictures that the API takes.
const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
const PDF: &str = "application/pdf";
const TEXT: &str = "text/plain";

/// Why a picture cannot be sent; `None` if it can.
pub(super) fn image_refusal(source: &Source) -> Option<String> {
    match source {
        Source::Url(_) => None,
        Source::Base64 { media_type, .. } if IMAGES.contains(&media_type.as_str()) => None,
        Source::Base64 { media_type, .. } => {
            Some(format!("takes pictures as JPEG, PNG, GIF or WebP, not as {}", clip(media_type)))
        }
        Source::Id(_) => Some("does not know the ids that other vendors give to pictures".to_owned()),
    }
}

/// Why a document cannot be sent; `None` if it can.
pub(super) fn document_refusal(source: &Source) -> Option<String> {
    match source {
        Source::Url(_) => None,
        Source::Base64 { media_type, .. } if media_type == PDF => None,
        Source::Base64 { media_type, data } if is_text(media_type) => {
            text(data).is_none().then(|| "takes files of text in UTF-8 alone".to_owned())
        }
        Source::Base64 { media_type, .. } => {
            Some(format!("takes files as PDF or plain text, not as {}", clip(media_type)))
        }
        Source::Id(_) => Some("does not know the ids that other vendors give to files; send `file_data`".to_owned()),
    }
}

/// Writes a picture; `false`, and nothing, if it cannot be sent.
pub(super) fn write_image(source: &Source, out: &mut Vec<u8>) -> bool {
    if image_refusal(source).is_some() {
        return false;
    }
    let mut object = Object::new(out);
    object.text("type", "image");
    object.nested("source", |object| write_source(source, object));
    object.close();
    true
}

/// Writes a document; `false`, and nothing, if it cannot be sent.
pub(super) fn write_document(source: &Source, name: Option<&str>, out: &mut Vec<u8>) -> bool {
    if document_refusal(source).is_some() {
        return false;
    }
    let mut object = Object::new(out);
    object.text("type", "document");
    object.nested("source", |object| match source {
        Source::Base64 { media_type, data } if is_text(media_type) => {
            object.text("type", "text");
            object.text("media_type", TEXT);
            object.text("data", &text(data).unwrap_or_default());
        }
        Source::Base64 { .. } | Source::Url(_) | Source::Id(_) => write_source(source, object),
    });
    if let Some(name) = name.filter(|name| !name.trim().is_empty()) {
        object.text("title", name);
    }
    object.close();
    true
}

fn write_source(source: &Source, object: &mut Object<'_>) {
    match source {
        Source::Url(url) => {
            object.text("type", "url");
            object.text("url", url);
        }
        Source::Base64 { media_type, data } => {
            object.text("type", "base64");
            object.text("media_type", media_type);
            object.text("data", data);
        }
        Source::Id(id) => {
            object.text("type", "file");
            object.text("file_id", id);
        }
    }
}

/// Whether it is text, perhaps with a note on its characters.
fn is_text(media_type: &str) -> bool {
    media_type.split(';').next().is_some_and(|kind| kind.trim() == TEXT)
}

fn text(data: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(data).ok()?).ok()
}

fn clip(media_type: &str) -> String {
    media_type.chars().take(80).collect()
}
