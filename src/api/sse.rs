//! A follower's records as a stream of server-sent events.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::{HeaderName, HeaderValue, header};
use tokio::time::Instant;

use crate::agent::OpenAnswer;
use crate::agent::follow::{FollowError, Follower};
use crate::api::answered;
use crate::api::error::ApiError;
use crate::api::log_fields::LogFields;
use crate::api::wire::{Encoder, RunNames};

/// A comment line goes out after this much silence. Not a setting: proxies cut streams that are idle for a minute, and
/// a comment every quarter of it costs nothing.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Events go out in pieces of about this size: what a slow reader has not taken yet is written out no further.
pub const PIECE: usize = 64 << 10;

/// Sends a reader to another replica: it comes back soon, with the last id that it has.
pub const MOVE: &[u8] = b": this server is shutting down; go on through another one\nretry: 250\n\n";

/// Streams what the follower finds, as the encoder writes it, then what the dialect ends with.
///
/// What is there already goes out in few pieces.
pub fn stream<E: Encoder>(follower: Follower, encoder: E, names: &RunNames) -> Response {
    answer(follower, encoder, names, None)
}

/// The same for an answer of which is kept whether it reached its client.
pub fn answer<E: Encoder>(
    mut follower: Follower,
    encoder: E,
    names: &RunNames,
    answer: Option<OpenAnswer>,
) -> Response {
    if E::READERS_COME_BACK {
        follower = follower.movable();
    }
    let fate = answer.as_ref().map(OpenAnswer::fate);
    let mut response = respond(Body::from_stream(events(follower, encoder, answer)), names);
    answered::attach(fate, &mut response);
    response
}

/// A response of events about a run.
pub fn respond(body: Body, names: &RunNames) -> Response {
    let mut response = of_events(body);
    name_run(&mut response, names);
    response
}

/// A stream whose frames are all there.
pub fn whole(frames: Bytes) -> Response {
    of_events(Body::from(frames))
}

fn of_events(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

type Piece = Result<Bytes, Infallible>;
/// There where it is kept whether the answer reached its client.
type Open = Option<OpenAnswer>;

/// Every open stream is as large as this.
fn events<E: Encoder>(mut follower: Follower, mut encoder: E, mut answer: Open) -> impl Stream<Item = Piece> {
    async_stream::stream! {
        let mut out = BytesMut::new();
        let mut silence = pin!(tokio::time::sleep(KEEP_ALIVE));
        loop {
            let found = tokio::select! {
                biased;
                found = follower.next() => found,
                () = &mut silence => {
                    silence.as_mut().reset(Instant::now() + KEEP_ALIVE);
                    encoder.keep_alive(&mut out);
                    yield Ok::<_, Infallible>(out.split().freeze());
                    continue;
                }
            };
            match found {
                Ok(Some(records)) => {
                    let mut is_silent = true;
                    for record in records {
                        encoder.encode(&record, &mut out);
                        if out.len() >= PIECE {
                            is_silent = false;
                            yield Ok(out.split().freeze());
                        }
                    }
                    let has_ended = encoder.has_ended();
                    let is_told = has_ended || follower.has_ended();
                    if is_told {
                        encoder.conclude(&mut out);
                        out.extend_from_slice(E::LAST_FRAME);
                    }
                    if !out.is_empty() {
                        is_silent = false;
                        yield Ok(out.split().freeze());
                    }
                    // What the dialect does not show is silence to the client.
                    if !is_silent {
                        silence.as_mut().reset(Instant::now() + KEEP_ALIVE);
                    }
                    answered::reached(&mut answer, is_told && !encoder.has_broken_off());
                    if has_ended {
                        break;
                    }
                }
                Ok(None) => break,
                Err(FollowError::Leaving) if E::READERS_COME_BACK => {
                    yield Ok(Bytes::from_static(MOVE));
                    break;
                }
                Err(error) => {
                    encoder.break_off(ApiError::from(error).object(), &mut out);
                    yield Ok(out.split().freeze());
                    break;
                }
            }
        }
    }
}

/// Adds the headers that every response about a run bears, and lets the request's line in the log name its model.
pub fn name_run(response: &mut Response, names: &RunNames) {
    let headers = response.headers_mut();
    if let Ok(run) = HeaderValue::from_str(names.id.as_str()) {
        headers.insert(HeaderName::from_static("x-loopgate-run-id"), run);
    }
    if let Some(session) = &names.session
        && let Ok(session) = HeaderValue::from_str(session.as_str())
    {
        headers.insert(HeaderName::from_static("x-loopgate-session-id"), session);
    }
    if let Some(trace) = &names.trace
        && let Ok(trace) = HeaderValue::try_from(trace.to_string())
    {
        headers.insert(HeaderName::from_static("x-loopgate-trace-id"), trace);
    }
    LogFields::of(response).model = Some(names.model.clone());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::wire::agent::stream::AgentEvents;
    use crate::api::wire::ai_sdk::chunks::AiSdk;
    use crate::api::wire::messages::events::MessageEvents;
    use crate::api::wire::openai_chat::stream::ChatChunks;
    use crate::api::wire::responses::events::ResponseEvents;
    use crate::api::wire::ui::events::UiEvents;

    #[test]
    fn an_open_stream_is_small() {
        fn size_of_stream<E: Encoder, S>(_: impl FnOnce(Follower, E, Option<OpenAnswer>) -> S) -> usize {
            size_of::<S>()
        }
        let agent = size_of_stream::<AgentEvents, _>(events);
        let chat = size_of_stream::<ChatChunks, _>(events);
        let responses = size_of_stream::<ResponseEvents, _>(events);
        let messages = size_of_stream::<MessageEvents, _>(events);
        let ui = size_of_stream::<UiEvents<AiSdk>, _>(events);
        assert!(
            agent.max(chat).max(responses).max(messages).max(ui) <= 1_024,
            "{agent}, {chat}, {responses}, {messages} and {ui} bytes, of which {} are the follower",
            size_of::<Follower>()
        );
    }
}
