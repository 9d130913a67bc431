//! The trace that a caller's request belongs to.

use http::HeaderMap;

use crate::types::TraceContext;

/// What `traceparent` and `tracestate` say. A `traceparent` that is none is ignored, as its standard demands, and then
/// `tracestate` is too.
pub fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |name| headers.get(name)?.to_str().ok();
    // Several lines of the state are one list.
    let mut lines = headers.get_all("tracestate").iter();
    let state = match (lines.next(), lines.next()) {
        (Some(_), Some(_)) => {
            let lines: Option<Vec<_>> = headers.get_all("tracestate").iter().map(|line| line.to_str().ok()).collect();
            lines.map(|lines| lines.join(","))
        }
        _ => text("tracestate").map(str::to_owned),
    };
    TraceContext::parse(text("traceparent")?, state.as_deref())
}

/// The id of the trace.
pub fn trace_id(headers: &HeaderMap) -> Option<String> {
    let parent = headers.get("traceparent")?.to_str().ok()?;
    TraceContext::parse(parent, None).map(|context| context.trace.to_string())
}
