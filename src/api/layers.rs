//! `/v1/sessions/{id}/layers/{name}`: layers of a session's prompts.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::agent::session::layers::LayerError;
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::expected::{Precondition, Tagged};
use crate::api::extract::{JsonText, SessionPath, Texts};
use crate::api::params::PreconditionHeaders;
use crate::api::state::Api;
use crate::api::wire::body::clip;
use crate::api::wire::error::ErrorCode;
use crate::api::wire::layer::{LayerObject, PutLayer, read_layer};
use crate::api::wire::run::List;
use crate::types::SessionId;

/// That a layer is gone.
#[derive(Debug, Serialize, ToSchema)]
pub struct LayerDeletion {
    /// The layer.
    name: String,
    /// `session.layer`.
    object: &'static str,
    /// `true`.
    deleted: bool,
}

/// Puts a layer into a session's prompts, in the place of the one of its name.
#[utoipa::path(
    put, path = "/v1/sessions/{id}/layers/{name}", tag = "sessions", operation_id = "putSessionLayer",
    params(SessionPath, ("name" = String, Path, description = "The layer"), PreconditionHeaders),
    request_body = PutLayer,
    responses((status = 200, description = "The layer", body = LayerObject)),
)]
pub async fn put(
    State(api): State<Api>,
    caller: Caller,
    Texts((id, name)): Texts<(String, String)>,
    Precondition(expected): Precondition,
    body: JsonText,
) -> Result<Response, ApiError> {
    let layer = read_layer(&name, body.as_str()?)?;
    let id = session(&id)?;
    refuse_bound(&api, &caller, &id).await?;
    let put = api.agent.sessions().put_layer(&caller.tenant, &id, layer, expected).await?;
    Ok(Tagged(put.version, LayerObject::from(put)).into_response())
}

/// Reads a layer of a session's prompts.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/layers/{name}", tag = "sessions", operation_id = "getSessionLayer",
    params(SessionPath, ("name" = String, Path, description = "The layer")),
    responses((status = 200, description = "The layer", body = LayerObject)),
)]
pub async fn get(
    State(api): State<Api>,
    caller: Caller,
    Texts((id, name)): Texts<(String, String)>,
) -> Result<Response, ApiError> {
    let found = api.agent.sessions().layer(&caller.tenant, &session(&id)?, &name).await?;
    Ok(Tagged(found.version, LayerObject::from(found)).into_response())
}

/// Takes a layer out of a session's prompts.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}/layers/{name}", tag = "sessions", operation_id = "deleteSessionLayer",
    params(SessionPath, ("name" = String, Path, description = "The layer"), PreconditionHeaders),
    responses((status = 200, description = "It is gone", body = LayerDeletion)),
)]
pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Texts((id, name)): Texts<(String, String)>,
    Precondition(expected): Precondition,
) -> Result<Response, ApiError> {
    let id = session(&id)?;
    refuse_bound(&api, &caller, &id).await?;
    api.agent.sessions().delete_layer(&caller.tenant, &id, &name, expected).await?;
    Ok(axum::Json(LayerDeletion { name, object: "session.layer", deleted: true }).into_response())
}

/// Lists the layers of a session's prompts.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/layers", tag = "sessions", operation_id = "listSessionLayers",
    params(SessionPath),
    responses((status = 200, description = "All of them", body = List<LayerObject>)),
)]
pub async fn list(State(api): State<Api>, caller: Caller, SessionPath(id): SessionPath) -> Result<Response, ApiError> {
    let session = api.agent.sessions().get(&caller.tenant, &id).await?.session;
    let layers = session.layers.into_iter().map(LayerObject::from).collect();
    Ok(axum::Json(List::new(layers, false, |layer: &LayerObject| layer.name.clone())).into_response())
}

/// Refuses a caller that may use some agents only, unless the session is one of these agents: a layer instructs whichever agent
/// runs in its session.
pub(super) async fn refuse_bound(api: &Api, caller: &Caller, id: &SessionId) -> Result<(), ApiError> {
    if caller.agents.is_none() {
        return Ok(());
    }
    let found = api.agent.sessions().get(&caller.tenant, id).await?.session;
    if found.agent.as_deref().is_some_and(|agent| caller.requester().may_use(agent)) {
        return Ok(());
    }
    let message =
        "this key may use some agents only, and the session is not one of theirs: its `agent` is none of them";
    Err(ApiError::new(ErrorCode::Forbidden, message).permanent())
}

fn session(id: &str) -> Result<SessionId, ApiError> {
    let missing = || ApiError::new(ErrorCode::SessionNotFound, format!("session {:?} does not exist", clip(id)));
    SessionId::parse(id).ok_or_else(missing)
}

impl From<LayerError> for ApiError {
    fn from(error: LayerError) -> Self {
        let message = error.to_string();
        match error {
            LayerError::NotFound { .. } => Self::new(ErrorCode::LayerNotFound, message),
            LayerError::Changed { .. } => Self::new(ErrorCode::VersionConflict, message).permanent(),
            LayerError::TooMany(_) | LayerError::TooLong(_) => Self::invalid("text", message),
            LayerError::Lookup(error) => error.into(),
        }
    }
}
