//! `POST /v1/agent/completions` and `POST /v1/chat/completions`: two endpoints of one loop.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;

use crate::agent::error::StartError;
use crate::agent::follow::{FollowError, Follower};
use crate::agent::limits::left::SharedSession;
use crate::agent::{Head, NewRun, RequestKey, Started};
use crate::api::auth::Caller;
use crate::api::budget_headers::write_budgets;
use crate::api::error::ApiError;
use crate::api::extract::{JsonText, header_text};
use crate::api::identity::{RequestIdentity, mark_replayed};
use crate::api::log_fields::LogFields;
use crate::api::nested::{self, Nest};
use crate::api::page_starts::{claimed_route, read_of_token};
use crate::api::params::CompletionHeaders;
use crate::api::readers::ReaderShare;
use crate::api::run_events::without_void;
use crate::api::sse;
use crate::api::state::Api;
use crate::api::trace::trace_context;
use crate::api::ui_stream;
use crate::api::wire::ag_ui::events::AgUi;
use crate::api::wire::agent::dry_run::{CompletionAnswer, DryRunObject};
use crate::api::wire::agent::options::EventsMode;
use crate::api::wire::agent::stream::AgentEvents;
use crate::api::wire::ai_sdk::chunks::AiSdk;
use crate::api::wire::asked::RequestContext;
use crate::api::wire::openai_chat::completion::completion;
use crate::api::wire::openai_chat::request::{CompletionRequest, read_request};
use crate::api::wire::openai_chat::shape::ResponseShape;
use crate::api::wire::openai_chat::stream::ChatChunks;
use crate::api::wire::run::RunObject;
use crate::api::wire::ui::events::UiEvents;
use crate::api::wire::{RunNames, StreamEvent};
use crate::config::Scope;
use crate::types::run::{OnConflict, OnDisconnect};
use crate::types::{Event, Outcome};

/// How long a response waits for what its headers say of budgets.
const BUDGETS_TIMEOUT: Duration = Duration::from_millis(100);

/// Runs the whole tool loop and answers with its events or its outcome.
#[utoipa::path(
    post, path = "/v1/agent/completions", tag = "completions", operation_id = "createAgentCompletion",
    request_body = CompletionRequest<'_>,
    params(CompletionHeaders),
    responses(
        (status = 200, description = "The outcome, or of a dry run a `DryRunObject`; with `stream: true` events, whose `data` lines are each an `EventEntry`, then `[DONE]`",
         content((CompletionAnswer<'_> = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = 202, description = "A background run was accepted", body = RunObject<'_>),
    ),
)]
pub async fn agent_completions(
    State(api): State<Api>,
    caller: Caller,
    identity: RequestIdentity,
    headers: HeaderMap,
    memory: ReaderShare,
    body: JsonText,
) -> Result<Response, ApiError> {
    const ENDPOINT: Endpoint = Endpoint { route: "agent/completions", events: EventsMode::Native };
    complete(&api, caller, &identity, &headers, (body, memory), ENDPOINT).await
}

/// The same loop for any OpenAI client: nothing but chunks in its streams.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "completions", operation_id = "createChatCompletion",
    request_body = CompletionRequest<'_>,
    params(CompletionHeaders),
    responses(
        (status = 200, description = "The outcome, or of a dry run a `DryRunObject`; with `stream: true` events, whose `data` lines are each a `ChatChunk`, then `[DONE]`",
         content((CompletionAnswer<'_> = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = 202, description = "A background run was accepted", body = RunObject<'_>),
    ),
)]
pub async fn chat_completions(
    State(api): State<Api>,
    caller: Caller,
    identity: RequestIdentity,
    headers: HeaderMap,
    memory: ReaderShare,
    body: JsonText,
) -> Result<Response, ApiError> {
    const ENDPOINT: Endpoint = Endpoint { route: "chat/completions", events: EventsMode::None };
    complete(&api, caller, &identity, &headers, (body, memory), ENDPOINT).await
}

/// Where a request came in.
#[derive(Debug, Clone, Copy)]
struct Endpoint {
    route: &'static str,
    /// What its streams show unless asked otherwise.
    events: EventsMode,
}

