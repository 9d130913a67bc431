//! What the line of the log that a request ends with, and what the request is counted by, say beside its head and status.

use axum::extract::MatchedPath;
use axum::response::Response;

use crate::types::Tenant;

/// What became known of a request; it travels in the extensions of the response to the layer that writes the line.
///
/// It is not recorded into the request's span, whose fields would be parsed and written again with each addition.
#[derive(Debug, Clone, Default)]
pub struct LogFields {
    /// Whose request it is.
    pub tenant: Option<Tenant>,
    /// The name of its key.
    pub key: Option<String>,
    /// The name of the token that it shows in place of the key.
    pub token: Option<String>,
    /// The trace that its caller names.
    pub trace_id: Option<String>,
    /// The code of the error that answers it.
    pub code: Option<&'static str>,
    /// The model or agent of its run, as the caller named it.
    pub model: Option<String>,
    /// All tokens of its run, where the run has ended.
    pub tokens: Option<u64>,
    /// What its run cost, where the run has ended.
    pub cost_usd: Option<f64>,
    /// The route that it took. Not of the line, but of the metrics.
    pub route: Option<MatchedPath>,
    /// Whether it is no failure though its status says so: a probe of a replica that shuts down.
    pub is_planned: bool,
    /// Whether it comes again and again, every few seconds: a probe, or a reading of the metrics.
    pub is_routine: bool,
}

impl LogFields {
    /// Those of the request that this response answers.
    pub fn of(response: &mut Response) -> &mut Self {
        response.extensions_mut().get_or_insert_default()
    }
}
