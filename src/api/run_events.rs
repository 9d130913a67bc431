//! `/v1/runs/{id}/events`: a run's log, in any dialect, from any event on.

use std::pin::Pin;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use utoipa::IntoParams;

use crate::agent::control::Following;
use crate::agent::follow::{FollowError, Follower};
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::{Query, RunPath, header_text};
use crate::api::nested::{self, Nest};
use crate::api::operators::reach;
use crate::api::params::{TenantQuery, TokenQuery};
use crate::api::readers::ReaderShare;
use crate::api::sse;
use crate::api::state::Api;
use crate::api::ui_stream;
use crate::api::wire::ag_ui::events::AgUi;
use crate::api::wire::agent::entry::{EventEntry, write_entry};
use crate::api::wire::agent::options::EventsMode;
use crate::api::wire::agent::stream::AgentEvents;
use crate::api::wire::ai_sdk::chunks::AiSdk;
use crate::api::wire::body::clip;
use crate::api::wire::openai_chat::stream::ChatChunks;
use crate::api::wire::run::List;
use crate::api::wire::ui::events::UiEvents;
use crate::api::wire::{Resumed, RunNames, StreamEvent, write_json};
use crate::types::json::MAX_NUMBER;

/// What of a run's events is asked for, and how they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    after: u64,
    shown: Shown,
    /// Whether a stream of named events shows those of the runs below; `None` for what the agent says.
    delegate_events: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// A JSON list of the events that are there.
    List,
    /// A stream of named events.
    Native,
    /// A stream of OpenAI's chunks.
    Chunks { include_usage: bool, extension: bool },
    /// A UI message of the AI SDK.
    AiSdk,
    /// The events of AG-UI.
    AgUi,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; `Asked::read` reads the query")]
struct EventsQuery {
    /// Only events with greater ids; the header goes first
    #[param(maximum = 9_007_199_254_740_992_u64)]
    after: Option<u64>,
    /// `false` for a JSON list of what is there
    stream: Option<bool>,
    /// What the stream shows beside text: `native` without it
    events: Option<EventsMode>,
    /// Whether a stream of chunks has a usage chunk
    include_usage: Option<bool>,
    /// Whether a stream of native events shows those of the runs to which the run delegates from then on; what the agent says
    /// without it
    delegate_events: Option<bool>,
}

