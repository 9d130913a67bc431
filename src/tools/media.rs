//! Which files models and clients can look at: pictures and documents, told by the endings of their names.
//!
//! What they are is not believed: [`fit`](crate::tools::fit) reads the type of a picture from its first bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::types::conversation::{Part, PartKind, Source};

/// Longest picture or document that is part of an answer.
const MAX_MEDIA: usize = 3 << 20;

/// A picture or document as a part; `None` for other files, and for those that are too long.
pub(in crate::tools) fn part(path: &str, bytes: &[u8]) -> Option<Part> {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).unwrap_or_default();
    let media_type = match ending.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        _ => return None,
    };
    if bytes.is_empty() || bytes.len() > MAX_MEDIA {
        return None;
    }
    if media_type.starts_with("image/") {
        return Some(PartKind::Image { source: encoded(media_type, bytes), detail: None }.into());
    }
    Some(file(media_type, path, bytes))
}

/// Any file as a part.
pub(in crate::tools) fn file(media_type: &str, path: &str, bytes: &[u8]) -> Part {
    PartKind::File { source: encoded(media_type, bytes), name: Some(path.to_owned()) }.into()
}

fn encoded(media_type: &str, bytes: &[u8]) -> Source {
    Source::Base64 { media_type: media_type.to_owned(), data: STANDARD.encode(bytes) }
}
