//! `GET /v1/models` and `/v1/models/{id}`: what can be asked for.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::agent::catalog::{Entry, Resolved};
use crate::agent::error::{LookupError, StartError};
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::ModelPath;
use crate::api::state::Api;
use crate::api::wire::error::ErrorCode;
use crate::api::wire::run::List;

/// When a model was made, which is not known, as Anthropic's clients read it.
const UNKNOWN_TIME: &str = "1970-01-01T00:00:00Z";

/// A model, in the shapes of OpenAI and Anthropic at once.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelObject {
    /// What a request's `model` says.
    #[schema(example = "demo/demo")]
    id: String,
    /// `model`.
    object: &'static str,
    /// Unknown: 0.
    created: u64,
    /// The upstream, or `loopgate` for an agent.
    owned_by: String,
    /// `model`.
    r#type: &'static str,
    /// The same as its id.
    display_name: String,
    /// Unknown: 1970-01-01T00:00:00Z.
    created_at: &'static str,
}

/// Lists agents, then the models of upstreams.
#[utoipa::path(
    get, path = "/v1/models", tag = "models", operation_id = "listModels",
    responses((status = 200, description = "All of them", body = List<ModelObject>)),
)]
pub async fn list(State(api): State<Api>, caller: Caller) -> Result<Response, ApiError> {
    let mut entries = api.agent.agents().entries(&caller.tenant).await.map_err(LookupError::from)?;
    entries.extend(caller.generation.catalog.list().await);
    entries.retain(|entry| caller.requester().may_use(&entry.agent));
    let models = entries.into_iter().map(ModelObject::from).collect();
    Ok(axum::Json(List::new(models, false, |model: &ModelObject| model.id.clone())).into_response())
}

/// Reads one model.
#[utoipa::path(
    get, path = "/v1/models/{id}", tag = "models", operation_id = "getModel",
    params(ModelPath),
    responses((status = 200, description = "The model", body = ModelObject)),
)]
pub async fn get(State(api): State<Api>, caller: Caller, ModelPath(id): ModelPath) -> Result<Response, ApiError> {
    let missing = |error: StartError| ApiError::new(ErrorCode::ModelNotFound, error.to_string()).at("model");
    let resolved = caller.resolve(&api.agent, &id).await.map_err(missing)?;
    Ok(axum::Json(ModelObject::new(id, resolved)).into_response())
}

impl ModelObject {
    /// The agent or the upstream's model of this `id`.
    fn new(id: String, resolved: Resolved) -> Self {
        let owned_by = if resolved.agent_name == id { "loopgate".to_owned() } else { resolved.called.upstream };
        Self::of(id, owned_by)
    }

    fn of(id: String, owned_by: String) -> Self {
        let display_name = id.clone();
        Self { id, object: "model", created: 0, owned_by, r#type: "model", display_name, created_at: UNKNOWN_TIME }
    }
}

impl From<Entry> for ModelObject {
    fn from(Entry { id, owner, .. }: Entry) -> Self {
        Self::of(id, owner)
    }
}
