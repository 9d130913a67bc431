//! `POST /v1/runs/{id}/approvals`: decisions about tool calls that wait for an approval.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;

use crate::agent::NewRun;
use crate::api::auth::{Caller, forbidden};
use crate::api::completions::respond;
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, RunPath, header_text};
use crate::api::identity::{RequestIdentity, mark_replayed};
use crate::api::params::IdempotencyKey;
use crate::api::readers::ReaderShare;
use crate::api::state::Api;
use crate::api::wire::StreamEvent;
use crate::api::wire::agent::approval::{Approvals, read_approvals};
use crate::api::wire::agent::options::EventsMode;
use crate::api::wire::openai_chat::completion::Completion;
use crate::api::wire::openai_chat::shape::ResponseShape;

/// Decides about tool calls of a run that waits for approvals, and answers like a completion: with what the run does once
/// all of its calls are decided, or with those that are left.
#[utoipa::path(
    post, path = "/v1/runs/{id}/approvals", tag = "runs", operation_id = "decideApprovals",
    request_body = Approvals<'_>,
    params(RunPath, IdempotencyKey),
    responses(
        (status = 200, description = "The outcome; with `stream: true` events, whose `data` lines are each an `EventEntry`, then `[DONE]`",
         content((Completion<'_> = "application/json"), (StreamEvent = "text/event-stream"))),
    ),
)]
pub async fn decide(
    State(api): State<Api>,
    caller: Caller,
    RunPath(id): RunPath,
    identity: RequestIdentity,
    headers: HeaderMap,
    ReaderShare(memory): ReaderShare,
    body: JsonText,
) -> Result<Response, ApiError> {
    let text = body.as_str()?;
    let decided = read_approvals(text)?;
    let changes = decided.approvals.iter().any(|one| one.arguments.is_some() || one.result.is_some());
    if caller.token.is_some() && changes {
        let message = "a token approves and denies calls; it changes neither their arguments nor their results";
        return Err(forbidden(message).at("approvals"));
    }
    // Of several approvers each decides for itself, under whichever name its client gives the request.
    let by = caller.key_name.as_deref().unwrap_or_default();
    let key = identity.chosen_key(&format!("runs/{id}/approvals/{by}"), &caller, text)?;
    let shape = ResponseShape {
        stream: Some(decided.stream),
        events: EventsMode::Native,
        include_usage: false,
        include_report: decided.include_report,
        delegate_events: None,
        background: false,
        dry_run: false,
    };
    let mut new = NewRun::deciding(caller.tenant.clone(), id, decided.approvals);
    new.key_name.clone_from(&caller.key_name);
    new = new.of_user(caller.token.as_ref().and_then(|token| token.user.clone()));
    new.allowed_agents.clone_from(&caller.agents);
    new.generation = Some(caller.generation.clone());
    new.request_id = header_text(&headers, "x-request-id")?.map(str::to_owned);
    new.waits_for_the_end = !decided.stream;
    new.memory = Arc::new(body.into_memory());
    let started = api.agent.admission().start(new, key.as_ref()).await;
    let mut started = started.map_err(|refusal| caller.told(refusal))?;
    if decided.stream {
        started.follower = started.follower.with_memory(memory);
    }
    let replayed = started.replayed;
    let mut response = respond(&api, &caller, started, (shape, &identity)).await?;
    if replayed {
        mark_replayed(response.headers_mut());
    }
    Ok(response)
}
