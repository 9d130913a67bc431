//! `/v1/runs`: reading, following and cancelling runs.

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;

use crate::agent::control::{Filter, Following};
use crate::api::Api;
use crate::api::callers::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{Id, JsonText, Query, header_text};
use crate::api::idempotency::{Announced, mark_replayed};
use crate::api::sse;
use crate::api::wire::agent::events::{AgentEvents, NativeEvent, native};
use crate::api::wire::agent::options::EventsMode;
use crate::api::wire::body::clip;
use crate::api::wire::chunk::ChunkTemplate;
use crate::api::wire::error::ErrorCode;
use crate::api::wire::openai_chat::stream::ChatChunks;
use crate::api::wire::openai_error::ErrorBody;
use crate::api::wire::run::{List, RunObject, Steering, read_steering};
use crate::api::wire::{Resumed, RunNames, write_json};
use crate::types::{Event, RunId, RunStatus, SessionId};

/// Largest event id that every client can count to.
const MAX_EVENT_ID: u64 = 1 << 53;

/// Lists runs, newest first.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", operation_id = "listRuns",
    params(
        ("session_id" = Option<String>, Query, description = "Only this session's"),
        ("status" = Option<String>, Query, description = "Only those that stand so"),
        ("limit" = Option<u32>, Query, description = "1 to 100; 20 without it"),
        ("after" = Option<String>, Query, description = "Only those older than this run"),
    ),
    responses((status = 200, description = "A page of runs", body = List<RunObject<'_>>),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    query: Query,
) -> Result<Response, ApiError> {
    let limit = query.limit()?;
    let filter = Filter {
        session: query.parsed("session_id", SessionId::parse)?,
        status: query.parsed("status", parse_status)?,
        after: query.parsed("after", RunId::parse)?,
        limit: limit + 1,
    };
    let mut heads = api.agent.runs(&caller.tenant, &filter).await?;
    let has_more = heads.len() > limit;
    heads.truncate(limit);
    let runs: Vec<_> = heads.iter().map(RunObject::from).collect();
    Ok(axum::Json(List::new(runs, has_more, |run| run.id.to_owned())).into_response())
}

/// Reads a run with its report.
#[utoipa::path(
    get, path = "/v1/runs/{id}", tag = "runs", operation_id = "getRun",
    params(("id" = String, Path, description = "The run")),
    responses((status = 200, description = "The run", body = RunObject<'_>),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id,
) -> Result<Response, ApiError> {
    let view = api.agent.run(&caller.tenant, &run_id(&id)?).await?;
    Ok(axum::Json(RunObject::from(&view)).into_response())
}

/// Follows a run's events from any point on, live until its end.
#[utoipa::path(
    get, path = "/v1/runs/{id}/events", tag = "runs", operation_id = "followRun",
    params(
        ("id" = String, Path, description = "The run"),
        ("after" = Option<u64>, Query, description = "Only events with greater ids; the header goes first"),
        ("last-event-id" = Option<u64>, Header, description = "Only events with greater ids"),
        ("stream" = Option<bool>, Query, description = "`false` for a JSON list of what is there"),
        ("events" = Option<EventsMode>, Query, description = "What the stream shows beside text: `native` without it"),
        ("include_usage" = Option<bool>, Query, description = "Whether a stream of chunks has a usage chunk"),
    ),
    responses((status = 200, description = "The events, then `[DONE]`",
               content((NativeEvent<'_> = "text/event-stream"), (List<NativeEvent<'_>> = "application/json"))),
              (status = 204, description = "The run ended and all of its events were seen"),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn events(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let after = match header_text(&headers, "last-event-id")? {
        Some(text) => event_id("last-event-id", text)?,
        None => query.get("after").map_or(Ok(0), |text| event_id("after", text))?,
    };
    let stream = query.parsed("stream", |text| text.parse::<bool>().ok())?.unwrap_or(true);
    let mode = query.parsed("events", parse_events)?.unwrap_or(EventsMode::Native);
    let include_usage = query.parsed("include_usage", |text| text.parse::<bool>().ok())?.unwrap_or(false);
    if !stream && mode != EventsMode::Native {
        return Err(ApiError::invalid("events", "a list shows native events; leave events or stream=false out"));
    }
    let id = run_id(&id)?;
    let Following { head, follower } = api.agent.follow(&caller.tenant, &id, after).await?;
    let names = RunNames::from(&head);
    let mut response = match (stream, follower) {
        (true, Some(follower)) if mode == EventsMode::Native => {
            return Ok(sse::stream(follower, AgentEvents::new(names.clone(), true), &names));
        }
        (true, Some(rest)) => {
            // What a chunk looks like depends on those before it: they are written again, and left out.
            let whole = if after == 0 { Some(rest) } else { api.agent.follow(&caller.tenant, &id, 0).await?.follower };
            let chunks = ChatChunks::new(names.clone(), include_usage, mode == EventsMode::Extension, true);
            match whole {
                Some(whole) => return Ok(sse::stream(whole, Resumed::new(chunks, after), &names)),
                None => StatusCode::NO_CONTENT.into_response(),
            }
        }
        (true, None) => StatusCode::NO_CONTENT.into_response(),
        (false, follower) => {
            let mut events: Vec<Box<RawValue>> = Vec::new();
            if let Some(mut follower) = follower {
                for record in follower.available().await? {
                    events.push(event_json(&record, &names)?);
                }
            }
            axum::Json(List::whole(events)).into_response()
        }
    };
    sse::name_run(&mut response, &names);
    Ok(response)
}

/// Cancels a run and answers once it has stopped.
#[utoipa::path(
    post, path = "/v1/runs/{id}/cancel", tag = "runs", operation_id = "cancelRun",
    params(("id" = String, Path, description = "The run"),
           ("idempotency-key" = Option<String>, Header, description = "Not needed: cancelling may be repeated")),
    responses((status = 200, description = "The run as it ended", body = RunObject<'_>),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn cancel(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    Announced::read(&headers)?;
    let view = api.agent.cancel(&caller.tenant, &run_id(&id)?).await?;
    Ok(axum::Json(RunObject::from(&view)).into_response())
}

/// Lets messages join a live run's conversation before its next model call.
///
/// A run that would have ended goes on for one more call.
#[utoipa::path(
    post, path = "/v1/runs/{id}/messages", tag = "runs", operation_id = "steerRun",
    request_body = Steering<'_>,
    params(("id" = String, Path, description = "The run"),
           ("idempotency-key" = Option<String>, Header,
            description = "1 to 255 visible ASCII characters; the same key with the same body is heard once")),
    responses((status = 202, description = "The run, which will hear of them", body = RunObject<'_>),
              (status = "4XX", description = "The request was refused", body = ErrorBody)),
)]
pub async fn steer(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Response, ApiError> {
    let (body, announced) = (body.as_str()?, Announced::read(&headers)?);
    let (id, messages) = (run_id(&id)?, read_steering(body)?);
    let (head, replayed) = match announced.once_by_key("runs/messages", &caller, body)? {
        Some(once) => api.agent.steer_once(&caller.tenant, &id, messages, &once).await?,
        None => (api.agent.steer(&caller.tenant, &id, messages).await?, false),
    };
    let mut response = (StatusCode::ACCEPTED, axum::Json(RunObject::from(&head))).into_response();
    sse::name_run(&mut response, &RunNames::from(&head));
    if replayed {
        mark_replayed(response.headers_mut());
    }
    Ok(response)
}

/// An event as one JSON object: text as the chunk it streams as, with its number.
fn event_json(record: &crate::types::Record, names: &RunNames) -> Result<Box<RawValue>, ApiError> {
    let mut out = BytesMut::new();
    if let Event::TextDelta { step, text } = &record.event {
        ChunkTemplate::new(names, false).write_text(text, Some(*step), &mut out);
    } else {
        write_json(&native(record, names, true), &mut out);
    }
    let text = String::from_utf8(out.to_vec()).map_err(|error| ApiError::internal(&error))?;
    RawValue::from_string(text).map_err(|error| ApiError::internal(&error))
}

fn run_id(text: &str) -> Result<RunId, ApiError> {
    let missing = || ApiError::new(ErrorCode::RunNotFound, format!("run {:?} does not exist", clip(text)));
    RunId::parse(text).ok_or_else(missing)
}

fn event_id(param: &str, text: &str) -> Result<u64, ApiError> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let id = text.parse().ok().filter(|id| plain && *id <= MAX_EVENT_ID);
    id.ok_or_else(|| ApiError::invalid(param, format!("{:?} is not an event id", clip(text))))
}

fn parse_events(text: &str) -> Option<EventsMode> {
    match text {
        "native" => Some(EventsMode::Native),
        "extension" => Some(EventsMode::Extension),
        "none" => Some(EventsMode::None),
        _ => None,
    }
}

fn parse_status(text: &str) -> Option<RunStatus> {
    use RunStatus::{Cancelled, Completed, Failed, InProgress, Incomplete, Queued, RequiresAction};
    let all = [Queued, InProgress, RequiresAction, Completed, Incomplete, Cancelled, Failed];
    all.into_iter().find(|status| status.as_str() == text)
}
