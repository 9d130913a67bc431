//! A run's records as what a stream for a chat interface tells.
//!
//! A fold: what it tells depends on the log alone, so any replica tells the same.

mod calls;
mod ending;
mod said;

use bytes::BytesMut;

use crate::api::wire::openai_error::ErrorObject;
use crate::api::wire::told::Told;
use crate::api::wire::ui::act::{Act, Dialect, Kind};
use crate::api::wire::{Encoder, RunNames};
use crate::types::event::DiscardReason;
use crate::types::{CallId, Event, Outcome, Record};

/// Writes what a stream for a chat interface tells.
#[derive(Debug)]
pub struct UiEvents<D>(Box<State<D>>);

/// A text that is being written.
#[derive(Debug)]
struct OpenText {
    kind: Kind,
    step: u32,
    id: String,
}

/// What is known after the records so far.
#[derive(Debug)]
struct State<D> {
    dialect: D,
    names: RunNames,
    /// Whether a whole run is told: where it waited, its client or somebody else may have let it go on.
    is_whole: bool,
    /// How it waits, if it does not go on.
    waiting: Option<Box<Outcome>>,
    begun: bool,
    ended: bool,
    step: u32,
    step_is_open: bool,
    /// How many texts the step has.
    texts_of_step: u32,
    /// The ids of those texts, for a step that becomes void.
    texts: Vec<String>,
    /// The message that calls of the step go with.
    message: Option<String>,
    open: Option<OpenText>,
    /// Whether text of the step went out.
    text_out: bool,
    /// Steps that are known to be void: nothing of them is said.
    void: Vec<u32>,
    /// Calls of the server that have begun or were asked for, and have no result.
    calls: Vec<CallId>,
    /// Those of them that wait for an approval.
    asked: Vec<CallId>,
    /// Those of them that were decided against.
    denied: Vec<CallId>,
    /// Calls of the client that were told and have no result.
    of_client: Vec<CallId>,
}

impl<D: Dialect> UiEvents<D> {
    /// An encoder for what one request brought about: the records begin with it.
    pub fn of_request(dialect: D, names: RunNames) -> Self {
        Self::new(dialect, names, false)
    }

    /// An encoder for a whole run as one message, whatever it waited for meanwhile.
    pub fn of_run(dialect: D, names: RunNames) -> Self {
        Self::new(dialect, names, true)
    }

    fn new(dialect: D, names: RunNames, is_whole: bool) -> Self {
        Self(Box::new(State {
            dialect,
            names,
            is_whole,
            waiting: None,
            begun: false,
            ended: false,
            step: 0,
            step_is_open: false,
            texts_of_step: 0,
            texts: Vec::new(),
            message: None,
            open: None,
            text_out: false,
            void: Vec::new(),
            calls: Vec::new(),
            asked: Vec::new(),
            denied: Vec::new(),
            of_client: Vec::new(),
        }))
    }

    /// The same without what was said in these steps, which became void before anyone read it.
    #[must_use]
    pub fn without(mut self, steps: impl IntoIterator<Item = u32>) -> Self {
        self.0.void.extend(steps);
        self
    }

    /// The names of the run.
    pub fn names(&self) -> &RunNames {
        &self.0.names
    }
}

impl<D: Dialect> Encoder for UiEvents<D> {
    const READERS_COME_BACK: bool = false;
    const LAST_FRAME: &'static [u8] = D::LAST_FRAME;

    fn encode(&mut self, record: &Record, out: &mut BytesMut) {
        self.0.apply(record, out);
    }

    fn has_ended(&self) -> bool {
        self.0.ended
    }

    fn conclude(&mut self, out: &mut BytesMut) {
        if let Some(outcome) = self.0.waiting.take() {
            self.0.end(&outcome, out);
        }
    }

    fn break_off(&mut self, error: ErrorObject, out: &mut BytesMut) {
        self.0.close(out);
        self.0.tell(&Act::BreakOff(&error), out);
        out.extend_from_slice(D::LAST_FRAME);
    }
}

impl<D: Dialect> State<D> {
    fn tell(&self, act: &Act<'_>, out: &mut BytesMut) {
        self.dialect.write(act, &self.names, out);
    }

    fn apply(&mut self, record: &Record, out: &mut BytesMut) {
        self.names.follow(&record.event);
        if self.ended {
            return;
        }
        self.waiting = None;
        if !std::mem::replace(&mut self.begun, true) {
            self.tell(&Act::Begin, out);
        }
        if let Event::ApprovalRequired(request) = &record.event {
            self.ask(&request.call, out);
        } else if let Event::ApprovalResolved(approval) = &record.event {
            self.resolve(approval, out);
        } else if let Event::RunResumed { leg: Some(leg) } = &record.event {
            self.answer_for_client(&leg.answers, out);
        } else if let Event::StepDiscarded { step, reason, .. } = &record.event {
            self.discard(*step, *reason, out);
        } else if is_aside(&record.event) {
            self.tell(&Act::Aside(record), out);
        } else {
            self.go_on(&record.event, out);
        }
    }

    fn go_on(&mut self, event: &Event, out: &mut BytesMut) {
        let Some(told) = Told::of(event) else { return };
        match told {
            Told::Step(step, _) => self.begin_step(step, out),
            Told::Thinking(step, text) => self.say(step, Kind::Thinking, text, out),
            Told::Text(step, text) | Told::Refusal(step, text) => self.say(step, Kind::Text, text, out),
            Told::Call(call) => self.begin_call(call, out),
            Told::Answer(call, outcome) => self.end_call(call, outcome, out),
            Told::End(outcome) => self.finish(outcome, out),
            // Told above, with its reason.
            Told::Void(..) => {}
        }
    }

    fn begin_step(&mut self, step: u32, out: &mut BytesMut) {
        self.close(out);
        (self.step, self.step_is_open, self.texts_of_step, self.text_out) = (step, true, 0, false);
        (self.texts, self.message) = (Vec::new(), None);
        self.tell(&Act::BeginStep(step), out);
    }

    /// What was said in a step is void: its client is told.
    fn discard(&mut self, step: u32, reason: DiscardReason, out: &mut BytesMut) {
        self.close_text(out);
        self.text_out = false;
        let texts = std::mem::take(&mut self.texts);
        if !texts.is_empty() {
            self.tell(&Act::Void { step, reason: reason.as_str(), texts: &texts }, out);
        }
    }

    /// Ends the text and the step that are open.
    fn close(&mut self, out: &mut BytesMut) {
        self.close_text(out);
        if std::mem::replace(&mut self.step_is_open, false) {
            self.tell(&Act::EndStep(self.step), out);
        }
    }
}

/// Whether an event is told beside the message, where a protocol has room for that.
fn is_aside(event: &Event) -> bool {
    matches!(event, Event::Context(_) | Event::Guarded(_) | Event::PlanCreated { .. } | Event::Delegated(_))
}
