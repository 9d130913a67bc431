//! A run's records as the events of its responses.
//!
//! A fold: what it writes, and how its frames are numbered, depends on the log alone. So any replica writes a stream again from
//! any number on, and the object of a response is the same fold without its frames.

mod bodies;
mod calls;
mod ending;
mod finish;
mod said;
mod state;
mod text;

use std::sync::Arc;

use bytes::BytesMut;
use serde_json::value::RawValue;

use self::bodies::Nothing;
use self::finish::ErrorFrame;
pub use self::state::Shown;
use self::state::{Progress, State};
use self::text::Kind;
use crate::api::wire::openai_error::ErrorObject;
use crate::api::wire::responses::object::ResponseObject;
use crate::api::wire::told::Told;
use crate::api::wire::{Encoder, RunNames};
use crate::types::approval::ApprovalDecision;
use crate::types::response::ResponseTerms;
use crate::types::{Event, Outcome, Record};

/// Writes the events of responses.
#[derive(Debug)]
pub struct ResponseEvents(Box<State>);

impl ResponseEvents {
    /// An encoder for a run's responses: `terms` are those of the request that began it, or, where the records begin with
    /// another request, of that.
    pub fn new(names: RunNames, terms: Arc<ResponseTerms>, shown: Shown) -> Self {
        Self(Box::new(State::new(names, terms, shown)))
    }

    /// Takes a record in without writing anything.
    pub fn take(&mut self, record: &Record) {
        self.0.apply(record, &mut BytesMut::new());
    }

    /// The response as it stands.
    pub fn object(&self) -> ResponseObject<'_> {
        self.0.object(self.0.shown.with_agent)
    }

    /// How its run ended.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.0.ended.as_ref().map(|(outcome, _)| &**outcome)
    }

    /// The names of the run.
    pub fn names(&self) -> &RunNames {
        &self.0.names
    }

    /// Whether the records have any of it.
    pub fn has_begun(&self) -> bool {
        self.0.created
    }

    /// Whether its client has continued the run, which goes on as the next response.
    pub fn is_over(&self) -> bool {
        self.0.progress == Progress::Over
    }

    /// How many frames its stream has so far.
    pub fn frames(&self) -> u64 {
        self.0.frames.count()
    }

    /// The items that are whole, in their order.
    pub fn items(&self) -> Vec<&RawValue> {
        self.0.output()
    }

    /// What the response says of its request.
    pub fn terms(&self) -> &ResponseTerms {
        &self.0.terms
    }
}

impl Encoder for ResponseEvents {
    const READERS_COME_BACK: bool = false;

    fn encode(&mut self, record: &Record, out: &mut BytesMut) {
        let begin = out.len();
        self.0.apply(record, out);
        if out.len() > begin {
            self.0.silences = 0;
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.0.progress, Progress::Ended | Progress::Over)
    }

    fn keep_alive(&mut self, out: &mut BytesMut) {
        out.extend_from_slice(b": keep-alive\n\n");
        self.0.silences = (self.0.silences + 1) % 4;
        // Comments alone do not tell every client that the stream lives.
        if self.0.silences == 0 && self.0.frames.count() > 0 {
            // Clients that give up on silent streams wait on.
            self.0.frames.write_beside("keepalive", Nothing {}, out);
        }
    }

    fn break_off(&mut self, error: ErrorObject, out: &mut BytesMut) {
        // It is no event of the response: who reads on behind the last number misses nothing.
        let frame = ErrorFrame::new(error.code, error.r#type, &error.message);
        self.0.frames.write_beside("error", frame, out);
        out.extend_from_slice(Self::LAST_FRAME);
    }
}

impl State {
    fn apply(&mut self, record: &Record, out: &mut BytesMut) {
        if let Event::ApprovalResolved(approval) = &record.event
            && approval.decision == ApprovalDecision::Approve
        {
            self.approved.push(approval.call_id.clone());
        }
        if self.names.follow(&record.event)
            && let Event::RunResumed { leg: Some(leg) } = &record.event
        {
            self.turn_to(leg.number, leg.asked.options.response.as_ref());
        }
        if !self.is_shown() || matches!(self.progress, Progress::Ended | Progress::Over) {
            return;
        }
        let event = &record.event;
        if *event == Event::RunQueued {
            return self.begin(record.at_ms, true, out);
        }
        if matches!(event, Event::RunStarted | Event::RunResumed { leg: Some(_) }) {
            return self.begin(record.at_ms, false, out);
        }
        if self.progress == Progress::NotBegun && !begins_elsewhere(event) {
            self.begin(record.at_ms, false, out);
        }
        self.go_on(event, record.at_ms, out);
    }

    fn go_on(&mut self, event: &Event, at_ms: u64, out: &mut BytesMut) {
        let Some(told) = Told::of(event) else { return };
        match told {
            Told::Step(step, _) => self.begin_step(step, out),
            Told::Thinking(step, text) => self.say(step, Kind::Reasoning, text, out),
            Told::Text(step, text) => self.say(step, Kind::Text, text, out),
            Told::Refusal(step, text) => self.say(step, Kind::Refusal, text, out),
            Told::Void(step, _) => self.discard(step, out),
            Told::Call(call) => self.begin_call(call, out),
            Told::Answer(call, outcome) => self.end_call(call, outcome, out),
            Told::End(outcome) => self.finish(outcome, at_ms, out),
        }
    }
}

/// Whether an event may stand before the first of a response.
fn begins_elsewhere(event: &Event) -> bool {
    matches!(event, Event::ApprovalResolved(_) | Event::ApprovalRequired(_) | Event::RunResumed { .. })
}
