//! Reads an answer, up to a size: as text, as a picture or a document, or piece by piece where it tells how far a call is.

use std::fmt::Write as _;

use ::http::header::{CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::streamed::{Framing, Streamed};
use crate::net::client::{Body, HttpError, Response};
use crate::tools::ProgressSink;
use crate::types::conversation::{Part, PartKind, Source};

/// What an answer holds.
pub(super) struct Answer {
    /// Its content; empty if it has none.
    pub(super) parts: Vec<Part>,
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

/// The body: a picture or document that is whole, else text. No more than `max_bytes` are read, and a note says so if
/// there is more. What a streamed answer tells of how far it is goes to `progress`.
pub(super) async fn read(response: Response, max_bytes: usize, progress: &ProgressSink) -> Result<Answer, Unreadable> {
    let Response { headers, body: arriving, .. } = response;
    if let Some(encoding) = encoding(&headers) {
        return Err(Unreadable::Compressed(encoding));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("").to_owned();
    let name = headers.get(CONTENT_DISPOSITION).and_then(|value| file_name(value.to_str().ok()?));
    drop(headers);
    let (body, cut) = match Framing::of(&essence(&kind)) {
        Some(framing) => read_streamed(arriving, Streamed::new(framing, max_bytes), progress).await,
        None => read_whole(arriving, max_bytes).await,
    }
    .map_err(Unreadable::Broken)?;
    Ok(Answer { parts: parts(&body, &kind, name, cut.then_some(max_bytes)), bytes: body.len() as u64 })
}

/// What a body says that came whole, with these headers.
pub fn parts_of(headers: &HeaderMap, body: &[u8]) -> Vec<Part> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let name = headers.get(CONTENT_DISPOSITION).and_then(|value| file_name(value.to_str().ok()?));
    parts(body, kind, name, None)
}

/// A body as a picture or document, else as text. One that was cut at so many bytes is text, with a note that says so.
fn parts(body: &[u8], kind: &str, name: Option<String>, cut_at: Option<usize>) -> Vec<Part> {
    let essence = essence(kind);
    if cut_at.is_none()
        && !body.is_empty()
        && let Some(part) = media(&essence, name, body)
    {
        return vec![part];
    }
    let is_cut = cut_at.is_some();
    let mut text = text(body, is_cut).unwrap_or_else(|| binary(body.len(), is_cut, kind));
    if let Some(most) = cut_at {
        let _ = write!(text, "\n[The answer is longer than {most} bytes; the rest was not read.]");
    }
    if text.is_empty() { Vec::new() } else { vec![Part::text(text)] }
}

/// A media type without its parameters.
fn essence(kind: &str) -> String {
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

async fn read_whole(mut arriving: Body, max_bytes: usize) -> Result<(Vec<u8>, bool), HttpError> {
    let (mut body, mut cut) = (Vec::new(), false);
    while !cut && let Some(chunk) = arriving.chunk().await? {
        let room = max_bytes - body.len();
        cut = chunk.len() > room;
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    Ok((body, cut))
}

async fn read_streamed(
    mut arriving: Body,
    mut streamed: Streamed,
    progress: &ProgressSink,
) -> Result<(Vec<u8>, bool), HttpError> {
    while !streamed.was_cut()
        && let Some(chunk) = arriving.chunk().await?
    {
        if let Some(report) = streamed.take(&chunk) {
            progress.report(report);
        }
    }
    let cut = streamed.was_cut();
    Ok((streamed.finish(), cut))
}

/// A picture that models can look at, or a document that they can read.
fn media(kind: &str, name: Option<String>, body: &[u8]) -> Option<Part> {
    let source = || Source::Base64 { media_type: kind.to_owned(), data: STANDARD.encode(body) };
    match kind {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => {
            Some(PartKind::Image { source: source(), detail: None }.into())
        }
        "application/pdf" => Some(PartKind::File { source: source(), name }.into()),
        _ => None,
    }
}

/// The name of a file, without a path.
fn file_name(disposition: &str) -> Option<String> {
    let (_, name) = disposition.split_once("filename=")?;
    let name = match name.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => name.split(';').next(),
    };
    let name = name?.rsplit(['/', '\\']).next()?.trim();
    (!name.is_empty() && name.len() <= 200).then(|| name.to_owned())
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
