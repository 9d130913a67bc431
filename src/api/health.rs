//! `/healthz` and `/readyz`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::state::Api;

/// Whether the server is ready, and why not.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// `ok`, `draining` or `store_unavailable`.
    #[schema(example = "ok")]
    status: &'static str,
}

/// Says that the process lives; depends on nothing else.
#[utoipa::path(
    get, path = "/healthz", tag = "operation", operation_id = "getHealth",
    responses((status = 200, description = "It lives", body = Health)),
)]
pub async fn healthz() -> Response {
    axum::Json(Health { status: "ok" }).into_response()
}

/// Says whether new requests are taken: the store answers and the server is not about to end.
#[utoipa::path(
    get, path = "/readyz", tag = "operation", operation_id = "getReadiness",
    responses((status = 200, description = "It is ready", body = Health),
              (status = 503, description = "It is not", body = Health)),
)]
pub async fn readyz(State(api): State<Api>) -> Response {
    let status = match api.agent.health().await {
        _ if api.agent.is_draining() => "draining",
        Ok(()) => "ok",
        Err(_) => "store_unavailable",
    };
    let code = if status == "ok" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, axum::Json(Health { status })).into_response()
}
