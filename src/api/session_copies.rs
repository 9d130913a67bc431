//! Copies of sessions: `/v1/sessions/{id}/fork`, `/v1/sessions/{id}/export`, `/v1/sessions/import`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, TryStreamExt};
use http::{HeaderValue, header};

use crate::agent::control::{Filter, RunView};
use crate::agent::error::LookupError;
use crate::agent::listed::Listed;
use crate::agent::session::environment::Environment;
use crate::agent::session::fork::Fork;
use crate::agent::session::snapshot::Export;
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, Query, SessionPath};
use crate::api::identity::RequestIdentity;
use crate::api::params::{ExportQuery, ForkQuery, IdempotencyKey};
use crate::api::sessions::{make_session, make_session_with};
use crate::api::state::Api;
use crate::api::wire::restored::{EnvironmentObject, RestoreWarning, compare};
use crate::api::wire::run::RunObject;
use crate::api::wire::session::{ForkSession, SessionObject, read_fork};
use crate::api::wire::snapshot::{
    END, SessionExport, Snapshot, read_snapshot, write_environment, write_head, write_messages, write_middle,
    write_run, write_unfinished,
};
use crate::types::SessionId;
use crate::types::session::Session;

/// Runs of a session that are read at a time.
const RUNS: usize = 100;

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
    params(SessionPath, ExportQuery),
    responses((status = 200, description = "The session; a body that breaks off is incomplete", body = SessionExport<'_>)),
)]
pub async fn export(
    State(api): State<Api>,
    caller: Caller,
    SessionPath(id): SessionPath,
    query: Query,
) -> Result<Response, ApiError> {
    let with_runs = query.parsed("include", |text| (text == "runs").then_some(()))?.is_some();
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
        yield write_environment(environment(&caller, &session).await.map(EnvironmentObject::from));
        let mut is_any = false;
        for run in session.all_runs() {
            let found = api.agent.runs().unfinished(caller.requester(), run).await.inspect_err(warn)?;
            if let Some(found) = found {
                yield write_unfinished(&found, !is_any);
                is_any = true;
            }
        }
        yield write_middle(is_any, with_runs);
        if with_runs {
            let mut runs = std::pin::pin!(runs(&api, &caller, &session.id));
            let mut is_first = true;
            while let Some(run) = runs.try_next().await.inspect_err(warn)? {
                yield write_run(&RunObject::from(&run), is_first);
                is_first = false;
            }
            yield Bytes::from_static(END);
        }
    };
    let body: BoxStream<'static, Result<Bytes, LookupError>> = Box::pin(body);
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The agent that a session names, as its caller's configuration has it.
async fn environment(caller: &Caller, session: &Session) -> Option<Environment> {
    Environment::of(&caller.generation, session.agent.as_deref()?).await
}

/// The runs of a session that this caller may read, newest first. One that expires meanwhile is left out.
fn runs(api: &Api, caller: &Caller, session: &SessionId) -> impl Stream<Item = Result<RunView, LookupError>> {
    let (api, caller, session) = (api.clone(), caller.clone(), session.clone());
    async_stream::try_stream! {
        let mut after = None;
        loop {
            let filter = Filter { session: Some(session.clone()), after, limit: RUNS, ..Filter::default() };
            let Listed { found, searched_to } = api.agent.runs().list(caller.requester(), &filter).await?;
            after = found.last().map(|head| head.id.clone()).filter(|_| found.len() == RUNS).or(searched_to);
            for head in found {
                match api.agent.runs().get(caller.requester(), &head.id).await {
                    Ok(view) => yield view,
                    Err(LookupError::RunNotFound(_)) => {}
                    Err(error) => Err(error)?,
                }
            }
            if after.is_none() {
                break;
            }
        }
    }
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
    let Snapshot { session, messages, environment: then, left } = read_snapshot(text)?;
    let now = environment(&caller, &session).await;
    let mut warnings = compare(session.agent.as_deref(), then.as_ref(), now.as_ref());
    warnings.extend(RestoreWarning::of_runs(&left));
    let key = identity.chosen_key("sessions/import", &caller, text)?;
    let memory = Arc::new(body.into_memory());
    let (id, counted) = (session.id.clone(), memory.clone());
    let make = |id| api.agent.sessions().import(&caller.tenant, Session { id, ..session }, messages, counted);
    make_session_with(&api, &caller, (key.as_ref(), warnings), id, memory, make).await
}
