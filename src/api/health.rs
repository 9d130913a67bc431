//! `/healthz` and `/readyz`.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::log_fields::LogFields;
use crate::api::state::Api;

/// Whether the server is ready, and why not.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// `ok`, `starting`, `draining`, `store_unavailable`, `upstream_unavailable` or `stalled`.
    #[schema(example = "ok")]
    status: &'static str,
}

/// Marks a request that arrived while the threads that serve requests hang.
#[derive(Debug, Clone, Copy)]
pub struct Stalled;

/// Says that the process lives: that requests are served, however slowly. Depends on nothing else.
#[utoipa::path(
    get, path = "/healthz", tag = "operation", operation_id = "getHealth",
    responses((status = 200, description = "It lives", body = Health),
              (status = 503, description = "The threads that serve requests have hung for 20 s; it should be restarted", body = Health)),
)]
pub async fn healthz(stalled: Option<Extension<Stalled>>) -> Response {
    match stalled {
        None => axum::Json(Health { status: "ok" }).into_response(),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, axum::Json(Health { status: "stalled" })).into_response(),
    }
}

/// Says whether new requests are taken: the store answers, the tools of servers are known, and the server is not about to end.
#[utoipa::path(
    get, path = "/readyz", tag = "operation", operation_id = "getReadiness",
    responses((status = 200, description = "It is ready", body = Health),
              (status = 503, description = "It is not", body = Health)),
)]
pub async fn readyz(State(api): State<Api>) -> Response {
    let status = match api.agent.health().await {
        _ if api.agent.is_draining() => "draining",
        Ok(()) if api.agent.missing_upstream().is_some() => "upstream_unavailable",
        Ok(()) if api.agent.awaits_tools() => "starting",
        Ok(()) => "ok",
        Err(_) => "store_unavailable",
    };
    let code = if status == "ok" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response = (code, axum::Json(Health { status })).into_response();
    LogFields::of(&mut response).is_planned = status == "draining";
    response
}