async fn complete(
    api: &Api,
    caller: Caller,
    identity: &RequestIdentity,
    headers: &HeaderMap,
    (body, ReaderShare(memory)): (JsonText, ReaderShare),
    endpoint: Endpoint,
) -> Result<Response, ApiError> {
    let text = body.as_str()?;
    let session = header_text(headers, "x-loopgate-session-id")?;
    let context = |session: Option<&str>| request_context(&caller, identity, headers, session, endpoint.events);
    let (mut new, shape) = match &caller.token {
        // Boxed, as most callers have a key.
        Some(token) => Box::pin(read_of_token(token, &api.agent, text, |own| context(session.or(own)))).await?,
        None => read_request(text, context(session)?)?,
    };
    if shape.dry_run {
        // What it answers with are the session's history and layers, files, and what is remembered.
        caller.check(Scope::Read)?;
        new.memory = Arc::new(body.into_memory());
        return Box::pin(dry_run(api, &new)).await;
    }
    if new.on_conflict == OnConflict::Interrupt {
        caller.check(Scope::Cancel)?;
    }
    let route = claimed_route(endpoint.route, caller.token.as_deref());
    let key = identity.request_key(&route, &caller, text, session)?;
    new.memory = Arc::new(body.into_memory());
    let mut started = match start(api, &caller, new, key.as_ref(), std::convert::identity).await {
        Ok(started) => started,
        Err(refusal) => return Ok(*refusal),
    };
    if shape.is_stream_of(&started.head) {
        started.follower = started.follower.with_memory(memory);
    }
    let (replayed, session) = (started.replayed, started.session.clone());
    let mut response = respond(api, &caller, started, (shape, identity)).await?;
    // Boxed, as most callers have no budgets.
    Box::pin(write_budgets_left(api, &caller, session.as_ref(), &mut response)).await;
    if replayed {
        mark_replayed(response.headers_mut());
    }
    Ok(response)
}

/// What came with a request beside its body; `events` is what its streams show unless it asks otherwise.
pub fn request_context(
    caller: &Caller,
    identity: &RequestIdentity,
    headers: &HeaderMap,
    session: Option<&str>,
    events: EventsMode,
) -> Result<RequestContext, ApiError> {
    Ok(RequestContext {
        tenant: caller.tenant.clone(),
        generation: caller.generation.clone(),
        key_name: caller.key_name.clone(),
        allowed_agents: caller.agents.clone(),
        trace: trace_context(headers),
        request_id: header_text(headers, "x-request-id")?.map(str::to_owned),
        session_header: session.map(str::to_owned),
        default_events: events,
        // A client that names its request comes back for the answer.
        default_on_disconnect: if identity.is_key() { OnDisconnect::Continue } else { OnDisconnect::Cancel },
    })
}

/// Answers with what the run would be.
async fn dry_run(api: &Api, new: &NewRun) -> Result<Response, ApiError> {
    let found = api.agent.admission().dry_run(new).await?;
    Ok(json(&DryRunObject::new(&found)?))
}

/// Starts what is asked for. A refusal is written as the dialect has it; if a budget lacks room, it says what is left of budgets.
pub async fn start(
    api: &Api,
    caller: &Caller,
    new: NewRun,
    key: Option<&RequestKey>,
    in_dialect: fn(ApiError) -> ApiError,
) -> Result<Started, Box<Response>> {
    let session = new.session.clone().map(SharedSession::named);
    let error = match api.agent.admission().start(new, key).await {
        Ok(started) => return Ok(started),
        Err(error) => error,
    };
    let is_of_budget = matches!(error, StartError::BudgetExceeded { .. });
    let mut response = in_dialect(caller.told(error)).into_response();
    if is_of_budget {
        // Boxed, as it is rare.
        Box::pin(write_budgets_left(api, caller, session.as_ref(), &mut response)).await;
    }
    Err(Box::new(response))
}

/// Says in the response's headers what is left of the caller's budgets; nothing if the store does not answer in time.
pub async fn write_budgets_left(api: &Api, caller: &Caller, session: Option<&SharedSession>, response: &mut Response) {
    // They are the key's, and nothing that a page's visitor need know.
    if caller.token.is_some() {
        return;
    }
    let (key, quotas) = (caller.key_name.as_deref(), &caller.generation.quotas);
    let reading = api.agent.limits().budgets_left(&caller.tenant, key, session, quotas);
    match tokio::time::timeout(BUDGETS_TIMEOUT, reading).await {
        Ok(Ok(left)) => write_budgets(&left, response.headers_mut()),
        Ok(Err(error)) => tracing::debug!(%error, "what is left of budgets could not be read for a response"),
        Err(_) => tracing::debug!("what is left of budgets could not be read in time for a response"),
    }
}

