//! `POST /v1/messages`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, header};

use crate::agent::{NewRun, Started};
use crate::api::agent_header::{AGENT_HEADER, read_agent_header};
use crate::api::answered;
use crate::api::auth::Caller;
use crate::api::completions::{request_context, start, write_budgets_left};
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, header_text};
use crate::api::identity::{RequestIdentity, mark_replayed};
use crate::api::messages::paused;
use crate::api::messages::unstreamed::answer;
use crate::api::params::MessagesHeaders;
use crate::api::readers::ReaderShare;
use crate::api::sse;
use crate::api::state::Api;
use crate::api::wire::agent::options::EventsMode;
use crate::api::wire::messages::events::{MessageEvents, Shown};
use crate::api::wire::messages::object::MessageObject;
use crate::api::wire::messages::request::{MessagesRequest, Shape};
use crate::api::wire::{RunNames, StreamEvent};
use crate::config::Scope;
use crate::types::run::OnConflict;

/// The beta whose clients read the arguments of server-side calls from deltas.
const MCP_BETA: &str = "mcp-client";
/// A client that does so without naming the beta.
const READS_DELTAS: &str = "pydantic-ai/";

/// Runs the whole tool loop and answers with a message, or with its events.
#[utoipa::path(
    post, path = "/v1/messages", tag = "messages", operation_id = "createMessage",
    request_body = MessagesRequest<'_>,
    params(MessagesHeaders),
    responses(
        (status = 200, description = "The message; with `stream: true` its events",
         content((MessageObject<'_> = "application/json"), (StreamEvent = "text/event-stream"))),
    ),
)]
pub async fn create(
    State(api): State<Api>,
    caller: Caller,
    identity: RequestIdentity,
    headers: HeaderMap,
    memory: ReaderShare,
    body: JsonText,
) -> Result<Response, ApiError> {
    Box::pin(begin(&api, caller, &identity, &headers, (body, memory))).await
}

async fn begin(
    api: &Api,
    caller: Caller,
    identity: &RequestIdentity,
    headers: &HeaderMap,
    (body, ReaderShare(memory)): (JsonText, ReaderShare),
) -> Result<Response, ApiError> {
    let text = body.as_str()?;
    let request = MessagesRequest::read(text)?;
    request.check_max_tokens()?;
    let (mut new, shape) = read(&caller, identity, headers, request)?;
    if let Some(call) = &shape.paused
        && let Some(paused) = paused::find(api, &caller, call).await?
    {
        return paused.respond(api, &caller, (identity, memory), shown(&shape, headers)?).await;
    }
    if new.on_conflict == OnConflict::Interrupt {
        caller.check(Scope::Cancel)?;
    }
    let beside = ["x-loopgate-session-id", AGENT_HEADER].map(|name| header_text(headers, name));
    let [session, agent] = beside;
    let beside = [session?.unwrap_or_default(), agent?.unwrap_or_default()].concat();
    let key = identity.key_or_equal("messages", &caller, text, &beside)?;
    new.memory = Arc::new(body.into_memory());
    let mut started = match start(api, &caller, new, key.as_ref(), ApiError::in_messages).await {
        Ok(started) => started,
        Err(refusal) => return Ok(*refusal),
    };
    if shape.stream {
        started.follower = started.follower.with_memory(memory);
    }
    let (replayed, session) = (started.replayed, started.session.clone());
    let answer = if shape.stream { None } else { started.answer.take() };
    let mut response = respond(started, shown(&shape, headers)?, identity).await?;
    write_budgets_left(api, &caller, session.as_ref(), &mut response).await;
    answered::note(answer, &mut response);
    if replayed {
        mark_replayed(response.headers_mut());
    }
    Ok(response)
}

/// Reads what a request asks for.
pub(super) fn read(
    caller: &Caller,
    identity: &RequestIdentity,
    headers: &HeaderMap,
    mut request: MessagesRequest<'_>,
) -> Result<(NewRun, Shape), ApiError> {
    read_agent_header(headers, &mut request.agent)?;
    let session = header_text(headers, "x-loopgate-session-id")?;
    let context = request_context(caller, identity, headers, session, EventsMode::Native)?;
    Ok(request.into_run(context)?)
}

/// What of a run this client is shown.
fn shown(shape: &Shape, headers: &HeaderMap) -> Result<Shown, ApiError> {
    let has = |name: &str, part: &str| {
        headers.get_all(name).iter().any(|value| value.to_str().is_ok_and(|value| value.contains(part)))
    };
    Ok(Shown {
        frames: shape.stream,
        with_agent: shape.with_agent,
        with_report: shape.with_report,
        input_by_deltas: has("anthropic-beta", MCP_BETA) || has(header::USER_AGENT.as_str(), READS_DELTAS),
        after: None,
        request_id: header_text(headers, "x-request-id")?.map(str::to_owned),
    })
}

/// Answers with a run that was started or continued, as it was asked for.
async fn respond(started: Started, shown: Shown, identity: &RequestIdentity) -> Result<Response, ApiError> {
    let Started { head, follower, joined, replayed, answer: open, .. } = started;
    let streams = shown.frames;
    let mut events = MessageEvents::new(RunNames::from(&head), shown);
    if !streams {
        return answer(follower.waiting_for_the_end(), events, identity).await;
    }
    if joined || replayed {
        // What became void meanwhile was read by nobody on this connection.
        let void = follower.void_steps().await?;
        events = events.without(void.iter().filter(|step| step.may_be_left_out(0)).map(|step| step.step));
    }
    let names = events.names().clone();
    Ok(sse::answer(follower, events, &names, open))
}
