//! `/`: what this server is, and where it is described. It tells nothing of the configuration, as it asks for no key.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

/// Where the description of the HTTP contract is served.
pub(super) const DESCRIPTION: &str = "/openapi.json";

/// What this server is, and where it is described.
#[derive(Debug, Serialize, ToSchema)]
pub struct Index {
    /// Always `loopgate`.
    #[schema(example = "loopgate")]
    name: &'static str,
    /// What it is for.
    about: &'static str,
    /// The path of the page that describes the API.
    #[schema(example = "/docs")]
    docs: &'static str,
    /// The path of the API's description for programs.
    #[schema(example = "/openapi.json")]
    openapi: &'static str,
    /// The base path for clients of OpenAI.
    #[schema(example = "/v1")]
    base: &'static str,
}

/// Says what this server is, and where it is described.
#[utoipa::path(
    get, path = "/", tag = "operation", operation_id = "getIndex",
    responses((status = 200, description = "What it is", body = Index)),
)]
pub async fn index() -> Json<Index> {
    Json(Index {
        name: "loopgate",
        about: env!("CARGO_PKG_DESCRIPTION"),
        docs: "/docs",
        openapi: DESCRIPTION,
        base: "/v1",
    })
}