/// Answers with a run that was started or continued, in the shape that was asked for.
pub async fn respond(
    api: &Api,
    caller: &Caller,
    started: Started,
    (shape, identity): (ResponseShape, &RequestIdentity),
) -> Result<Response, ApiError> {
    let Started { head, follower, joined, replayed, .. } = started;
    let names = RunNames::from(&head);
    if shape.background {
        return Ok(accepted(&head, replayed));
    }
    if !shape.is_stream_of(&head) {
        return unary(follower, names, shape.include_report, identity).await;
    }
    Ok(match shape.events {
        EventsMode::Native => {
            let events = AgentEvents::new(names.clone(), shape.include_report);
            if shape.delegate_events.unwrap_or(head.shows_delegates) {
                nested::stream(Nest::new(api, caller), follower, events, &names)
            } else {
                sse::stream(follower, events, &names)
            }
        }
        EventsMode::Extension | EventsMode::None => {
            let extension = shape.events == EventsMode::Extension;
            let chunks = ChatChunks::new(names.clone(), shape.include_usage, extension, shape.include_report);
            let chunks = if joined && !extension { without_void(chunks, &follower, 0).await? } else { chunks };
            sse::stream(follower, chunks, &names)
        }
        EventsMode::AiSdk => {
            ui_stream::respond(follower, UiEvents::of_request(AiSdk::default(), names), joined).await?
        }
        EventsMode::AgUi => ui_stream::respond(follower, UiEvents::of_request(AgUi::of(&names), names), joined).await?,
    })
}

/// Answers with a run that goes on by itself, or that was over when the request was repeated.
pub fn accepted(head: &Head, is_over: bool) -> Response {
    let run = if is_over { RunObject::from(head) } else { RunObject::queued(head) };
    let mut response = (StatusCode::ACCEPTED, axum::Json(run)).into_response();
    sse::name_run(&mut response, &RunNames::from(head));
    response
}

/// An answer, written in one piece of memory, which most answers fit into.
fn json(answer: &impl Serialize) -> Response {
    const ROOM: usize = 2 << 10;
    let mut body = Vec::with_capacity(ROOM);
    serde_json::to_writer(&mut body, answer).expect("wire types hold only strings, numbers and valid raw JSON");
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// Waits for the run's end. The connection is its reader all the while.
async fn unary(
    follower: Follower,
    mut names: RunNames,
    with_report: bool,
    identity: &RequestIdentity,
) -> Result<Response, ApiError> {
    let outcome = match end_of(follower, &mut names, identity).await {
        Ok(outcome) => outcome,
        Err(response) => return Ok(*response),
    };
    let mut response = match &outcome.error {
        Some(error) => {
            let error = ApiError::from(error);
            if identity.may_try_again(&outcome) { error } else { error.permanent() }.into_response()
        }
        None => json(&completion(&names, &outcome, with_report)),
    };
    sse::name_run(&mut response, &names);
    let logged = LogFields::of(&mut response);
    (logged.tokens, logged.cost_usd) = (Some(outcome.usage.total()), Some(outcome.cost.as_usd()));
    Ok(response)
}

/// How a run ended, once it did; else the response that says why that is not known.
pub async fn end_of(
    follower: Follower,
    names: &mut RunNames,
    identity: &RequestIdentity,
) -> Result<Box<Outcome>, Box<Response>> {
    let (mut follower, mut outcome) = (follower.waiting_for_the_end(), None);
    loop {
        let records = match follower.next().await {
            Ok(Some(records)) => records,
            Ok(None) => break,
            Err(error) => {
                // The run may continue. Without a key or a count of attempts, a repeated request cannot find it.
                let may_repeat = identity.finds_its_run() || matches!(error, FollowError::Leaving);
                let error = ApiError::from(error);
                let mut response = if may_repeat { error } else { error.permanent() }.into_response();
                sse::name_run(&mut response, names);
                return Err(Box::new(response));
            }
        };
        for record in &records {
            names.follow(&record.event);
        }
        if let Some(Event::RunFinished(finished)) = records.last().map(|record| &record.event) {
            outcome = Some(finished.clone());
        }
    }
    outcome.ok_or_else(|| Box::new(ApiError::internal(&"a run's log ended without its last event").into_response()))
}
