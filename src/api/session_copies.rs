//! Copies of sessions: `/v1/sessions/{id}/fork`, `/v1/sessions/{id}/export`, `/v1/sessions/import`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use http::{HeaderValue, header};

use crate::agent::error::LookupError;
use crate::agent::session::fork::Fork;
use crate::agent::session::snapshot::Export;
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, Query, SessionPath};
use crate::api::identity::RequestIdentity;
use crate::api::params::{ForkQuery, IdempotencyKey};
use crate::api::sessions::make_session;
use crate::api::state::Api;
use crate::api::wire::session::{ForkSession, SessionObject, read_fork};
use crate::api::wire::snapshot::{END, SessionExport, Snapshot, read_snapshot, write_head, write_messages};
use crate::types::SessionId;
use crate::types::session::Session;

/// Makes a new session of another's first messages.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/fork", tag = "sessions", operation_id = "forkSession",
    params(SessionPath, IdempotencyKey, ForkQuery),
    request_body = Option<ForkSession>,
    responses((status = 201, description = "The new session", body = SessionObject)),
)]
pub async fn fork(
    State(api): State<Api>,
    caller: Caller,
    SessionPath(source): SessionPath,
    identity: RequestIdentity,
    query: Query,
    body: JsonText,
) -> Result<Response, ApiError> {
    let text = body.as_str()?;
    let round_down = query.parsed("round", |text| (text == "down").then_some(()))?.is_some();
    let fork = read_fork(text, round_down)?;
    let route = if round_down { "fork/down" } else { "fork" };
    let key = identity.chosen_key(&format!("sessions/{source}/{route}"), &caller, text)?;
    let memory = Arc::new(body.into_memory());
    let id = fork.id.clone().unwrap_or_else(SessionId::mint);
    let make = |id| api.agent.sessions().fork(&caller.tenant, &source, Fork { id: Some(id), ..fork });
    make_session(&api, &caller, key.as_ref(), id, memory, make).await
}

/// Reads a session with all of its messages, as `import` takes it.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/export", tag = "sessions", operation_id = "exportSession",
    params(SessionPath),
    responses((status = 200, description = "The session; a body that breaks off is incomplete", body = SessionExport<'_>)),
)]
pub async fn export(
    State(api): State<Api>,
    caller: Caller,
    SessionPath(id): SessionPath,
) -> Result<Response, ApiError> {
    let Export { session, mut pages } = api.agent.sessions().export(&caller.tenant, &id).await?;
    // What fails at once can still be an error response.
    let begin = pages.try_next().await?.unwrap_or_default();
    let body = async_stream::try_stream! {
        yield write_head(&session);
        yield write_messages(&begin, true);
        let mut is_first = begin.is_empty();
        drop(begin);
        let warn = |error: &_| tracing::warn!(session = %session.id, %error, "the export of a session broke off");
        while let Some(page) = pages.try_next().await.inspect_err(warn)? {
            yield write_messages(&page, is_first);
            is_first = false;
        }
        yield Bytes::from_static(END);
    };
    let body: BoxStream<'static, Result<Bytes, LookupError>> = Box::pin(body);
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Creates a session from what `export` gave.
#[utoipa::path(
    post, path = "/v1/sessions/import", tag = "sessions", operation_id = "importSession",
    request_body = SessionExport<'_>,
    params(IdempotencyKey),
    responses((status = 201, description = "The session", body = SessionObject)),
)]
pub async fn import(
    State(api): State<Api>,
    caller: Caller,
    identity: RequestIdentity,
    body: JsonText,
) -> Result<Response, ApiError> {
    let text = body.as_str()?;
    let Snapshot { session, messages } = read_snapshot(text)?;
    let key = identity.chosen_key("sessions/import", &caller, text)?;
    let memory = Arc::new(body.into_memory());
    let (id, counted) = (session.id.clone(), memory.clone());
    let make = |id| api.agent.sessions().import(&caller.tenant, Session { id, ..session }, messages, counted);
    make_session(&api, &caller, key.as_ref(), id, memory, make).await
}
