//! The headers by which the logs and traces of a service that is asked lead back to the run.

use http::header::{HeaderMap, HeaderName, HeaderValue};

static TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
static TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");
static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What a service is told that is asked: the span and state of the trace, and the id of the request that began the run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Correlation<'a> {
    /// The `traceparent`.
    pub trace_parent: Option<&'a str>,
    /// The `tracestate`.
    pub trace_state: Option<&'a str>,
    /// The id of the request.
    pub request_id: Option<&'a str>,
}

impl Correlation<'_> {
    /// Adds what is known of it. What fits no header is left out.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        let named =
            [(&TRACE_PARENT, self.trace_parent), (&TRACE_STATE, self.trace_state), (&REQUEST_ID, self.request_id)];
        for (name, value) in named {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(name, value);
            }
        }
    }
}
