//! `/v1/runs`: reading, steering and cancelling runs.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::agent::control::Filter;
use crate::agent::listed::Listed;
use crate::api::auth::{Caller, forbidden};
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, Query, RunPath};
use crate::api::identity::{RequestIdentity, mark_replayed};
use crate::api::operators::{self, reach};
use crate::api::paging::page_of;
use crate::api::params::{IdempotencyKey, RunsQuery, TenantQuery};
use crate::api::sse;
use crate::api::state::Api;
use crate::api::wire::RunNames;
use crate::api::wire::run::{CancelMode, Cancellation, List, RunObject, Steering, read_cancellation, read_steering};
use crate::types::{Role, RunId, RunStatus, SessionId};

/// Lists runs, newest first. A key with the scope `operator` sees those of all tenants.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", operation_id = "listRuns",
    params(RunsQuery),
    responses((status = 200, description = "A page of runs", body = List<RunObject<'_>>)),
)]
pub async fn list(State(api): State<Api>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let limit = query.limit()?;
    let filter = Filter {
        session: query.parsed("session_id", SessionId::parse)?,
        status: query.parsed("status", parse_status)?,
        traits: query.traits()?,
        after: query.parsed("after", RunId::parse)?,
        limit: limit + 1,
    };
    let Listed { found, searched_to } = operators::list(&api, &caller, &query, &filter).await?;
    let (found, has_more) = page_of(found, limit);
    let runs: Vec<_> = found.iter().map(|(tenant, head)| RunObject::from(head).of(tenant.as_ref())).collect();
    let list = List::new(runs, has_more, |run| run.id.to_owned());
    Ok(axum::Json(list.searched_to(searched_to.map(|run| run.to_string()))).into_response())
}

/// Reads a run with its report.
#[utoipa::path(
    get, path = "/v1/runs/{id}", tag = "runs", operation_id = "getRun",
    params(RunPath, TenantQuery),
    responses((status = 200, description = "The run", body = RunObject<'_>)),
)]
pub async fn get(
    State(api): State<Api>,
    caller: Caller,
    RunPath(id): RunPath,
    query: Query,
) -> Result<Response, ApiError> {
    let caller = reach(&api, caller, &id, &query, "read").await?;
    let view = api.agent.runs().get(caller.requester(), &id).await?;
    Ok(axum::Json(RunObject::from(&view).of(caller.shown_tenant())).into_response())
}

/// Cancels a run and answers once it has stopped.
///
/// With `after_step` the run stops once its step is done: the model's turn that is under way, and the tools that it calls.
#[utoipa::path(
    post, path = "/v1/runs/{id}/cancel", tag = "runs", operation_id = "cancelRun",
    request_body = Option<Cancellation>,
    params(RunPath, TenantQuery),
    responses(
        (status = 200, description = "The run as it ended", body = RunObject<'_>),
        (status = 202, description = "The run, which stops when its step is done", body = RunObject<'_>),
    ),
)]
pub async fn cancel(
    State(api): State<Api>,
    caller: Caller,
    RunPath(id): RunPath,
    query: Query,
    body: JsonText,
) -> Result<Response, ApiError> {
    let caller = reach(&api, caller, &id, &query, "cancel").await?;
    let (runs, requester) = (api.agent.runs(), caller.requester());
    let mode = read_cancellation(body.as_str()?)?;
    let view = match mode {
        CancelMode::Immediate => runs.cancel(requester, &id).await?,
        CancelMode::AfterStep => runs.cancel_after_step(requester, &id).await?,
    };
    let goes_on = mode == CancelMode::AfterStep && !view.head.status.is_final();
    let status = if goes_on { StatusCode::ACCEPTED } else { StatusCode::OK };
    let run = RunObject::shown(&view, caller.follows()).of(caller.shown_tenant());
    Ok((status, axum::Json(run)).into_response())
}

/// Lets messages join a live run's conversation before its next model call.
///
/// A run that would have ended goes on for one more call.
#[utoipa::path(
    post, path = "/v1/runs/{id}/messages", tag = "runs", operation_id = "steerRun",
    request_body = Steering<'_>,
    params(RunPath, IdempotencyKey),
    responses((status = 202, description = "The run; the messages come before its next model call", body = RunObject<'_>)),
)]
pub async fn steer(
    State(api): State<Api>,
    caller: Caller,
    RunPath(id): RunPath,
    identity: RequestIdentity,
    body: JsonText,
) -> Result<Response, ApiError> {
    let body = body.as_str()?;
    let messages = read_steering(body)?;
    if caller.token.is_some() && messages.iter().any(|message| !matches!(message.role, Role::User)) {
        let message = "instructions are the agent's; a token may send messages of `user` alone";
        return Err(forbidden(message).at("messages"));
    }
    let key = identity.chosen_key("runs/messages", &caller, body)?;
    let (head, replayed) = api.agent.runs().steer(caller.requester(), &id, messages, key.as_ref()).await?;
    let mut response = (StatusCode::ACCEPTED, axum::Json(RunObject::from(&head))).into_response();
    sse::name_run(&mut response, &RunNames::from(&head));
    if replayed {
        mark_replayed(response.headers_mut());
    }
    Ok(response)
}

fn parse_status(text: &str) -> Option<RunStatus> {
    use RunStatus::{Cancelled, Completed, Failed, InProgress, Incomplete, Queued, RequiresAction};
    let all = [Queued, InProgress, RequiresAction, Completed, Incomplete, Cancelled, Failed];
    all.into_iter().find(|status| status.as_str() == text)
}
