//! `/v1/sessions`: conversations as resources.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::agent::error::NotMade;
use crate::agent::listed::Listed;
use crate::agent::session::NewSession;
use crate::agent::session::list::AfterSession;
use crate::agent::{RequestKey, RequestMemory, Versioned};
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, Query, SessionPath};
use crate::api::identity::{RequestIdentity, mark_replayed};
use crate::api::paging::{Window, page_of};
use crate::api::params::{IdempotencyKey, MessagesQuery, SessionsQuery};
use crate::api::state::Api;
use crate::api::wire::restored::RestoreWarning;
use crate::api::wire::run::{List, RunObject};
use crate::api::wire::session::{CreateSession, MessageObject, PatchSession, SessionObject, read_create, read_patch};
use crate::store::Order;
use crate::types::SessionId;
use crate::types::json::MAX_NUMBER;

/// That a session is gone.
#[derive(Debug, Serialize, ToSchema)]
pub struct Deletion {
    /// The session.
    id: String,
    /// `session`.
    object: &'static str,
    /// `true`.
    deleted: bool,
}

/// Creates a session.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions", operation_id = "createSession",
    request_body = Option<CreateSession<'_>>,
    params(IdempotencyKey),
    responses((status = 201, description = "The session", body = SessionObject)),
)]
pub async fn create(
    State(api): State<Api>,
    caller: Caller,
    identity: RequestIdentity,
    body: JsonText,
) -> Result<Response, ApiError> {
    let text = body.as_str()?;
    let new = read_create(text)?;
    if let Some(agent) = &new.agent {
        caller.resolve(&api.agent, agent).await.map_err(|error| ApiError::from(error).at("agent"))?;
    }
    let key = identity.chosen_key("sessions", &caller, text)?;
    let memory = Arc::new(body.into_memory());
    let id = new.id.clone().unwrap_or_else(SessionId::mint);
    let new = NewSession { memory: memory.clone(), ..new };
    let make = |id| api.agent.sessions().create(&caller.tenant, NewSession { id: Some(id), ..new });
    make_session(&api, &caller, key.as_ref(), id, memory, make).await
}

/// Answers with the session that `make` makes, or that the same request made before.
pub async fn make_session<E: NotMade + Into<ApiError>, F: Future<Output = Result<Versioned, E>>>(
    api: &Api,
    caller: &Caller,
    key: Option<&RequestKey>,
    id: SessionId,
    memory: Arc<RequestMemory>,
    make: impl FnOnce(SessionId) -> F,
) -> Result<Response, ApiError> {
    make_session_with(api, caller, (key, Vec::new()), id, memory, make).await
}

/// The same, where the caller is told what its copy had otherwise.
pub async fn make_session_with<E: NotMade + Into<ApiError>, F: Future<Output = Result<Versioned, E>>>(
    api: &Api,
    caller: &Caller,
    (key, warnings): (Option<&RequestKey>, Vec<RestoreWarning>),
    id: SessionId,
    memory: Arc<RequestMemory>,
    make: impl FnOnce(SessionId) -> F,
) -> Result<Response, ApiError> {
    let (made, replayed) =
        api.agent.admission().make_session(&caller.tenant, key, id, memory, make).await.map_err(Into::into)?;
    let object = SessionObject { warnings, ..SessionObject::from(&made) };
    let mut response = (StatusCode::CREATED, axum::Json(object)).into_response();
    if replayed {
        mark_replayed(response.headers_mut());
    }
    Ok(response)
}

/// Lists sessions by the time of their creation.
#[utoipa::path(
    get, path = "/v1/sessions", tag = "sessions", operation_id = "listSessions",
    params(SessionsQuery),
    responses((status = 200, description = "A page of sessions", body = List<SessionObject>)),
)]
pub async fn list(State(api): State<Api>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let limit = query.limit()?;
    let after = query.parsed("after", AfterSession::parse)?;
    let order = query.parsed("order", parse_order)?.unwrap_or(Order::Descending);
    let (traits, page) = (query.traits()?, (limit + 1, order));
    let Listed { found, searched_to } = api.agent.sessions().list(&caller.tenant, &traits, after, page).await?;
    let (found, has_more) = page_of(found, limit);
    let sessions: Vec<_> = found.iter().map(SessionObject::from).collect();
    let list = List::new(sessions, has_more, |session| session.id.clone());
    Ok(axum::Json(list.searched_to(searched_to.map(|place| place.to_string()))).into_response())
}

