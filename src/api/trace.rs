//! The trace that a caller's request belongs to.

use http::HeaderMap;

/// The `traceparent` of a request. A header that is none is ignored, as its standard demands.
pub fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let fields: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = fields.iter().map(|field| field.len()).collect();
    (lengths == [2, 32, 16, 2] && fields.into_iter().all(hex)).then(|| text.to_owned())
}

/// The id of the trace.
pub fn trace_id(headers: &HeaderMap) -> Option<String> {
    traceparent(headers)?.split('-').nth(1).map(str::to_owned)
}
