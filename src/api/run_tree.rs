//! `/v1/runs/{id}/tree`: a run with all runs below it.

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::RunPath;
use crate::api::state::Api;
use crate::api::wire::tree::TreeObject;

/// A run with the runs that it has begun, those that these have begun, and so on, and what each of them took.
#[utoipa::path(
    get, path = "/v1/runs/{id}/tree", tag = "runs", operation_id = "getRunTree",
    params(RunPath),
    responses((status = 200, description = "The tree", body = TreeObject<'_>)),
)]
pub async fn get(State(api): State<Api>, caller: Caller, RunPath(id): RunPath) -> Result<Response, ApiError> {
    let tree = api.agent.runs().tree(caller.requester(), &id).await?;
    Ok(axum::Json(TreeObject::from(&tree)).into_response())
}
