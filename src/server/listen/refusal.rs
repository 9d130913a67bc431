//! Requests that are refused before they are understood.
//!
//! The HTTP library answers them by itself, without a body, and has no hook for it. What it writes is recognised, and
//! replaced by an error of the one shape.

use bytes::Bytes;
use uuid::Uuid;

use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::openai_error::{ErrorBody, row};

/// The error to write instead of `written`, if that is an answer of the library's own: all of ours name their
/// request. `line_ended` says whether the request line did.
pub(super) fn shaped(written: &[u8], line_ended: bool) -> Option<Bytes> {
    let head = written.strip_prefix(b"HTTP/1.")?.strip_suffix(b"\r\n\r\n")?;
    let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?;
    let headers: Vec<&str> = lines.collect();
    if !headers.contains(&"content-length: 0") || headers.iter().any(|line| line.starts_with("x-request-id:")) {
        return None;
    }
    let error = match status {
        "400" => WireError::new(ErrorCode::MalformedRequest, "the request is not valid HTTP"),
        "414" => too_long(),
        "431" if !line_ended => too_long(),
        "431" => WireError::new(ErrorCode::HeadersTooLarge, "the request's headers are too many or too long"),
        _ => return None,
    };
    let status = row(error.code).status;
    let reason = http::StatusCode::from_u16(status).ok()?.canonical_reason()?;
    let body = serde_json::to_string(&ErrorBody::from(error)).ok()?;
    let id = Uuid::now_v7();
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         x-request-id: {id}\r\nconnection: close\r\n\r\n{body}"
    );
    Some(answer.into())
}

fn too_long() -> WireError {
    WireError::new(ErrorCode::UriTooLong, "the path is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_library_are_replaced_and_ours_are_not() {
        let bare = |status| format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        let shaped = |written: &str, line_ended| {
            let answer = shaped(written.as_bytes(), line_ended)?;
            let text = String::from_utf8(answer.to_vec()).unwrap();
            Some(text.split(' ').nth(1).unwrap().to_owned())
        };
        assert_eq!(shaped(&bare("400 Bad Request"), true).as_deref(), Some("400"));
        assert_eq!(shaped(&bare("431 Request Header Fields Too Large"), true).as_deref(), Some("431"));
        assert_eq!(shaped(&bare("431 Request Header Fields Too Large"), false).as_deref(), Some("414"));
        assert_eq!(shaped(&bare("204 No Content"), true), None);
        let ours = "HTTP/1.1 400 Bad Request\r\nx-request-id: 1\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(shaped(ours, true), None);
        assert_eq!(shaped("data: HTTP/1.1 400 \r\n\r\n", true), None);
    }
}
