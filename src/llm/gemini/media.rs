//! Pictures, sound and documents as parts.

use crate::llm::object::Object;
use crate::types::conversation::{PartKind, Source};

const IMAGES: [&str; 5] = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];
const SOUNDS: [&str; 7] =
    ["audio/wav", "audio/mp3", "audio/mpeg", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac"];
const PDF: &str = "application/pdf";
/// What the API takes in a result of a call.
const IN_RESULTS: [&str; 5] = ["image/png", "image/jpeg", "image/webp", PDF, "text/plain"];
/// The types of files that are named by an address, by their ending.
const ENDINGS: [(&str, &str); 14] = [
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("webp", "image/webp"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("wav", "audio/wav"),
    ("mp3", "audio/mp3"),
    ("ogg", "audio/ogg"),
    ("flac", "audio/flac"),
    ("mp4", "video/mp4"),
    ("pdf", PDF),
    ("txt", "text/plain"),
    ("csv", "text/csv"),
];

/// Why a picture, a sound or a document cannot be sent; `None` if it can, and of any other part.
pub(super) fn refusal(part: &PartKind) -> Option<String> {
    let (source, takes, what): (_, fn(&str) -> bool, _) = match part {
        PartKind::Image { source, .. } => (source, is_image, "pictures as PNG, JPEG, WebP, HEIC or HEIF"),
        PartKind::Audio { source } => (source, is_sound, "sound as WAV, MP3, AIFF, AAC, OGG or FLAC"),
        PartKind::File { source, .. } => (source, is_document, "files as PDF, text, pictures, sound or video"),
        PartKind::Text(_)
        | PartKind::Refusal(_)
        | PartKind::Thinking(_)
        | PartKind::Link(_)
        | PartKind::ToolCall(_)
        | PartKind::ToolResult(_)
        | PartKind::Unknown { .. } => return None,
    };
    match source {
        Source::Base64 { media_type, .. } if takes(plain(media_type)) => None,
        Source::Base64 { media_type, .. } => {
            let media_type: String = media_type.chars().take(80).collect();
            Some(format!("takes {what}, not as {media_type}"))
        }
        Source::Url(uri) | Source::Id(uri) if is_uri(uri) => None,
        Source::Url(_) => {
            Some("takes files from addresses with https:// or http://, and gs:// as `file_id`".to_owned())
        }
        Source::Id(_) => Some(
            "does not know the ids that other vendors give to files; send `file_data`, or the file's address at Google"
                .to_owned(),
        ),
    }
}

/// Writes the member that holds a picture, a sound or a document; `false`, and nothing, if it cannot be sent.
pub(super) fn write(part: &PartKind, object: &mut Object<'_>) -> bool {
    let (PartKind::Image { source, .. } | PartKind::Audio { source } | PartKind::File { source, .. }) = part else {
        return false;
    };
    if refusal(part).is_some() {
        return false;
    }
    match source {
        Source::Base64 { media_type, data } => write_inline(media_type, data, object),
        Source::Url(uri) | Source::Id(uri) => object.nested("fileData", |file| {
            if let Some(media_type) = type_of(uri) {
                file.text("mimeType", media_type);
            }
            file.text("fileUri", uri);
        }),
    }
    true
}

/// Whether the API has a place for a part in a result.
pub(super) fn is_for_results(part: &PartKind) -> bool {
    let (PartKind::Image { source, .. } | PartKind::File { source, .. }) = part else { return false };
    matches!(source, Source::Base64 { media_type, .. } if IN_RESULTS.contains(&plain(media_type)))
}

fn write_inline(media_type: &str, data: &str, object: &mut Object<'_>) {
    object.nested("inlineData", |blob| {
        blob.text("mimeType", plain(media_type));
        blob.text("data", data);
    });
}

/// The type without a note on its characters.
fn plain(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

fn is_image(media_type: &str) -> bool {
    IMAGES.contains(&media_type)
}

fn is_sound(media_type: &str) -> bool {
    SOUNDS.contains(&media_type)
}

fn is_document(media_type: &str) -> bool {
    let is_text = media_type.starts_with("text/") || media_type == "application/json";
    media_type == PDF || is_text || is_image(media_type) || is_sound(media_type) || media_type.starts_with("video/")
}

/// Whether it is an address that the vendor fetches, or one of its own.
fn is_uri(uri: &str) -> bool {
    ["https://", "http://", "gs://"].iter().any(|scheme| uri.starts_with(scheme))
}

fn type_of(uri: &str) -> Option<&'static str> {
    let path = uri.split(['?', '#']).next()?;
    let (_, ending) = path.rsplit('/').next()?.rsplit_once('.')?;
    ENDINGS.iter().find(|(known, _)| ending.eq_ignore_ascii_case(known)).map(|(_, media_type)| *media_type)
}
