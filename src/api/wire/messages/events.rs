//! A run's records as the events of a message.
//!
//! A fold: what it writes depends on the log alone, so any replica writes the same message. The object of a message is the
//! same fold without its frames.

mod ending;
mod said;
mod state;
mod text;

use bytes::BytesMut;
use serde::Serialize;

pub use self::state::Shown;
use self::state::{Progress, State};
use self::text::Kind;
use crate::api::wire::messages::error::kind_in_stream;
use crate::api::wire::messages::frame::write;
use crate::api::wire::messages::object::{MessageObject, OutBlock};
use crate::api::wire::openai_error::ErrorObject;
use crate::api::wire::responses::id;
use crate::api::wire::told::Told;
use crate::api::wire::{Encoder, RunNames};
use crate::types::event::DiscardReason;
use crate::types::{CallId, Event, Outcome, Record, StopReason, ToolCall, ToolOutcome};

/// Writes the events of a message.
#[derive(Debug)]
pub struct MessageEvents(Box<State>);

impl MessageEvents {
    /// An encoder for a run's message.
    pub fn new(names: RunNames, shown: Shown) -> Self {
        Self(Box::new(State::new(names, shown)))
    }

    /// The same without the text of these steps, which became void before anyone read it.
    #[must_use]
    pub fn without(mut self, steps: impl IntoIterator<Item = u32>) -> Self {
        self.0.void.extend(steps);
        self
    }

    /// Takes a record in without writing anything.
    pub fn take(&mut self, record: &Record) {
        self.0.apply(record, &mut BytesMut::new());
    }

    /// The message as it stands.
    pub fn object(&self) -> MessageObject<'_> {
        self.0.object()
    }

    /// How its run ended, or why it waits.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.0.ended.as_deref()
    }

    /// The names of the run.
    pub fn names(&self) -> &RunNames {
        &self.0.names
    }
}

impl Encoder for MessageEvents {
    const READERS_COME_BACK: bool = false;
    const LAST_FRAME: &'static [u8] = b"";

    fn encode(&mut self, record: &Record, out: &mut BytesMut) {
        self.0.apply(record, out);
    }

    fn has_ended(&self) -> bool {
        matches!(self.0.progress, Progress::Ended | Progress::BrokenOff)
    }

    fn has_broken_off(&self) -> bool {
        self.0.progress == Progress::BrokenOff
    }

    fn keep_alive(&mut self, out: &mut BytesMut) {
        #[derive(Serialize)]
        struct Ping {}
        write("ping", Ping {}, out);
    }

    fn break_off(&mut self, error: ErrorObject, out: &mut BytesMut) {
        self.0.write_error(self.0.kind_of_break(), error.code, &error.message, out);
    }
}

impl State {
    fn apply(&mut self, record: &Record, out: &mut BytesMut) {
        if self.names.follow(&record.event) {
            self.id = id::message(&self.names.id, self.names.leg);
        }
        if self.is_before(&record.event) {
            return;
        }
        if !matches!(self.progress, Progress::Ended | Progress::BrokenOff) {
            self.go_on(&record.event, out);
        }
    }

    /// Whether the message begins behind this record. While others of the calls are not decided, the run pauses again
    /// with each decision: the message goes on once it does.
    fn is_before(&mut self, event: &Event) -> bool {
        if let Some(call) = &self.shown.after {
            if waits_with(event, call) {
                (self.shown.after, self.is_paused) = (None, true);
            }
            return true;
        }
        let pauses_again =
            |event: &Event| matches!(event, Event::RunFinished(end) if end.reason == StopReason::Approval);
        self.is_paused &= matches!(event, Event::ApprovalResolved(_)) || pauses_again(event);
        self.is_paused
    }

    fn go_on(&mut self, event: &Event, out: &mut BytesMut) {
        let Some(told) = Told::of(event) else { return };
        if self.progress == Progress::Voided {
            self.end_void(&told, out);
            return;
        }
        match told {
            Told::Step(step, reserved) => {
                self.close_text(out);
                (self.step, self.text_out, self.estimate) = (step, false, reserved.input_tokens);
                self.begin(out);
            }
            Told::Thinking(step, text) => self.say(step, Kind::Thinking, text, out),
            Told::Text(step, text) | Told::Refusal(step, text) => self.say(step, Kind::Text, text, out),
            Told::Void(step, reason) => self.discard(step, reason, out),
            Told::Call(call) => self.begin_call(call, out),
            Told::Answer(call, outcome) => self.end_call(call, outcome, out),
            Told::End(outcome) => self.finish(outcome, out),
        }
    }

    /// What was said in a step is void. A stream cannot take it back. Where the driver died, the run goes on all the same; else
    /// what follows shows whether it does.
    fn discard(&mut self, step: u32, reason: DiscardReason, out: &mut BytesMut) {
        if self.void.contains(&step) {
            return;
        }
        if self.shown.frames && self.text_out {
            match reason {
                DiscardReason::Interrupted => self.write_void(true, out),
                DiscardReason::StreamBroke | DiscardReason::EmptyResponse | DiscardReason::NoAnswer => {
                    self.progress = Progress::Voided;
                }
            }
            return;
        }
        self.close_text(out);
        self.blocks.retain(|(of, _)| *of != Some(step));
        self.text_out = false;
    }

    /// Ends the stream behind text that is void, once it is known whether the run asks the model again.
    fn end_void(&mut self, told: &Told<'_>, out: &mut BytesMut) {
        match told {
            Told::Step(..) => self.write_void(true, out),
            Told::End(_) => self.write_void(false, out),
            Told::Thinking(..)
            | Told::Text(..)
            | Told::Refusal(..)
            | Told::Void(..)
            | Told::Call(_)
            | Told::Answer(..) => {}
        }
    }

    /// Ends the stream with an error. Where the run goes on, the same request joins it, so clients are to repeat it though
    /// tools were called.
    fn write_void(&mut self, goes_on: bool, out: &mut BytesMut) {
        let message = "What the model said is void, and this stream cannot take it back.";
        let kind = if goes_on { kind_in_stream(true) } else { self.kind_of_break() };
        self.write_error(kind, "provider_error", message, out);
        self.progress = if goes_on { Progress::BrokenOff } else { Progress::Ended };
    }

    fn begin_call(&mut self, call: &ToolCall, out: &mut BytesMut) {
        if self.calls.iter().any(|open| open.id == call.id) {
            return;
        }
        self.write_server_call(call, out);
        self.calls.push(call.clone());
        self.has_called = true;
    }

    /// The kind of an error that ends the stream before its run ended. A client that repeated the request would have the
    /// tools called once more.
    fn kind_of_break(&self) -> &'static str {
        kind_in_stream(!self.has_called)
    }

    fn end_call(&mut self, id: &CallId, outcome: &ToolOutcome, out: &mut BytesMut) {
        // What was said before a call that was never made is no answer all the same.
        self.close_text(out);
        let Some(place) = self.calls.iter().position(|open| open.id == *id) else { return };
        let call = self.calls.remove(place);
        self.write_block(&OutBlock::result(&call, outcome.text().into_owned(), outcome.is_error), out);
    }
}

/// Whether a run waits from here on for an approval of this call.
fn waits_with(event: &Event, call: &CallId) -> bool {
    let Event::RunFinished(outcome) = event else { return false };
    outcome.reason == StopReason::Approval && outcome.required_calls.iter().any(|required| required.call.id == *call)
}
