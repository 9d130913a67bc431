//! `POST /v1/agent/completions` and `POST /v1/chat/completions`: two doors to one loop.

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};

use crate::agent::follow::{FollowError, Follower};
use crate::agent::{NewRun, Started};
use crate::api::Api;
use crate::api::callers::Caller;
use crate::api::error::{ApiError, ErrorBody};
use crate::api::extract::{JsonText, header_text};
use crate::api::sse;
use crate::api::wire::RunNames;
use crate::api::wire::agent_events::{AgentEvents, NativeEvent};
use crate::api::wire::openai_chat::{ChatChunks, Completion, completion};
use crate::api::wire::request::{CompletionRequest, EventsMode, RequestContext, ResponseShape, read_request};
use crate::api::wire::run::RunObject;
use crate::types::{Event, Outcome};

/// Runs the whole tool loop and answers with its events or its outcome.
#[utoipa::path(
    post, path = "/v1/agent/completions", tag = "completions", operation_id = "createAgentCompletion",
    request_body = CompletionRequest<'_>,
    params(("x-loopgate-session-id" = Option<String>, Header, description = "Names the session instead of the body")),
    responses(
        (status = 200, description = "The outcome; with `stream: true` text as chunks and named events, then `[DONE]`",
         content((Completion<'_> = "application/json"), (NativeEvent<'_> = "text/event-stream"))),
        (status = 202, description = "A background run was accepted", body = RunObject<'_>),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The server or the upstream failed", body = ErrorBody),
    ),
)]
pub async fn agent_completions(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Response, ApiError> {
    complete(&api, caller, &headers, &body, EventsMode::Native).await
}

/// The same loop for any OpenAI client: nothing but chunks in its streams.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "completions", operation_id = "createChatCompletion",
    request_body = CompletionRequest<'_>,
    params(("x-loopgate-session-id" = Option<String>, Header, description = "Names the session instead of the body")),
    responses(
        (status = 200, description = "The outcome; with `stream: true` OpenAI's chunks, then `[DONE]`",
         content((Completion<'_> = "application/json"), (String = "text/event-stream"))),
        (status = 202, description = "A background run was accepted", body = RunObject<'_>),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The server or the upstream failed", body = ErrorBody),
    ),
)]
pub async fn chat_completions(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Response, ApiError> {
    complete(&api, caller, &headers, &body, EventsMode::None).await
}

async fn complete(
    api: &Api,
    caller: Caller,
    headers: &HeaderMap,
    body: &JsonText,
    default_events: EventsMode,
) -> Result<Response, ApiError> {
    let context = RequestContext {
        tenant: caller.tenant,
        allowed_agents: caller.agents,
        session_header: header_text(headers, "x-loopgate-session-id")?.map(str::to_owned),
        default_events,
    };
    let (new, shape) = read_request(body.as_str()?, context)?;
    respond(api, new, shape).await
}

async fn respond(api: &Api, new: NewRun, shape: ResponseShape) -> Result<Response, ApiError> {
    let Started { head, follower } = api.agent.start(new).await?;
    let names = RunNames::from(&head);
    if shape.background {
        let mut response = (StatusCode::ACCEPTED, axum::Json(RunObject::queued(&head))).into_response();
        sse::name_run(&mut response, &names);
        return Ok(response);
    }
    if !shape.stream {
        return unary(follower, &names, shape.include_report).await;
    }
    Ok(match shape.events {
        EventsMode::Native => sse::stream(follower, AgentEvents::new(names.clone(), shape.include_report), &names),
        EventsMode::Extension | EventsMode::None => {
            let extension = shape.events == EventsMode::Extension;
            let chunks = ChatChunks::new(names.clone(), shape.include_usage, extension, shape.include_report);
            sse::stream(follower, chunks, &names)
        }
    })
}

/// Waits for the run's end. The connection is its reader all the while.
async fn unary(mut follower: Follower, names: &RunNames, with_report: bool) -> Result<Response, ApiError> {
    let mut outcome = None;
    loop {
        let records = match follower.next().await {
            Ok(Some(records)) => records,
            Ok(None) => break,
            Err(error) => {
                // The run may go on: asking again would start another, unless the client says that it
                // repeats itself, as the official ones do.
                let retryable = matches!(error, FollowError::Leaving);
                let error = ApiError::from(error);
                let mut response = if retryable { error } else { error.permanent() }.into_response();
                sse::name_run(&mut response, names);
                return Ok(response);
            }
        };
        if let Some(Event::RunFinished(finished)) = records.last().map(|record| &record.event) {
            outcome = Some(finished.clone());
        }
    }
    let outcome = outcome.ok_or_else(|| ApiError::internal(&"a run's log ended without its last event"))?;
    let mut response = match &outcome.error {
        Some(error) => {
            let (is_final, error) = (!error.retryable, ApiError::from(error));
            // Repeating the request would repeat what its tools did.
            if had_effects(&outcome) || is_final { error.permanent() } else { error }.into_response()
        }
        None => axum::Json(completion(names, &outcome, with_report)).into_response(),
    };
    sse::name_run(&mut response, names);
    Ok(response)
}

fn had_effects(outcome: &Outcome) -> bool {
    let limit = outcome.reason.status() == crate::types::RunStatus::Incomplete;
    limit || outcome.report.steps.iter().flat_map(|step| &step.tool_calls).any(|call| !call.skipped)
}
