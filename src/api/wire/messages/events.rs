//! A run's records as the events of a message.
//!
//! A fold: what it writes depends on the log alone, so any replica writes the same message. The object of a message is the
//! same fold without its frames.

mod ending;
mod said;

use bytes::BytesMut;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use self::said::OpenText;
use crate::api::wire::agent::object::AgentObject;
use crate::api::wire::messages::error::{MessagesError, MessagesErrorBody};
use crate::api::wire::messages::frame::{DeltaHead, write, write_whole};
use crate::api::wire::messages::object::{MessageObject, MessageUsage, OutBlock, input_of, no_input};
use crate::api::wire::messages::stop_reason::stop_reason;
use crate::api::wire::openai_error::ErrorObject;
use crate::api::wire::responses::id;
use crate::api::wire::{Encoder, RunNames};
use crate::types::{CallId, Event, Outcome, Record, StopReason, ToolCall, ToolOutcome};

/// Writes the events of a message.
#[derive(Debug)]
pub struct MessageEvents(Box<State>);

/// What of a run is shown, and how.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// Whether as frames.
    pub frames: bool,
    /// Whether the end has an `agent` member.
    pub with_agent: bool,
    /// Whether that has the report.
    pub with_report: bool,
    /// Whether the arguments of the server's calls come as deltas, as clients of MCP servers read them.
    pub input_by_deltas: bool,
    /// The message begins behind the end at which this call waited for its approval.
    pub after: Option<CallId>,
    /// The request, for errors.
    pub request_id: Option<String>,
}

#[derive(Debug)]
struct State {
    names: RunNames,
    shown: Shown,
    progress: Progress,
    id: String,
    /// The index of the next block.
    index: u32,
    /// The blocks that are whole, each with the step that it goes with should that become void.
    blocks: Vec<(Option<u32>, Box<RawValue>)>,
    open: Option<OpenText>,
    calls: Vec<ToolCall>,
    /// What the model call under way takes in, by estimate.
    estimate: u64,
    step: u32,
    /// Whether text of the step went out.
    text_out: bool,
    /// Steps that are known to be void: nothing of them is shown.
    void: Vec<u32>,
    ended: Option<Box<Outcome>>,
}

/// How far a message came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    NotBegun,
    Begun,
    Ended,
}

#[derive(Serialize)]
struct WithMessage<'a> {
    message: MessageObject<'a>,
}

/// A block that begins.
#[derive(Serialize)]
struct BlockStart<'a> {
    index: u32,
    content_block: &'a OutBlock<'a>,
}

#[derive(Serialize)]
struct BlockStop {
    index: u32,
}

impl MessageEvents {
    /// An encoder for a run's message.
    pub fn new(names: RunNames, shown: Shown) -> Self {
        Self(Box::new(State {
            id: id::message(&names.id, names.leg),
            names,
            shown,
            progress: Progress::NotBegun,
            index: 0,
            blocks: Vec::new(),
            open: None,
            calls: Vec::new(),
            estimate: 0,
            step: 0,
            text_out: false,
            void: Vec::new(),
            ended: None,
        }))
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
        self.0.progress == Progress::Ended
    }

    fn keep_alive(&mut self, out: &mut BytesMut) {
        #[derive(Serialize)]
        struct Ping {}
        write("ping", Ping {}, out);
    }

    fn break_off(&mut self, error: ErrorObject, out: &mut BytesMut) {
        self.0.write_error("api_error", error.code, &error.message, out);
    }
}

impl State {
    fn apply(&mut self, record: &Record, out: &mut BytesMut) {
        if self.names.follow(&record.event) {
            self.id = id::message(&self.names.id, self.names.leg);
        }
        if let Some(call) = &self.shown.after {
            if waits_with(&record.event, call) {
                self.shown.after = None;
            }
            return;
        }
        if self.progress != Progress::Ended {
            self.go_on(&record.event, out);
        }
    }

    fn go_on(&mut self, event: &Event, out: &mut BytesMut) {
        match event {
            Event::StepStarted { step, reserved, .. } => {
                self.close_text(out);
                (self.step, self.text_out, self.estimate) = (*step, false, reserved.input_tokens);
                self.begin(out);
            }
            Event::ThinkingDelta { step, text } => self.say(*step, said::Kind::Thinking, text, out),
            Event::TextDelta { step, text } | Event::RefusalDelta { step, text } => {
                self.say(*step, said::Kind::Text, text, out);
            }
            Event::StepDiscarded { step, .. } => self.discard(*step, out),
            Event::ToolStarted { call, .. } => self.begin_call(call, out),
            Event::ToolFinished { call_id, outcome, .. } => self.end_call(call_id, outcome, out),
            Event::RunFinished(outcome) if !outcome.stays_open => self.finish(outcome, out),
            Event::RunFinished(_)
            | Event::RunQueued
            | Event::RunStarted
            | Event::RunResumed { .. }
            | Event::ToolArgumentsDelta { .. }
            | Event::ProviderRetry { .. }
            | Event::ProviderFallback(_)
            | Event::HedgeStarted(_)
            | Event::HedgeEnded(_)
            | Event::TurnFinished { .. }
            | Event::Guarded(_)
            | Event::Context(_)
            | Event::BudgetWarning { .. }
            | Event::CallAllowed { .. }
            | Event::ApprovalRequired(_)
            | Event::ApprovalResolved(_)
            | Event::LoopGuardTriggered(_)
            | Event::PlanCreated { .. }
            | Event::ReflectionStarted { .. }
            | Event::ToolPending(_)
            | Event::ToolProgress { .. }
            | Event::QuestionAsked(_)
            | Event::QuestionResolved(_)
            | Event::ToolAnswered { .. }
            | Event::HookRan(_)
            | Event::StartHooked
            | Event::StepCompleted { .. }
            | Event::StopRequested { .. }
            | Event::StopAfterStep
            | Event::CommandsApplied { .. }
            | Event::HandedOff => {}
        }
    }