/// Follows a run's events from any point on, live until its end.
#[utoipa::path(
    get, path = "/v1/runs/{id}/events", tag = "runs", operation_id = "followRun",
    params(
        RunPath, EventsQuery, TenantQuery, TokenQuery,
        ("last-event-id" = Option<u64>, Header, maximum = 9_007_199_254_740_992_u64, description = "Only events with greater ids"),
    ),
    responses((status = 200, description = "The list; or a stream, whose `data` lines are such entries, then `[DONE]`",
               content((List<EventEntry<'_>> = "application/json"), (StreamEvent = "text/event-stream"))),
              (status = 204, description = "The run ended and all of its events were seen")),
)]
pub async fn follow(
    State(api): State<Api>,
    caller: Caller,
    RunPath(id): RunPath,
    query: Query,
    headers: HeaderMap,
    ReaderShare(memory): ReaderShare,
) -> Result<Response, ApiError> {
    let asked = Asked::read(&query, &headers)?;
    let caller = reach(&api, caller, &id, &query, "follow").await?;
    let Following { head, follower } = api.agent.runs().follow(caller.requester(), &id, asked.after).await?;
    let names = RunNames::from(&head);
    let Some(mut follower) = follower else {
        return Ok(if asked.shown == Shown::List { empty_list(&names) } else { nothing_new(&names) });
    };
    // What a chunk looks like depends on the events before it, and of a run that its client continued the id of every
    // text does: these events are read again, and left out.
    if asked.after > 0 && (matches!(asked.shown, Shown::Chunks { .. }) || head.leg > 0) {
        let Some(whole) = api.agent.runs().follow(caller.requester(), &id, 0).await?.follower else {
            return Ok(nothing_new(&names));
        };
        follower = whole;
    }
    let follower = follower.with_memory(memory);
    match asked.shown {
        Shown::List => list(follower, names, asked.after).await,
        Shown::Native => {
            let events = Resumed::new(AgentEvents::new(names.clone(), true), asked.after);
            Ok(if asked.delegate_events.unwrap_or(head.shows_delegates) {
                nested::stream(Nest::new(&api, &caller), follower, events, &names)
            } else {
                sse::stream(follower, events, &names)
            })
        }
        Shown::Chunks { include_usage, extension } => {
            let whole = follower;
            let chunks = ChatChunks::new(names.clone(), include_usage, extension, true);
            let chunks = if extension { chunks } else { without_void(chunks, &whole, asked.after).await? };
            Ok(sse::stream(whole, Resumed::new(chunks, asked.after), &names))
        }
        Shown::AiSdk => Ok(ui_stream::respond(follower, UiEvents::of_run(AiSdk::default(), names), true).await?),
        Shown::AgUi => Ok(ui_stream::respond(follower, UiEvents::of_run(AgUi::of(&names), names), true).await?),
    }
}

/// Leaves the void steps out of a stream of chunks of which the reader has seen nothing, or only the end.
pub async fn without_void(chunks: ChatChunks, follower: &Follower, after: u64) -> Result<ChatChunks, FollowError> {
    let steps = follower.void_steps().await?;
    Ok(chunks.without(steps.iter().filter(|step| step.may_be_left_out(after)).map(|step| step.step)))
}

impl Asked {
    fn read(query: &Query, headers: &HeaderMap) -> Result<Self, ApiError> {
        let after = match header_text(headers, "last-event-id")?.filter(|id| !id.is_empty()) {
            Some(text) => event_id("last-event-id", text)?,
            None => query.get("after").map_or(Ok(0), |text| event_id("after", text))?,
        };
        let flag = |name| query.parsed(name, parse_flag);
        let stream = flag("stream")?.unwrap_or(true);
        let mode = query.parsed("events", parse_events)?.unwrap_or(EventsMode::Native);
        let include_usage = flag("include_usage")?.unwrap_or(false);
        let shown = match (stream, mode) {
            (false, EventsMode::Native) => Shown::List,
            (false, EventsMode::Extension | EventsMode::None | EventsMode::AiSdk | EventsMode::AgUi) => {
                let message = "a list shows native events; leave events or stream=false out";
                return Err(ApiError::invalid("events", message));
            }
            (true, EventsMode::Native) => Shown::Native,
            (true, EventsMode::Extension) => Shown::Chunks { include_usage, extension: true },
            (true, EventsMode::None) => Shown::Chunks { include_usage, extension: false },
            (true, EventsMode::AiSdk | EventsMode::AgUi) if after > 0 => {
                return Err(ApiError::invalid("after", "must be left out: a message is read from its beginning"));
            }
            (true, EventsMode::AiSdk) => Shown::AiSdk,
            (true, EventsMode::AgUi) => Shown::AgUi,
        };
        Ok(Self { after, shown, delegate_events: flag("delegate_events")? })
    }
}

/// The events that are there, as one JSON list. It is written while it is read: logs may be long.
async fn list(mut follower: Follower, names: RunNames, after: u64) -> Result<Response, ApiError> {
    // What is wrong with the log at once becomes a status.
    let mut page = follower.available_page().await?;
    let mut named = names.clone();
    let pieces = async_stream::try_stream! {
        let mut out = BytesMut::from(&br#"{"object":"list","data":["#[..]);
        let (mut first, mut last) = (None, None);
        while !page.is_empty() {
            for record in page {
                named.follow(&record.event);
                if record.seq <= after {
                    continue;
                }
                if first.is_some() {
                    out.extend_from_slice(b",");
                }
                first = first.or(Some(record.seq));
                last = Some(record.seq);
                write_entry(&record, &named, &mut out);
                if out.len() >= sse::PIECE {
                    yield out.split().freeze();
                }
            }
            page = follower.available_page().await?;
        }
        write_list_end(first, last, &mut out);
        yield out.freeze();
    };
    let pieces: Pin<Box<dyn Stream<Item = Result<Bytes, FollowError>> + Send>> = Box::pin(pieces);
    let mut response = Response::new(Body::from_stream(pieces));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    sse::name_run(&mut response, &names);
    Ok(response)
}

/// What follows the last entry of a list: the numbers of the first and the last one, as texts like all ids of lists.
fn write_list_end(first: Option<u64>, last: Option<u64>, out: &mut BytesMut) {
    for (name, seq) in [(&b"],\"first_id\":"[..], first), (&b",\"last_id\":"[..], last)] {
        out.extend_from_slice(name);
        write_json(&seq.map(|seq| seq.to_string()), out);
    }
    out.extend_from_slice(br#","has_more":false}"#);
}

/// The list of a caller that has seen all events.
fn empty_list(names: &RunNames) -> Response {
    let mut response = axum::Json(List::<()>::whole(Vec::new())).into_response();
    sse::name_run(&mut response, names);
    response
}

/// The run ended, and the caller has seen all of its events.
fn nothing_new(names: &RunNames) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    sse::name_run(&mut response, names);
    response
}

fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

fn event_id(param: &str, text: &str) -> Result<u64, ApiError> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let id = text.parse().ok().filter(|id| plain && *id <= MAX_NUMBER);
    id.ok_or_else(|| ApiError::invalid(param, format!("{:?} is not an event id", clip(text))))
}

fn parse_events(text: &str) -> Option<EventsMode> {
    match text {
        "native" => Some(EventsMode::Native),
        "extension" => Some(EventsMode::Extension),
        "none" => Some(EventsMode::None),
        "ai-sdk" => Some(EventsMode::AiSdk),
        "ag-ui" => Some(EventsMode::AgUi),
        _ => None,
    }
}