/// Reads a session.
#[utoipa::path(
    get, path = "/v1/sessions/{id}", tag = "sessions", operation_id = "getSession",
    params(SessionPath),
    responses((status = 200, description = "The session", body = SessionObject)),
)]
pub async fn get(State(api): State<Api>, caller: Caller, SessionPath(id): SessionPath) -> Result<Response, ApiError> {
    let found = api.agent.sessions().get(&caller.tenant, &id).await?;
    Ok(axum::Json(SessionObject::from(&found)).into_response())
}

/// Changes a session's metadata and budgets.
#[utoipa::path(
    patch, path = "/v1/sessions/{id}", tag = "sessions", operation_id = "patchSession",
    params(SessionPath),
    request_body = PatchSession,
    responses((status = 200, description = "The session", body = SessionObject)),
)]
pub async fn patch(
    State(api): State<Api>,
    caller: Caller,
    SessionPath(id): SessionPath,
    body: JsonText,
) -> Result<Response, ApiError> {
    let patched = api.agent.sessions().patch(&caller.tenant, &id, read_patch(body.as_str()?)?).await?;
    Ok(axum::Json(SessionObject::from(&patched)).into_response())
}

/// Deletes a session with its messages and runs.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}", tag = "sessions", operation_id = "deleteSession",
    params(SessionPath),
    responses((status = 200, description = "It is gone", body = Deletion)),
)]
pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    SessionPath(id): SessionPath,
) -> Result<Response, ApiError> {
    api.agent.sessions().delete(caller.requester(), &id).await?;
    Ok(axum::Json(Deletion { id: id.to_string(), object: "session", deleted: true }).into_response())
}

/// Reads a session's messages.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/messages", tag = "sessions", operation_id = "listSessionMessages",
    params(SessionPath, MessagesQuery),
    responses((status = 200, description = "A page of messages", body = List<MessageObject>)),
)]
pub async fn messages(
    State(api): State<Api>,
    caller: Caller,
    SessionPath(id): SessionPath,
    query: Query,
) -> Result<Response, ApiError> {
    let limit = query.limit()?;
    let after: Option<u64> = query.parsed("after", |text| text.parse().ok().filter(|place| *place <= MAX_NUMBER))?;
    let order = query.parsed("order", parse_order)?.unwrap_or(Order::Ascending);
    let total = api.agent.sessions().get(&caller.tenant, &id).await?.session.message_count;
    let window = Window::new(after, limit as u64, total, order);
    let count = usize::try_from(window.count).unwrap_or(limit);
    let (found, before) = api.agent.sessions().messages(&caller.tenant, &id, window.from, count, order).await?;
    let window = window.from(before);
    let has_more = window.has_more(found.len(), total);
    let numbered = window.numbered(found).into_iter();
    let data = numbered.map(|(index, message)| MessageObject::new(index, &message)).collect::<Result<Vec<_>, _>>()?;
    Ok(axum::Json(List::new(data, has_more, |message| message.index.to_string())).into_response())
}

/// Cancels a session's runs and answers once they have stopped.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/cancel", tag = "sessions", operation_id = "cancelSession",
    params(SessionPath),
    responses((status = 200, description = "The runs as they ended, newest first", body = List<RunObject<'_>>)),
)]
pub async fn cancel(
    State(api): State<Api>,
    caller: Caller,
    SessionPath(id): SessionPath,
) -> Result<Response, ApiError> {
    let cancelled = api.agent.runs().cancel_session(caller.requester(), &id).await?;
    let runs: Vec<_> = cancelled.iter().map(|view| RunObject::shown(view, caller.follows())).collect();
    Ok(axum::Json(List::new(runs, false, |run| run.id.to_owned())).into_response())
}

fn parse_order(text: &str) -> Option<Order> {
    match text {
        "asc" => Some(Order::Ascending),
        "desc" => Some(Order::Descending),
        _ => None,
    }
}
