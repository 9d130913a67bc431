//! `POST /v1/responses`.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::agent::error::LookupError;
use crate::agent::follow::Follower;
use crate::agent::{NewRun, OpenAnswer, Started};
use crate::api::agent_header::{AGENT_HEADER, read_agent_header};
use crate::api::answered;
use crate::api::at_end::{BrokenOff, take_all};
use crate::api::auth::Caller;
use crate::api::completions::{request_context, start, write_budgets_left};
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, header_text};
use crate::api::identity::{RequestIdentity, mark_replayed};
use crate::api::log_fields::LogFields;
use crate::api::params::ResponseHeaders;
use crate::api::readers::ReaderShare;
use crate::api::responses::{json, references};
use crate::api::sse;
use crate::api::state::Api;
use crate::api::wire::agent::options::EventsMode;
use crate::api::wire::responses::events::{ResponseEvents, Shown};
use crate::api::wire::responses::input::Known;
use crate::api::wire::responses::object::ResponseObject;
use crate::api::wire::responses::request::{ResponseRequest, Shape};
use crate::api::wire::{Encoder, RunNames, StreamEvent};
use crate::config::Scope;
use crate::types::Record;
use crate::types::run::OnConflict;

/// How long a client that asks how far a response is waits in between.
const POLL_AFTER: (HeaderName, HeaderValue) =
    (HeaderName::from_static("openai-poll-after-ms"), HeaderValue::from_static("1000"));

/// Runs the whole tool loop and answers with a response, or with its events.
#[utoipa::path(
    post, path = "/v1/responses", tag = "responses", operation_id = "createResponse",
    request_body = ResponseRequest<'_>,
    params(ResponseHeaders),
    responses(
        (status = 200, description = "The response; with `stream: true` its events, then `[DONE]`",
         content((ResponseObject<'_> = "application/json"), (StreamEvent = "text/event-stream"))),
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
    Box::pin(begin(&api, caller, &identity, &headers, (body, memory))).await.map_err(ApiError::in_responses)
}

async fn begin(
    api: &Api,
    caller: Caller,
    identity: &RequestIdentity,
    headers: &HeaderMap,
    (body, ReaderShare(memory)): (JsonText, ReaderShare),
) -> Result<Response, ApiError> {
    let text = body.as_str()?;
    let session = header_text(headers, "x-loopgate-session-id")?;
    let in_header = header_text(headers, AGENT_HEADER)?;
    let (mut new, shape) = read(api, &caller, identity, headers, text).await?;
    if new.on_conflict == OnConflict::Interrupt {
        caller.check(Scope::Cancel)?;
    }
    if !new.approvals.is_empty() {
        caller.check(Scope::Approvals)?;
    }
    let beside = [session.unwrap_or_default(), in_header.unwrap_or_default()].concat();
    let key = identity.key_or_equal("responses", &caller, text, &beside)?;
    new.memory = Arc::new(body.into_memory());
    let started = match start(api, &caller, new, key.as_ref(), ApiError::in_responses).await {
        Ok(started) => started,
        Err(refusal) => return Ok(*refusal),
    };
    let (replayed, session) = (started.replayed, started.session.clone());
    let Started { head, mut follower, answer, .. } = started;
    if shape.stream {
        follower = follower.with_memory(memory);
    }
    let from = shape.stream.then_some(0);
    let shown = Shown { leg: None, from, with_agent: shape.with_agent, with_report: shape.with_report };
    let events = ResponseEvents::new(RunNames::from(&head), shape.terms.clone(), shown);
    let (answer, streamed) = if shape.stream { (None, answer) } else { (answer, None) };
    let mut response = respond(follower, events, &shape, (identity, streamed)).await?;
    write_budgets_left(api, &caller, session.as_ref(), &mut response).await;
    answered::note(answer, &mut response);
    if replayed {
        mark_replayed(response.headers_mut());
    }
    Ok(response)
}

/// Reads a request, with all that it names.
pub(super) async fn read(
    api: &Api,
    caller: &Caller,
    identity: &RequestIdentity,
    headers: &HeaderMap,
    text: &str,
) -> Result<(NewRun, Shape), ApiError> {
    let mut request = ResponseRequest::read(text)?;
    read_agent_header(headers, &mut request.agent)?;
    let named = request.references()?;
    let known = if named.is_empty() { Known::default() } else { references::find(api, caller, &named).await? };
    let names_conversation = request.conversation.is_some();
    let session = header_text(headers, "x-loopgate-session-id")?;
    let context = request_context(caller, identity, headers, session, EventsMode::Native)?;
    let (new, shape) = request.into_run(context, &known)?;
    if let Some(session) = new.session.as_ref().filter(|_| names_conversation) {
        let found = api.agent.sessions().get(&caller.tenant, session).await;
        found.map_err(|error| {
            let is_missing = matches!(error, LookupError::SessionNotFound(_));
            let error = ApiError::from(error);
            if is_missing { error.at("conversation") } else { error }
        })?;
    }
    Ok((new, shape))
}

/// Answers with a run that was started or continued, as it was asked for.
async fn respond(
    follower: Follower,
    events: ResponseEvents,
    shape: &Shape,
    (identity, answer): (&RequestIdentity, Option<OpenAnswer>),
) -> Result<Response, ApiError> {
    if shape.stream {
        let names = events.names().clone();
        return Ok(sse::answer(follower, events, &names, answer));
    }
    if shape.background { at_once(follower, events).await } else { at_its_end(follower, events, identity).await }
}

/// The response as it stands now.
async fn at_once(mut follower: Follower, mut events: ResponseEvents) -> Result<Response, ApiError> {
    while !events.has_ended() {
        let page = follower.available_page().await?;
        if page.is_empty() {
            break;
        }
        for record in &page {
            events.take(record);
            if events.has_ended() {
                // What follows is of the next response.
                break;
            }
        }
    }
    let mut response = json(&events.object());
    let (name, value) = POLL_AFTER;
    response.headers_mut().insert(name, value);
    sse::name_run(&mut response, events.names());
    Ok(response)
}

/// The response once it has ended. The connection is its reader all the while.
async fn at_its_end(
    follower: Follower,
    mut events: ResponseEvents,
    identity: &RequestIdentity,
) -> Result<Response, ApiError> {
    let mut take = |record: &Record| {
        events.take(record);
        ControlFlow::Continue(())
    };
    if let Err(error) = take_all(follower.waiting_for_the_end(), &mut take).await {
        let mut response = error.into_response();
        response.extensions_mut().insert(BrokenOff);
        sse::name_run(&mut response, events.names());
        return Ok(response);
    }
    let Some(outcome) = events.outcome() else {
        return Err(ApiError::internal(&"a run's log ended without its last event"));
    };
    let mut response = match &outcome.error {
        Some(error) => {
            let error = ApiError::from(error);
            if identity.may_try_again(outcome) { error } else { error.permanent() }.in_responses().into_response()
        }
        None => json(&events.object()),
    };
    sse::name_run(&mut response, events.names());
    let logged = LogFields::of(&mut response);
    (logged.tokens, logged.cost_usd) = (Some(outcome.usage.total()), Some(outcome.cost.as_usd()));
    Ok(response)
}
