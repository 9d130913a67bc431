//! `/v1/sessions`: conversations as resources.

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use crate::agent::Versioned;
use crate::agent::session::NewSession;
use crate::api::Api;
use crate::api::callers::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{Id, JsonText, Query};
use crate::api::idempotency::{Announced, mark_replayed};
use crate::api::wire::body::clip;
use crate::api::wire::error::ErrorCode;
use crate::api::wire::openai_error::ErrorBody;
use crate::api::wire::run::{List, RunObject};
use crate::api::wire::session::{CreateSession, MessageObject, PatchSession, SessionObject, read_create, read_patch};
use crate::llm::openai::messages::json;
use crate::store::Order;
use crate::types::SessionId;

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
    request_body = CreateSession<'_>,
    params(("idempotency-key" = Option<String>, Header,
            description = "1 to 255 visible ASCII characters; the same key with the same body gives the same session")),
    responses((status = 201, description = "The session", body = SessionObject),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Response, ApiError> {
    let body = body.as_str()?;
    let announced = Announced::read(&headers)?;
    let mut new = read_create(body)?;
    let (agent, tenant) = (&api.agent, &caller.tenant);
    let (created, replayed) = match announced.once_by_key("sessions", &caller, body)? {
        Some(once) => {
            let id = new.id.take().unwrap_or_else(SessionId::mint);
            let make = |id| agent.create_session(tenant, NewSession { id: Some(id), ..new });
            agent.make_session_once(tenant, &once, id, make).await?
        }
        None => (agent.create_session(tenant, new).await?, false),
    };
    Ok(respond(&created, replayed))
}

/// That a session was made now, or was before.
pub fn respond(made: &Versioned, replayed: bool) -> Response {
    let mut response = (StatusCode::CREATED, axum::Json(SessionObject::from(made))).into_response();
    if replayed {
        mark_replayed(response.headers_mut());
    }
    response
}

/// Lists sessions by id.
#[utoipa::path(
    get, path = "/v1/sessions", tag = "sessions", operation_id = "listSessions",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; 20 without it"),
        ("after" = Option<String>, Query, description = "Only those beyond this session"),
        ("order" = Option<String>, Query, description = "`asc` or `desc` (default)"),
    ),
    responses((status = 200, description = "A page of sessions", body = List<SessionObject>),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    query: Query,
) -> Result<Response, ApiError> {
    let limit = query.limit()?;
    let after = query.parsed("after", SessionId::parse)?;
    let order = query.parsed("order", parse_order)?.unwrap_or(Order::Descending);
    let mut found = api.agent.sessions(&caller.tenant, after.as_ref(), limit + 1, order).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let sessions: Vec<_> = found.iter().map(SessionObject::from).collect();
    Ok(axum::Json(List::new(sessions, has_more, |session| session.id.clone())).into_response())
}

/// Reads a session.
#[utoipa::path(
    get, path = "/v1/sessions/{id}", tag = "sessions", operation_id = "getSession",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, description = "The session", body = SessionObject),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id,
) -> Result<Response, ApiError> {
    let found = api.agent.session(&caller.tenant, &session_id(&id)?).await?;
    Ok(axum::Json(SessionObject::from(&found)).into_response())
}

/// Changes a session's metadata and budgets.
#[utoipa::path(
    patch, path = "/v1/sessions/{id}", tag = "sessions", operation_id = "patchSession",
    params(("id" = String, Path, description = "The session")),
    request_body = PatchSession,
    responses((status = 200, description = "The session", body = SessionObject),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn patch(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id,
    body: JsonText,
) -> Result<Response, ApiError> {
    let id = session_id(&id)?;
    let patched = api.agent.patch_session(&caller.tenant, &id, read_patch(body.as_str()?)?).await?;
    Ok(axum::Json(SessionObject::from(&patched)).into_response())
}

/// Deletes a session with its messages and runs.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}", tag = "sessions", operation_id = "deleteSession",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, description = "It is gone", body = Deletion),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn delete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id,
) -> Result<Response, ApiError> {
    let id = session_id(&id)?;
    api.agent.delete_session(&caller.tenant, &id).await?;
    Ok(axum::Json(Deletion { id: id.to_string(), object: "session", deleted: true }).into_response())
}

/// Reads a session's messages.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/messages", tag = "sessions", operation_id = "listSessionMessages",
    params(
        ("id" = String, Path, description = "The session"),
        ("limit" = Option<u32>, Query, description = "1 to 100; 20 without it"),
        ("after" = Option<u64>, Query, description = "Only those beyond this place, in the list's order"),
        ("order" = Option<String>, Query, description = "`asc` (default) or `desc`"),
    ),
    responses((status = 200, description = "A page of messages", body = List<MessageObject>),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn messages(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id,
    query: Query,
) -> Result<Response, ApiError> {
    let id = session_id(&id)?;
    let limit = query.limit()?;
    let after: Option<u64> = query.parsed("after", |text| text.parse().ok())?;
    let order = query.parsed("order", parse_order)?.unwrap_or(Order::Ascending);
    let total = api.agent.session(&caller.tenant, &id).await?.session.message_count;
    let (from, count) = page(after, limit as u64, total, order);
    let (found, _) = api.agent.messages(&caller.tenant, &id, from, usize::try_from(count).unwrap_or(limit)).await?;
    let indexed = (from + 1..).zip(&found).map(|(index, message)| MessageObject::new(index, json(message)));
    let mut data = indexed.collect::<Result<Vec<_>, _>>()?;
    let has_more = match order {
        Order::Ascending => from + (data.len() as u64) < total,
        Order::Descending => from > 0,
    };
    if order == Order::Descending {
        data.reverse();
    }
    Ok(axum::Json(List::new(data, has_more, |message| message.index.to_string())).into_response())
}

/// Cancels a session's runs and answers once they have stopped.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/cancel", tag = "sessions", operation_id = "cancelSession",
    params(("id" = String, Path, description = "The session"),
           ("idempotency-key" = Option<String>, Header, description = "Not needed: cancelling may be repeated")),
    responses((status = 200, description = "The runs as they ended, newest first", body = List<RunObject<'_>>),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn cancel(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    Announced::read(&headers)?;
    let cancelled = api.agent.cancel_session(&caller.tenant, &session_id(&id)?).await?;
    let runs: Vec<_> = cancelled.iter().map(RunObject::from).collect();
    Ok(axum::Json(List::new(runs, false, |run| run.id.to_owned())).into_response())
}

/// After how many messages a page begins, and how many it has.
fn page(after: Option<u64>, limit: u64, total: u64, order: Order) -> (u64, u64) {
    match order {
        Order::Ascending => (after.unwrap_or(0), limit),
        Order::Descending => {
            let end = after.map_or(total, |after| after.saturating_sub(1).min(total));
            let from = end.saturating_sub(limit);
            (from, end - from)
        }
    }
}

/// The session that a path names.
pub fn session_id(text: &str) -> Result<SessionId, ApiError> {
    let missing = || ApiError::new(ErrorCode::SessionNotFound, format!("session {:?} does not exist", clip(text)));
    SessionId::parse(text).ok_or_else(missing)
}

fn parse_order(text: &str) -> Option<Order> {
    match text {
        "asc" => Some(Order::Ascending),
        "desc" => Some(Order::Descending),
        _ => None,
    }
}
