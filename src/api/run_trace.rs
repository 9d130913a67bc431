//! `/v1/runs/{id}/trace`: a run's spans.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{Query, RunPath};
use crate::api::operators::reach;
use crate::api::params::TenantQuery;
use crate::api::readers::TraceMemory;
use crate::api::state::Api;
use crate::telemetry::traces;

/// A run's trace as far as it came, for who has no collector.
///
/// It is made of the run's events, whether the server exports traces or not, and holds nothing of what was said. The
/// form is that of OpenTelemetry's protocol as JSON, which viewers of traces import.
#[utoipa::path(
    get, path = "/v1/runs/{id}/trace", tag = "runs", operation_id = "getRunTrace",
    params(RunPath, TenantQuery),
    responses((status = 200, description = "OpenTelemetry's `ExportTraceServiceRequest`: `resourceSpans`, which hold \
                                            `scopeSpans`, which hold `spans`", body = serde_json::Value)),
)]
pub async fn get(
    State(api): State<Api>,
    caller: Caller,
    RunPath(id): RunPath,
    query: Query,
    memory: TraceMemory,
) -> Result<Response, ApiError> {
    let caller = reach(&api, caller, &id, &query, "trace").await?;
    let mut memory = memory.take().await?;
    let trace = api.agent.runs().trace(caller.requester(), &id).await?;
    if let Some(memory) = &mut memory {
        memory.shrink(trace.size() as u64);
    }
    let resource = [("service.name".to_owned(), env!("CARGO_PKG_NAME").to_owned())];
    // Span by span: what is written of a trace is several times as long as what it is made of.
    let pieces = traces::json(&resource, trace).map(move |piece| {
        let _held = &memory;
        piece.map(Bytes::from)
    });
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    Ok((headers, Body::from_stream(stream::iter(pieces))).into_response())
}
