//! `/v1/agents`: agents as resources.

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use crate::agent::error::LookupError;
use crate::agent::stored_agents::{AgentError, Changer, StoredAgent};
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::expected::{Precondition, Tagged};
use crate::api::extract::{JsonText, Texts};
use crate::api::params::{AgentPath, AgentVersionPath, PreconditionHeaders};
use crate::api::state::Api;
use crate::api::wire::run::List;
use crate::api::wire::stored_agent::{AgentDeletion, AgentSettings, StoredAgentObject, read_settings};

/// Lists the agents of the configuration, then those of the tenant, by name.
#[utoipa::path(
    get, path = "/v1/agents", tag = "agents", operation_id = "listAgents",
    responses((status = 200, description = "All of them", body = List<StoredAgentObject>)),
)]
pub async fn list(State(api): State<Api>, caller: Caller) -> Result<Response, ApiError> {
    let reader = caller.generation.agents.as_deref();
    let of_file = reader.into_iter().flat_map(|reader| reader.names().filter_map(|name| reader.of_file(name)));
    let mut agents: Vec<_> = of_file.map(StoredAgentObject::of_file).collect();
    let stored = api.agent.agents().list(&caller.tenant).await.map_err(LookupError::from)?;
    // One that the file has taken the name of since is not what its name means.
    let own = stored.into_iter().filter(|agent| reader.is_none_or(|reader| !reader.has(&agent.name)));
    agents.extend(own.map(|agent| StoredAgentObject::of_store(agent, reader)));
    Ok(axum::Json(List::new(agents, false, |agent: &StoredAgentObject| agent.id.clone())).into_response())
}

/// Reads an agent.
#[utoipa::path(
    get, path = "/v1/agents/{agent}", tag = "agents", operation_id = "getAgent",
    params(AgentPath),
    responses((status = 200, description = "The agent; `etag` has its version", body = StoredAgentObject)),
)]
pub async fn get(State(api): State<Api>, caller: Caller, Texts(name): Texts<String>) -> Result<Response, ApiError> {
    let reader = caller.generation.agents.as_deref();
    if let Some(agent) = reader.and_then(|reader| reader.of_file(&name)) {
        return Ok(axum::Json(StoredAgentObject::of_file(agent)).into_response());
    }
    let found = api.agent.agents().get(&caller.tenant, &name).await.map_err(LookupError::from)?;
    Ok(shown(found.ok_or(AgentError::NotFound(name))?, &caller))
}

/// Gives an agent these settings. There need be none of this name yet.
#[utoipa::path(
    put, path = "/v1/agents/{agent}", tag = "agents", operation_id = "putAgent",
    params(AgentPath, PreconditionHeaders),
    request_body = AgentSettings,
    responses((status = 200, description = "The agent", body = StoredAgentObject)),
)]
pub async fn put(
    State(api): State<Api>,
    caller: Caller,
    Texts(name): Texts<String>,
    Precondition(expected): Precondition,
    body: JsonText,
) -> Result<Response, ApiError> {
    let settings = read_settings(body.as_str()?)?;
    let made = api.agent.agents().put(changer(&caller), &name, settings, expected).await?;
    Ok(shown(made, &caller))
}

/// Changes some settings of an agent: the body is a JSON merge patch, in which null takes a setting out.
#[utoipa::path(
    patch, path = "/v1/agents/{agent}", tag = "agents", operation_id = "patchAgent",
    params(AgentPath, PreconditionHeaders),
    request_body = AgentSettings,
    responses((status = 200, description = "The agent", body = StoredAgentObject)),
)]
pub async fn patch(
    State(api): State<Api>,
    caller: Caller,
    Texts(name): Texts<String>,
    Precondition(expected): Precondition,
    body: JsonText,
) -> Result<Response, ApiError> {
    let change = read_settings(body.as_str()?)?;
    let made = api.agent.agents().patch(changer(&caller), &name, &change, expected).await?;
    Ok(shown(made, &caller))
}

/// Deletes an agent. Its versions are kept for 30 days, so it can be restored.
#[utoipa::path(
    delete, path = "/v1/agents/{agent}", tag = "agents", operation_id = "deleteAgent",
    params(AgentPath, PreconditionHeaders),
    responses((status = 200, description = "It is gone", body = AgentDeletion)),
)]
pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Texts(name): Texts<String>,
    Precondition(expected): Precondition,
) -> Result<Response, ApiError> {
    let deleted = api.agent.agents().delete(changer(&caller), &name, expected).await?;
    Ok(axum::Json(AgentDeletion::of(deleted)).into_response())
}

/// Lists the versions of an agent that are kept, the newest first.
#[utoipa::path(
    get, path = "/v1/agents/{agent}/versions", tag = "agents", operation_id = "listAgentVersions",
    params(AgentPath),
    responses((status = 200, description = "At most 20, its deletion among them", body = List<StoredAgentObject>)),
)]
pub async fn versions(
    State(api): State<Api>,
    caller: Caller,
    Texts(name): Texts<String>,
) -> Result<Response, ApiError> {
    let found = api.agent.agents().versions(&caller.tenant, &name).await.map_err(LookupError::from)?;
    if found.is_empty() {
        return Err(AgentError::NotFound(name).into());
    }
    let reader = caller.generation.agents.as_deref();
    let versions = found.into_iter().map(|agent| StoredAgentObject::of_store(agent, reader)).collect();
    let id = |agent: &StoredAgentObject| agent.version.map(|version| version.to_string()).unwrap_or_default();
    Ok(axum::Json(List::new(versions, false, id)).into_response())
}

/// Gives an agent the settings of an earlier version, as a new version, also if it was deleted.
#[utoipa::path(
    post, path = "/v1/agents/{agent}/versions/{version}/restore", tag = "agents", operation_id = "restoreAgent",
    params(AgentVersionPath, PreconditionHeaders),
    responses((status = 200, description = "The agent", body = StoredAgentObject)),
)]
pub async fn restore(
    State(api): State<Api>,
    caller: Caller,
    Texts((name, version)): Texts<(String, String)>,
    Precondition(expected): Precondition,
) -> Result<Response, ApiError> {
    let number = version.parse().map_err(|_| AgentError::NotFound(format!("{name}/versions/{version}")))?;
    let made = api.agent.agents().restore(changer(&caller), &name, number, expected).await?;
    Ok(shown(made, &caller))
}

fn changer(caller: &Caller) -> Changer<'_> {
    Changer { tenant: &caller.tenant, key_name: caller.key_name.as_deref() }
}

/// An agent of the store, and its version as an entity tag.
fn shown(agent: StoredAgent, caller: &Caller) -> Response {
    let (version, reader) = (agent.version, caller.generation.agents.as_deref());
    Tagged(version, StoredAgentObject::of_store(agent, reader)).into_response()
}
