//! The dialects on the wire: how requests are read, and how events are written. Each dialect has a folder. What
//! several dialects share lies beside the folders, and so do the resources.
//!
//! Encoders are deterministic folds over events and know neither HTTP nor async. So a stream is resumed by encoding
//! it again and skipping what the reader has.

pub mod ag_ui;
pub mod agent;
pub mod ai_sdk;
pub mod asked;
pub mod body;
pub mod budgets;
pub mod chunk;
pub mod compaction;
pub mod conversations;
mod depth;
pub mod document;
pub mod error;
pub mod escapes;
pub mod image_url;
pub mod json_object;
pub mod last_words;
pub mod layer;
pub mod messages;
mod mismatch;
pub mod openai_chat;
pub mod openai_error;
pub mod responses;
pub mod restored;
pub mod run;
pub mod schedule;
pub mod session;
pub mod snapshot;
pub mod splice;
pub mod stored_agent;
pub mod token;
mod told;
pub mod tree;
pub mod turn_end;
pub mod ui;
pub mod usage;
pub mod usage_report;
pub mod vocabulary;

#[cfg(test)]
mod tests;

use std::cell::Cell;

use bytes::BytesMut;
use memchr::memchr2;
use serde::Serialize;
use utoipa::ToSchema;

use crate::agent::Head;
use crate::api::wire::openai_error::{ErrorBody, ErrorObject};
use crate::types::trace::TraceId;
use crate::types::{Event, Record, RunId, SessionId};

/// An event of a stream, as the standard of server-sent events has it.
#[derive(Debug, Serialize, ToSchema)]
pub struct StreamEvent {
    /// The event's number.
    id: Option<String>,
    /// Its name; texts have none.
    event: Option<String>,
    /// A JSON object, or `[DONE]` in the last one.
    data: String,
}

/// What every frame of a run's stream may need to name.
#[derive(Debug, Clone)]
pub struct RunNames {
    /// The run.
    pub id: RunId,
    /// Its session.
    pub session: Option<SessionId>,
    /// The model or agent as the caller named it; the model that answers, if the run fell back to another than the
    /// caller's.
    pub model: String,
    /// Whether the caller named an agent, which answers whichever model it calls.
    pub names_agent: bool,
    /// When it was accepted, Unix milliseconds.
    pub created_ms: u64,
    /// Which of its responses is written: 0 until its client continues it.
    pub leg: u32,
    /// The trace that it belongs to, if it has spans or its caller names one.
    pub trace: Option<TraceId>,
}

impl RunNames {
    /// Takes note of a request that continued the run, whose response begins, and of another model than the caller's.
    /// Returns whether a name changed.
    pub fn follow(&mut self, event: &Event) -> bool {
        if let Event::RunResumed { leg: Some(leg) } = event {
            self.leg = leg.number;
            return true;
        }
        let to = if let Event::ProviderFallback(fell_back) = event {
            Some(&fell_back.to)
        } else if let Event::HedgeEnded(ended) = event {
            ended.to.as_ref()
        } else {
            None
        };
        let Some(to) = to.filter(|_| !self.names_agent) else { return false };
        self.model = to.full_name();
        true
    }
}

impl From<&Head> for RunNames {
    fn from(head: &Head) -> Self {
        Self {
            id: head.id.clone(),
            session: head.session.clone(),
            model: head.model.clone(),
            names_agent: head.model == head.agent,
            created_ms: head.created_ms,
            leg: 0,
            trace: head.trace.as_ref().map(|trace| trace.id),
        }
    }
}

/// Writes a run's public events as server-sent events of one dialect.
pub trait Encoder: Send + 'static {
    /// Whether readers of this dialect come back by themselves where a stream breaks off, and lose nothing.
    const READERS_COME_BACK: bool;
    /// What follows the last event.
    const LAST_FRAME: &'static [u8] = DONE;

    /// Appends the frames of one event, often one, sometimes none.
    fn encode(&mut self, record: &Record, out: &mut BytesMut);

    /// Whether nothing follows, however the run goes on.
    fn has_ended(&self) -> bool {
        false
    }

    /// Whether it has ended before its run, which goes on: the same request finds the answer there.
    fn has_broken_off(&self) -> bool {
        false
    }

    /// Appends what it means that no record follows, where that was not known before.
    fn conclude(&mut self, _out: &mut BytesMut) {}

    /// Appends what tells a client after a silence that the stream lives.
    fn keep_alive(&mut self, out: &mut BytesMut) {
        out.extend_from_slice(b": keep-alive\n\n");
    }

    /// Appends that the stream cannot be told to its end.
    fn break_off(&mut self, error: ErrorObject, out: &mut BytesMut) {
        out.extend_from_slice(b"data: ");
        write_json(&ErrorBody { error }, out);
        out.extend_from_slice(b"\n\n");
    }
}

/// Writes only what comes after an event that was seen. The inner encoder sees all of them, so that
/// what it writes is what it would have written.
#[derive(Debug)]
pub struct Resumed<E> {
    encoder: E,
    after: u64,
}

impl<E> Resumed<E> {
    /// The part of `encoder`'s stream after event `after`; 0 for all of it.
    pub fn new(encoder: E, after: u64) -> Self {
        Self { encoder, after }
    }
}

impl<E: Encoder> Encoder for Resumed<E> {
    const READERS_COME_BACK: bool = true;

    fn encode(&mut self, record: &Record, out: &mut BytesMut) {
        let begin = out.len();
        self.encoder.encode(record, out);
        if record.seq <= self.after {
            out.truncate(begin);
        }
    }
}

/// Appends the line that numbers a frame.
fn write_id(seq: u64, out: &mut BytesMut) {
    out.extend_from_slice(b"id: ");
    write_json(&seq, out);
    out.extend_from_slice(b"\n");
}

/// The last frame of every stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

thread_local! {
    /// Where JSON is written piece by piece, because a piece costs several times as much in `BytesMut`.
    static WRITTEN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The memory that JSON leaves for the next one, in bytes.
const KEPT: usize = 8 << 10;

/// Appends `value` as JSON: texts, numbers and what is made of them, which take one line.
pub(crate) fn write_json<T: serde::Serialize + ?Sized>(value: &T, out: &mut BytesMut) {
    write_json_with(value, |_| {}, out);
}

/// Appends `value` as JSON in one line, as a frame has it, where raw JSON of a caller or a model in it may stand in several.
pub(crate) fn write_json_line<T: serde::Serialize + ?Sized>(value: &T, out: &mut BytesMut) {
    write_json_with(value, join_lines, out);
}

fn write_json_with<T: serde::Serialize + ?Sized>(value: &T, finish: fn(&mut [u8]), out: &mut BytesMut) {
    let mut written = WRITTEN.take();
    serde_json::to_writer(&mut written, value).expect("wire types hold only strings, numbers and valid raw JSON");
    finish(&mut written);
    out.extend_from_slice(&written);
    written.clear();
    written.shrink_to(KEPT);
    WRITTEN.set(written);
}

/// Within its texts JSON has no bare line break, so those that there are stand between values.
fn join_lines(json: &mut [u8]) {
    let mut rest = json;
    while let Some(at) = memchr2(b'\n', b'\r', rest) {
        rest[at] = b' ';
        rest = &mut std::mem::take(&mut rest)[at + 1..];
    }
}
