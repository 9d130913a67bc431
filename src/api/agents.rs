//! `/v1/agents`: agents as resources.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::agent::error::LookupError;
use crate::agent::stored_agents::{AgentError, Changer, Expected, StoredAgent};
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, header_text};
use crate::api::params::{AgentPath, AgentVersionPath, ExpectedVersion};
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
    agents.extend(stored.into_iter().map(|agent| StoredAgentObject::of_store(agent, reader)));
    Ok(axum::Json(List::new(agents, false, |agent: &StoredAgentObject| agent.id.clone())).into_response())
}

/// Reads an agent.
#[utoipa::path(
    get, path = "/v1/agents/{agent}", tag = "agents", operation_id = "getAgent",
    params(AgentPath),
    responses((status = 200, description = "The agent; `etag` has its version", body = StoredAgentObject)),
)]
pub async fn get(State(api): State<Api>, caller: Caller, Path(name): Path<String>) -> Result<Response, ApiError> {
    let reader = caller.generation.agents.as_deref();
    if let Some(agent) = reader.and_then(|reader| reader.of_file(&name)) {
        return Ok(axum::Json(StoredAgentObject::of_file(agent)).into_response());
    }
    let found = api.agent.agents().get(&caller.tenant, &name).await.map_err(LookupError::from)?;
    Ok(shown(found.ok_or(AgentError::NotFound(name))?, &caller, StatusCode::OK))
}

/// Gives an agent these settings. There need be none of this name yet.
#[utoipa::path(
    put, path = "/v1/agents/{agent}", tag = "agents", operation_id = "putAgent",
    params(AgentPath, ExpectedVersion),
    request_body = AgentSettings,
    responses((status = 200, description = "The agent", body = StoredAgentObject)),
)]
pub async fn put(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Response, ApiError> {
    let (expected, settings) = (expected(&headers)?, read_settings(body.as_str()?)?);
    let made = api.agent.agents().put(changer(&caller), &name, settings, expected).await?;
    Ok(shown(made, &caller, StatusCode::OK))
}

/// Changes some settings of an agent: the body is a JSON merge patch, in which null takes a setting out.
#[utoipa::path(
    patch, path = "/v1/agents/{agent}", tag = "agents", operation_id = "patchAgent",
    params(AgentPath, ExpectedVersion),
    request_body = AgentSettings,
    responses((status = 200, description = "The agent", body = StoredAgentObject)),
)]
pub async fn patch(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Response, ApiError> {
    let (expected, change) = (expected(&headers)?, read_settings(body.as_str()?)?);
    let made = api.agent.agents().patch(changer(&caller), &name, &change, expected).await?;
    Ok(shown(made, &caller, StatusCode::OK))
}

/// Deletes an agent. Its versions are kept for 30 days, so it can be restored.
#[utoipa::path(
    delete, path = "/v1/agents/{agent}", tag = "agents", operation_id = "deleteAgent",
    params(AgentPath, ExpectedVersion),
    responses((status = 200, description = "It is gone", body = AgentDeletion)),
)]
pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let deleted = api.agent.agents().delete(changer(&caller), &name, expected(&headers)?).await?;
    Ok(axum::Json(AgentDeletion::of(deleted)).into_response())
}

/// Lists the versions of an agent that are kept, the newest first.
#[utoipa::path(
    get, path = "/v1/agents/{agent}/versions", tag = "agents", operation_id = "listAgentVersions",
    params(AgentPath),
    responses((status = 200, description = "At most 20, its deletion among them", body = List<StoredAgentObject>)),
)]
pub async fn versions(State(api): State<Api>, caller: Caller, Path(name): Path<String>) -> Result<Response, ApiError> {
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
    params(AgentVersionPath, ExpectedVersion),
    responses((status = 200, description = "The agent", body = StoredAgentObject)),
)]
pub async fn restore(
    State(api): State<Api>,
    caller: Caller,
    Path((name, version)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let number = version.parse().map_err(|_| AgentError::NotFound(format!("{name}/versions/{version}")))?;
    let made = api.agent.agents().restore(changer(&caller), &name, number, expected(&headers)?).await?;
    Ok(shown(made, &caller, StatusCode::OK))
}

fn changer(caller: &Caller) -> Changer<'_> {
    Changer { tenant: &caller.tenant, key_name: caller.key_name.as_deref() }
}

/// An agent of the store, and its version as an entity tag.
fn shown(agent: StoredAgent, caller: &Caller, status: StatusCode) -> Response {
    let tag = HeaderValue::try_from(format!("\"{}\"", agent.version));
    let object = StoredAgentObject::of_store(agent, caller.generation.agents.as_deref());
    let mut response = (status, axum::Json(object)).into_response();
    if let Ok(tag) = tag {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// What `if-match` and `if-none-match` ask for.
fn expected(headers: &HeaderMap) -> Result<Expected, ApiError> {
    let (matches, none) = (header_text(headers, "if-match")?, header_text(headers, "if-none-match")?);
    match (matches.map(str::trim), none.map(str::trim)) {
        (None, None) => Ok(Expected::Anything),
        (Some("*"), None) => Ok(Expected::Something),
        (None, Some("*")) => Ok(Expected::Nothing),
        (Some(tag), None) => {
            let version = tag.trim_start_matches("W/").trim_matches('"').parse().ok();
            let wrong = || ApiError::invalid("if-match", "must be `*` or the `etag` of one version, such as \"12\"");
            version.map(Expected::Version).ok_or_else(wrong)
        }
        (None, Some(_)) => Err(ApiError::invalid("if-none-match", "must be `*`: there must be no such agent yet")),
        (Some(_), Some(_)) => Err(ApiError::invalid("if-match", "may not stand beside if-none-match")),
    }
}
