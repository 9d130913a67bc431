//! `POST /v1/sessions/{id}/compact`: shortens what models are shown of a session, now.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;

use crate::agent::error::{Field, StartError};
use crate::agent::{NewRun, Started};
use crate::api::auth::Caller;
use crate::api::completions::{accepted, end_of};
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, SessionPath, header_text};
use crate::api::identity::{RequestIdentity, mark_replayed};
use crate::api::params::IdempotencyKey;
use crate::api::sse;
use crate::api::state::Api;
use crate::api::trace::trace_context;
use crate::api::wire::RunNames;
use crate::api::wire::compaction::{CompactSession, CompactionObject, read_compact};
use crate::api::wire::run::RunObject;

/// Replaces earlier messages of a session by a summary, in what models are sent from then on. The session keeps all of them.
///
/// A run of its own does it, beside other runs of the session. What is said meanwhile stays as it is.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/compact", tag = "sessions", operation_id = "compactSession",
    params(SessionPath, IdempotencyKey),
    request_body = Option<CompactSession>,
    responses(
        (status = 200, description = "What became of the conversation", body = CompactionObject<'_>),
        (status = 202, description = "The run that does it, if it is not waited for", body = RunObject<'_>),
    ),
)]
pub async fn compact(
    State(api): State<Api>,
    caller: Caller,
    SessionPath(session): SessionPath,
    identity: RequestIdentity,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Response, ApiError> {
    let text = body.as_str()?;
    let asked = NewRun {
        key_name: caller.key_name.clone(),
        generation: Some(caller.generation.clone()),
        allowed_agents: caller.agents.clone(),
        trace: trace_context(&headers),
        request_id: header_text(&headers, "x-request-id")?.map(str::to_owned),
        ..NewRun::compacting(caller.tenant.clone(), session.clone())
    };
    let (mut new, waits) = read_compact(text, asked)?;
    let key = identity.request_key(&format!("sessions/{session}/compact"), &caller, text, None)?;
    new.memory = Arc::new(body.into_memory());
    let started = api.agent.admission().start(new, key.as_ref()).await.map_err(of_this_request)?;
    let replayed = started.replayed;
    let mut response =
        if waits { done(started, &identity).await? } else { accepted(&started.head, started.head.status.is_final()) };
    if replayed {
        mark_replayed(response.headers_mut());
    }
    Ok(response)
}

/// An error about what a request for an answer would say elsewhere.
fn of_this_request(error: StartError) -> ApiError {
    if let StartError::Invalid { field: Field::Member("agent.context.compaction"), message } = error {
        return ApiError::invalid("method", message);
    }
    error.into()
}

/// What it did, once it has ended.
async fn done(Started { head, follower, .. }: Started, identity: &RequestIdentity) -> Result<Response, ApiError> {
    let mut names = RunNames::from(&head);
    let outcome = match end_of(follower, &mut names, identity).await {
        Ok(outcome) => outcome,
        Err(response) => return Ok(*response),
    };
    let mut response = match &outcome.error {
        Some(error) => ApiError::from(error).into_response(),
        None => axum::Json(CompactionObject::new(&names, &outcome)).into_response(),
    };
    sse::name_run(&mut response, &names);
    Ok(response)
}
