//! Copies of sessions: `/v1/sessions/{id}/fork`, `/v1/sessions/{id}/export`, `/v1/sessions/import`.

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::MethodRouter;
use bytes::Bytes;
use futures_util::TryStreamExt;
use http::{HeaderMap, HeaderValue, header};

use crate::agent::session::fork::Fork;
use crate::agent::session::snapshot::Export;
use crate::api::Api;
use crate::api::callers::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{Id, JsonText};
use crate::api::idempotency::Announced;
use crate::api::sessions;
use crate::api::sessions::session_id;
use crate::api::wire::openai_error::ErrorBody;
use crate::api::wire::session::{ForkSession, SessionObject, read_fork};
use crate::api::wire::snapshot::{END, SessionExport, Snapshot, read_snapshot, write_head, write_messages};
use crate::types::SessionId;
use crate::types::session::Session;

/// Makes a new session of another's first messages.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/fork", tag = "sessions", operation_id = "forkSession",
    params(("id" = String, Path, description = "The session to copy from"),
           ("idempotency-key" = Option<String>, Header,
            description = "1 to 255 visible ASCII characters; the same key with the same body gives the same session")),
    request_body = ForkSession,
    responses((status = 201, description = "The new session", body = SessionObject),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn fork(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Response, ApiError> {
    let (body, announced) = (body.as_str()?, Announced::read(&headers)?);
    let (source, fork) = (session_id(&id)?, read_fork(body)?);
    let (agent, tenant) = (&api.agent, &caller.tenant);
    let (forked, replayed) = match announced.once_by_key(&format!("sessions/{source}/fork"), &caller, body)? {
        Some(once) => {
            let id = fork.id.clone().unwrap_or_else(SessionId::mint);
            let make = |id| agent.fork_session(tenant, &source, Fork { id: Some(id), ..fork });
            agent.make_session_once(tenant, &once, id, make).await?
        }
        None => (agent.fork_session(tenant, &source, fork).await?, false),
    };
    Ok(sessions::respond(&forked, replayed))
}

/// Reads a session with all of its messages, as `import` takes it.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/export", tag = "sessions", operation_id = "exportSession",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, description = "The session; a body that breaks off is not whole", body = SessionExport<'_>),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn export(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id,
) -> Result<Response, ApiError> {
    let Export { session, mut pages } = api.agent.export_session(&caller.tenant, &session_id(&id)?).await?;
    // What fails at once can still be an error response.
    let begin = pages.try_next().await?.unwrap_or_default();
    let body = async_stream::try_stream! {
        yield write_head(&session);
        yield write_messages(&begin, true);
        let mut is_first = begin.is_empty();
        drop(begin);
        while let Some(page) = pages.try_next().await.inspect_err(|error| tracing::warn!(%error, "an export broke off"))? {
            yield write_messages(&page, is_first);
            is_first = false;
        }
        yield Bytes::from_static(END);
    };
    let body: futures_util::stream::BoxStream<'static, Result<Bytes, crate::agent::error::LookupError>> =
        Box::pin(body);
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Creates a session from what `export` gave.
#[utoipa::path(
    post, path = "/v1/sessions/import", tag = "sessions", operation_id = "importSession",
    request_body = SessionExport<'_>,
    params(("idempotency-key" = Option<String>, Header,
            description = "1 to 255 visible ASCII characters; the same key with the same body gives the same session")),
    responses((status = 201, description = "The session", body = SessionObject),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn import(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Response, ApiError> {
    let (body, announced) = (body.as_str()?, Announced::read(&headers)?);
    let Snapshot { session, messages } = read_snapshot(body)?;
    let (agent, tenant) = (&api.agent, &caller.tenant);
    let (imported, replayed) = match announced.once_by_key("sessions/import", &caller, body)? {
        Some(once) => {
            let make = |id| agent.import_session(tenant, Session { id, ..session.clone() }, messages);
            agent.make_session_once(tenant, &once, session.id.clone(), make).await?
        }
        None => (agent.import_session(tenant, session, messages).await?, false),
    };
    Ok(sessions::respond(&imported, replayed))
}

/// A session may be called `import`: what is said of it is not said of importing.
pub fn session_called_import() -> MethodRouter<Api> {
    let id = || Id("import".to_owned());
    axum::routing::get(move |api, caller| sessions::get(api, caller, id()))
        .patch(move |api, caller, body| sessions::patch(api, caller, id(), body))
        .delete(move |api, caller| sessions::delete(api, caller, id()))
}
