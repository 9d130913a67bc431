//! `/v1/runs/{id}/events`: a run's log, in any dialect, from any event on.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;
use utoipa::IntoParams;

use crate::agent::control::Following;
use crate::agent::follow::Follower;
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{Query, RunPath, header_text};
use crate::api::sse;
use crate::api::state::Api;
use crate::api::wire::agent::events::{AgentEvents, NativeEvent, native};
use crate::api::wire::agent::options::EventsMode;
use crate::api::wire::body::clip;
use crate::api::wire::chunk::ChunkTemplate;
use crate::api::wire::openai_chat::stream::ChatChunks;
use crate::api::wire::run::List;
use crate::api::wire::{Resumed, RunNames, write_json};
use crate::types::{Event, Record};

/// Largest event id that every client can count to.
const MAX_EVENT_ID: u64 = 1 << 53;

/// What of a run's events is asked for, and how they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    after: u64,
    shown: Shown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// A JSON list of the events that are there.
    List,
    /// A stream of named events.
    Native,
    /// A stream of OpenAI's chunks.
    Chunks { include_usage: bool, extension: bool },
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; `Asked::read` reads the query")]
struct EventsQuery {
    /// Only events with greater ids; the header goes first
    after: Option<u64>,
    /// `false` for a JSON list of what is there
    stream: Option<bool>,
    /// What the stream shows beside text: `native` without it
    events: Option<EventsMode>,
    /// Whether a stream of chunks has a usage chunk
    include_usage: Option<bool>,
}

/// Follows a run's events from any point on, live until its end.
#[utoipa::path(
    get, path = "/v1/runs/{id}/events", tag = "runs", operation_id = "followRun",
    params(
        RunPath, EventsQuery,
        ("last-event-id" = Option<u64>, Header, description = "Only events with greater ids"),
    ),
    responses((status = 200, description = "The events, then `[DONE]`",
               content((NativeEvent<'_> = "text/event-stream"), (List<NativeEvent<'_>> = "application/json"))),
              (status = 204, description = "The run ended and all of its events were seen")),
)]
pub async fn follow(
    State(api): State<Api>,
    caller: Caller,
    RunPath(id): RunPath,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let asked = Asked::read(&query, &headers)?;
    let Following { head, follower } = api.agent.follow(&caller.tenant, &id, asked.after).await?;
    let names = RunNames::from(&head);
    match (asked.shown, follower) {
        (Shown::List, follower) => list(follower, &names).await,
        (Shown::Native | Shown::Chunks { .. }, None) => Ok(nothing_new(&names)),
        (Shown::Native, Some(follower)) => Ok(sse::stream(follower, AgentEvents::new(names.clone(), true), &names)),
        (Shown::Chunks { include_usage, extension }, Some(rest)) => {
            // What a chunk looks like depends on those before it: they are written again, and left out.
            let whole = match asked.after {
                0 => Some(rest),
                _ => api.agent.follow(&caller.tenant, &id, 0).await?.follower,
            };
            let Some(whole) = whole else { return Ok(nothing_new(&names)) };
            let chunks = ChatChunks::new(names.clone(), include_usage, extension, true);
            Ok(sse::stream(whole, Resumed::new(chunks, asked.after), &names))
        }
    }
}

impl Asked {
    fn read(query: &Query, headers: &HeaderMap) -> Result<Self, ApiError> {
        let after = match header_text(headers, "last-event-id")? {
            Some(text) => event_id("last-event-id", text)?,
            None => query.get("after").map_or(Ok(0), |text| event_id("after", text))?,
        };
        let flag = |name| query.parsed(name, |text| text.parse::<bool>().ok());
        let stream = flag("stream")?.unwrap_or(true);
        let mode = query.parsed("events", parse_events)?.unwrap_or(EventsMode::Native);
        let include_usage = flag("include_usage")?.unwrap_or(false);
        let shown = match (stream, mode) {
            (false, EventsMode::Native) => Shown::List,
            (false, EventsMode::Extension | EventsMode::None) => {
                let message = "a list shows native events; leave events or stream=false out";
                return Err(ApiError::invalid("events", message));
            }
            (true, EventsMode::Native) => Shown::Native,
            (true, EventsMode::Extension) => Shown::Chunks { include_usage, extension: true },
            (true, EventsMode::None) => Shown::Chunks { include_usage, extension: false },
        };
        Ok(Self { after, shown })
    }
}

/// The events that are there, as one JSON list.
async fn list(follower: Option<Follower>, names: &RunNames) -> Result<Response, ApiError> {
    let mut events: Vec<Box<RawValue>> = Vec::new();
    if let Some(mut follower) = follower {
        for record in follower.available().await? {
            events.push(event_json(&record, names)?);
        }
    }
    let mut response = axum::Json(List::whole(events)).into_response();
    sse::name_run(&mut response, names);
    Ok(response)
}

/// The run ended, and the caller has seen all of its events.
fn nothing_new(names: &RunNames) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    sse::name_run(&mut response, names);
    response
}

/// An event as one JSON object: text as the chunk it streams as, with its number.
fn event_json(record: &Record, names: &RunNames) -> Result<Box<RawValue>, ApiError> {
    let mut out = BytesMut::new();
    if let Event::TextDelta { step, text } = &record.event {
        ChunkTemplate::new(names, false).write_text(text, Some(*step), &mut out);
    } else {
        write_json(&native(record, names, true), &mut out);
    }
    let text = String::from_utf8(out.to_vec()).map_err(|error| ApiError::internal(&error))?;
    RawValue::from_string(text).map_err(|error| ApiError::internal(&error))
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
