//! Reads an answer, up to a size.

use ::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::net::client::{HttpError, Response};
use crate::types::conversation::{Part, PartKind, Source};

/// What an answer holds.
pub(super) struct Answer {
    /// Its content; `None` if it is empty.
    pub(super) part: Option<Part>,
    /// How many bytes of it were read.
    pub(super) bytes: u64,
}

/// Why an answer cannot be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// It ended before it was whole.
    Broken(HttpError),
    /// It is in this encoding.
    Compressed(String),
}

/// The body: a picture that is whole, else text. No more than `max_bytes` are read, and a note says so if
/// there is more.
pub(super) async fn read(response: Response, max_bytes: usize) -> Result<Answer, Unreadable> {
    let Response { headers, body: mut arriving, .. } = response;
    if let Some(encoding) = encoding(&headers) {
        return Err(Unreadable::Compressed(encoding));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("").to_owned();
    drop(headers);
    let mut body = Vec::new();
    let mut cut = false;
    while !cut && let Some(chunk) = arriving.chunk().await.map_err(Unreadable::Broken)? {
        let room = max_bytes - body.len();
        cut = chunk.len() > room;
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    let bytes = body.len() as u64;
    if let Some(media_type) = image(&kind).filter(|_| !cut && !body.is_empty()) {
        let source = Source::Base64 { media_type, data: STANDARD.encode(&body) };
        return Ok(Answer { part: Some(PartKind::Image { source, detail: None }.into()), bytes });
    }
    let text = text(&body, cut).unwrap_or_else(|| binary(body.len(), cut, &kind));
    let note = format!("\n[The answer is longer than {max_bytes} bytes; the rest was not read.]");
    let text = if cut { text + &note } else { text };
    let part = (!text.is_empty()).then(|| Part::text(text));
    Ok(Answer { part, bytes })
}

/// The media type of a picture that models can look at.
fn image(kind: &str) -> Option<String> {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(kind.as_str(), "image/png" | "image/jpeg" | "image/gif" | "image/webp").then_some(kind)
}

/// How the body is encoded, where it is.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let encoding = headers.get(CONTENT_ENCODING)?.to_str().unwrap_or("unknown").trim();
    let plain = encoding.is_empty() || encoding.eq_ignore_ascii_case("identity");
    (!plain).then(|| encoding.chars().take(100).collect())
}

/// Bytes as text, with a replacement character for each stray byte; `None` if they are no text.
fn text(bytes: &[u8], cut: bool) -> Option<String> {
    // A character that the cut went through is dropped.
    let bytes = match std::str::from_utf8(bytes) {
        Err(error) if cut && error.error_len().is_none() => &bytes[..error.valid_up_to()],
        Ok(_) | Err(_) => bytes,
    };
    let stray: usize = bytes.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    let is_text = !bytes.contains(&0) && stray * 10 <= bytes.len();
    is_text.then(|| String::from_utf8_lossy(bytes).into_owned())
}

fn binary(length: usize, cut: bool, kind: &str) -> String {
    let more = if cut { "more than " } else { "" };
    let kind: String = kind.chars().take(100).collect();
    let kind = if kind.is_empty() { kind } else { format!(", {kind}") };
    format!("[binary, {more}{length} bytes{kind}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_bytes() {
        assert_eq!(text(b"plain", false).as_deref(), Some("plain"));
        assert_eq!(text("caf\u{e9}".as_bytes(), false).as_deref(), Some("caf\u{e9}"));
        assert_eq!(text(b"caf\xe9 au lait", false).as_deref(), Some("caf\u{fffd} au lait"));
        assert_eq!(text(b"caf\xc3", true).as_deref(), Some("caf"));
        assert_eq!(text(b"caf\xc3 au lait", false).as_deref(), Some("caf\u{fffd} au lait"));
        assert_eq!(text(b"\x89PNG\r\n\x1a\n\0\0", false), None);
        assert_eq!(text(&[0xff; 20], false), None);
        assert_eq!(binary(9, false, "image/png"), "[binary, 9 bytes, image/png]");
        assert_eq!(binary(9, true, ""), "[binary, more than 9 bytes]");
    }
}