    /// Begins the message, with the estimate of its first model call.
    fn begin(&mut self, out: &mut BytesMut) {
        if self.progress == Progress::NotBegun {
            self.progress = Progress::Begun;
            if self.shown.frames {
                write("message_start", WithMessage { message: self.object() }, out);
            }
        }
    }

    /// What was said in a step is void. A stream cannot take it back.
    fn discard(&mut self, step: u32, out: &mut BytesMut) {
        if self.void.contains(&step) {
            return;
        }
        if self.shown.frames && self.text_out {
            let message = "What the model said is void, and this stream cannot take it back.";
            self.write_error("api_error", "provider_error", message, out);
            self.progress = Progress::Ended;
            return;
        }
        self.close_text(out);
        self.blocks.retain(|(of, _)| *of != Some(step));
        self.text_out = false;
    }

    fn begin_call(&mut self, call: &ToolCall, out: &mut BytesMut) {
        if self.calls.iter().any(|open| open.id == call.id) {
            return;
        }
        self.write_server_call(call, out);
        self.calls.push(call.clone());
    }

    fn write_server_call(&mut self, call: &ToolCall, out: &mut BytesMut) {
        let input = input_of(call);
        if self.shown.frames && self.shown.input_by_deltas {
            self.write_by_delta(&OutBlock::of_server(call, &no_input()), input.get(), out);
        } else {
            self.write_block(&OutBlock::of_server(call, &input), out);
        }
    }

    fn end_call(&mut self, id: &CallId, outcome: &ToolOutcome, out: &mut BytesMut) {
        // What was said before a call that was never made is no answer all the same.
        self.close_text(out);
        let Some(place) = self.calls.iter().position(|open| open.id == *id) else { return };
        let call = self.calls.remove(place);
        self.write_block(&OutBlock::result(&call, outcome.text().into_owned(), outcome.is_error), out);
    }

    /// Writes a block that is whole when it begins.
    fn write_block(&mut self, block: &OutBlock<'_>, out: &mut BytesMut) {
        self.close_text(out);
        self.begin(out);
        if self.shown.frames {
            let index = self.next_index();
            write("content_block_start", BlockStart { index, content_block: block }, out);
            write("content_block_stop", BlockStop { index }, out);
        } else {
            self.keep(None, block);
        }
    }

    /// Writes a block whose arguments come behind its begin.
    fn write_by_delta(&mut self, block: &OutBlock<'_>, input: &str, out: &mut BytesMut) {
        self.close_text(out);
        self.begin(out);
        let index = self.next_index();
        write("content_block_start", BlockStart { index, content_block: block }, out);
        DeltaHead::new(index, "input_json_delta", "partial_json").write(input, out);
        write("content_block_stop", BlockStop { index }, out);
    }

    fn next_index(&mut self) -> u32 {
        self.index += 1;
        self.index - 1
    }

    fn keep(&mut self, step: Option<u32>, block: &OutBlock<'_>) {
        self.blocks.push((step, to_raw_value(block).expect("blocks hold only strings and valid raw JSON")));
    }

    fn object(&self) -> MessageObject<'_> {
        let outcome = self.ended.as_deref();
        let agent =
            |outcome| AgentObject::new(&self.names.id, self.names.session.as_ref(), outcome, self.shown.with_report);
        MessageObject {
            id: &self.id,
            r#type: "message",
            role: "assistant",
            model: &self.names.model,
            content: self.blocks.iter().map(|(_, block)| &**block).collect(),
            stop_reason: outcome.and_then(stop_reason),
            stop_sequence: None,
            stop_details: None,
            container: None,
            usage: outcome.map_or_else(|| MessageUsage::estimated(self.estimate), |outcome| outcome.leg_usage().into()),
            agent: outcome.filter(|_| self.shown.with_agent).map(agent),
        }
    }

    fn write_error(&self, kind: &'static str, code: &str, message: &str, out: &mut BytesMut) {
        if self.shown.frames {
            let error = MessagesError { r#type: kind, message, code, param: None, run_id: None };
            write_whole("error", &MessagesErrorBody::new(error, self.shown.request_id.as_deref()), out);
        }
    }
}

/// Whether a run waits from here on for an approval of this call.
fn waits_with(event: &Event, call: &CallId) -> bool {
    let Event::RunFinished(outcome) = event else { return false };
    outcome.reason == StopReason::Approval && outcome.required_calls.iter().any(|required| required.call.id == *call)
}
