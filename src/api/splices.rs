//! `/v1/sessions/{id}/splice` and `/v1/sessions/{id}/splices`: replaces messages of a session's history, and shows those that were.

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use crate::agent::error::SpliceError;
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::expected::Precondition;
use crate::api::extract::{JsonText, Query, SessionPath};
use crate::api::layers::refuse_bound;
use crate::api::paging::page_of;
use crate::api::params::{PreconditionHeaders, SplicesQuery};
use crate::api::state::Api;
use crate::api::wire::error::ErrorCode;
use crate::api::wire::run::List;
use crate::api::wire::splice::{SpliceObject, SpliceRecord, SpliceSession, read_splice};
use crate::types::Expected;

/// Replaces messages of a session's history by others, removes or inserts some. A call of a tool and its results stay together.
///
/// The session must have no run that has not ended. What is replaced is kept.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/splice", tag = "sessions", operation_id = "spliceSession",
    params(SessionPath, PreconditionHeaders),
    request_body = SpliceSession<'_>,
    responses((status = 200, description = "What became of the history", body = SpliceObject)),
)]
pub async fn splice(
    State(api): State<Api>,
    caller: Caller,
    SessionPath(id): SessionPath,
    Precondition(expected): Precondition,
    body: JsonText,
) -> Result<Response, ApiError> {
    let asked = read_splice(body.as_str()?, version(expected)?)?;
    refuse_bound(&api, &caller, &id).await?;
    let (removed, inserted) = (asked.remove, asked.messages.len() as u64);
    let done = api.agent.sessions().splice(&caller.tenant, &id, asked).await?;
    Ok(axum::Json(SpliceObject::new(removed, inserted, &done)).into_response())
}

/// Lists what was replaced in a session's history, oldest first.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/splices", tag = "sessions", operation_id = "listSessionSplices",
    params(SessionPath, SplicesQuery),
    responses((status = 200, description = "A page of them", body = List<SpliceRecord>)),
)]
pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    SessionPath(id): SessionPath,
    query: Query,
) -> Result<Response, ApiError> {
    let (limit, after) = (query.limit()?, query.parsed("after", |text| text.parse().ok())?.unwrap_or(0_u64));
    let found = api.agent.sessions().splices(&caller.tenant, &id, after, limit + 1).await?;
    let (found, has_more) = page_of(found, limit);
    let numbered = (after.saturating_add(1)..).zip(&found).map(|(index, splice)| SpliceRecord::new(index, splice));
    let records = numbered.collect::<Result<Vec<_>, _>>()?;
    Ok(axum::Json(List::new(records, has_more, |record| record.index.to_string())).into_response())
}

/// The version that the session must have.
fn version(expected: Expected) -> Result<Option<u64>, ApiError> {
    match expected {
        Expected::Version(version) => Ok(Some(version)),
        Expected::Anything | Expected::Something => Ok(None),
        Expected::Nothing => Err(ApiError::invalid("if-none-match", "what is not there has nothing to replace")),
    }
}

impl From<SpliceError> for ApiError {
    fn from(error: SpliceError) -> Self {
        let message = error.to_string();
        match error {
            SpliceError::BeyondEnd { .. } => Self::invalid("after", message),
            SpliceError::Nothing | SpliceError::SplitsCalls { .. } => Self::invalid("messages", message),
            SpliceError::Changed { .. } => Self::new(ErrorCode::VersionConflict, message).permanent(),
            SpliceError::TooLong { .. } => Self::invalid("id", message),
            SpliceError::Lookup(error) => error.into(),
        }
    }
}
