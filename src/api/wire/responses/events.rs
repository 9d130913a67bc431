//! A run's records as the events of its responses.
//!
//! A fold: what it writes, and how its frames are numbered, depends on the log alone. So any replica writes a stream again from
//! any number on, and the object of a response is the same fold without its frames.

mod ending;
mod said;

use std::sync::Arc;

use bytes::BytesMut;
use serde::Serialize;
use serde_json::value::RawValue;

use self::ending::CallOf;
use self::said::OpenText;
use crate::api::wire::agent::object::AgentObject;
use crate::api::wire::openai_error::ErrorObject;
use crate::api::wire::responses::frame::Frames;
use crate::api::wire::responses::id;
use crate::api::wire::responses::object::{ResponseObject, ResponseUsage};
use crate::api::wire::responses::output::{ItemStatus, McpCall, OutputItem, Phase, kept};
use crate::api::wire::{Encoder, RunNames};
use crate::types::approval::ApprovalDecision;
use crate::types::response::ResponseTerms;
use crate::types::{CallId, Event, Outcome, Record, ToolCall, ToolOutcome};

/// Writes the events of responses.
#[derive(Debug)]
pub struct ResponseEvents(Box<State>);

/// What of a run's responses is shown.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// The response of this number; `None` for that with which the records begin.
    pub leg: Option<u32>,
    /// From which frame on; `None` for no frames.
    pub from: Option<u64>,
    /// Whether objects that end have an `agent` member.
    pub with_agent: bool,
    /// Whether that has the report.
    pub with_report: bool,
}

#[derive(Debug)]
struct State {
    names: RunNames,
    terms: Arc<ResponseTerms>,
    shown: Shown,
    frames: Frames,
    id: String,
    created_ms: u64,
    /// Whether its first record is there.
    created: bool,
    progress: Progress,
    /// How its run ended, and when.
    ended: Option<(Box<Outcome>, u64)>,
    /// How many items have begun.
    outputs: u32,
    done: Vec<Done>,
    open: Option<OpenText>,
    calls: Vec<OpenCall>,
    /// The calls that were approved.
    approved: Vec<CallId>,
    step: u32,
    /// How many texts the step has so far.
    blocks: u32,
    /// Whether text of the step went out.
    text_out: bool,
    /// How often the reader heard nothing for a while, in a row.
    silences: u8,
}

/// How far a response came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    NotBegun,
    Queued,
    Begun,
    Ended,
    /// Its client has continued the run.
    Over,
}

/// An item that is whole.
#[derive(Debug)]
struct Done {
    index: u32,
    /// The step that it goes with, should that become void.
    step: Option<u32>,
    json: Box<RawValue>,
}

/// A call that the server makes.
#[derive(Debug)]
struct OpenCall {
    index: u32,
    call: ToolCall,
}

#[derive(Serialize)]
struct WithResponse<'a> {
    response: ResponseObject<'a>,
}

#[derive(Serialize)]
struct WithItem<T> {
    output_index: u32,
    item: T,
}

/// A frame about an item.
#[derive(Serialize)]
struct About<'a, T> {
    item_id: &'a str,
    output_index: u32,
    #[serde(flatten)]
    more: T,
}

/// Nothing more.
#[derive(Serialize)]
struct Nothing {}

impl ResponseEvents {
    /// An encoder for a run's responses: `terms` are those of the request that began it, or, where the records begin with
    /// another request, of that.
    pub fn new(names: RunNames, terms: Arc<ResponseTerms>, shown: Shown) -> Self {
        Self(Box::new(State {
            id: id::response(&names.id, names.leg),
            created_ms: names.created_ms,
            created: false,
            frames: Frames::new(shown.from),
            names,
            terms,
            shown,
            progress: Progress::NotBegun,
            ended: None,
            outputs: 0,
            done: Vec::new(),
            open: None,
            calls: Vec::new(),
            approved: Vec::new(),
            step: 0,
            blocks: 0,
            text_out: false,
            silences: 0,
        }))
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
            self.0.frames.write_keepalive(out);
        }
    }

    fn break_off(&mut self, error: ErrorObject, out: &mut BytesMut) {
        self.0.write_error(error.code, error.r#type, &error.message, out);
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
        match &record.event {
            Event::RunQueued => self.begin(record.at_ms, true, out),
            Event::RunStarted | Event::RunResumed { leg: Some(_) } => self.begin(record.at_ms, false, out),
            event => {
                if self.progress == Progress::NotBegun && !begins_elsewhere(event) {
                    self.begin(record.at_ms, false, out);
                }
                self.go_on(event, record.at_ms, out);
            }
        }
    }

    /// Whether the records are of the response that is shown.
    fn is_shown(&self) -> bool {
        self.shown.leg.is_none_or(|leg| leg == self.names.leg) && self.progress != Progress::Over
    }

    /// Another request of the client begins the next response.
    fn turn_to(&mut self, leg: u32, terms: Option<&Arc<ResponseTerms>>) {
        if self.shown.leg.is_some_and(|shown| leg > shown) {
            self.progress = Progress::Over;
            return;
        }
        if let Some(terms) = terms {
            self.terms = terms.clone();
        }
        self.id = id::response(&self.names.id, leg);
        self.created = false;
        self.frames.restart();
        (self.progress, self.ended, self.outputs) = (Progress::NotBegun, None, 0);
        self.done.clear();
        self.calls.clear();
        (self.open, self.step, self.blocks, self.text_out) = (None, 0, 0, false);
    }

    fn begin(&mut self, at_ms: u64, waits: bool, out: &mut BytesMut) {
        if self.progress == Progress::NotBegun {
            (self.created_ms, self.created) = (at_ms, true);
            self.progress = if waits { Progress::Queued } else { Progress::Begun };
            self.write_response("response.created", out);
            if waits {
                return self.write_response("response.queued", out);
            }
        }
        self.progress = Progress::Begun;
        self.write_response("response.in_progress", out);
    }

    fn go_on(&mut self, event: &Event, at_ms: u64, out: &mut BytesMut) {
        match event {
            Event::StepStarted { step, .. } => self.begin_step(*step, out),
            Event::ThinkingDelta { step, text } => self.say(*step, said::Kind::Reasoning, text, out),
            Event::TextDelta { step, text } => self.say(*step, said::Kind::Text, text, out),
            Event::RefusalDelta { step, text } => self.say(*step, said::Kind::Refusal, text, out),
            Event::StepDiscarded { step, .. } => self.discard(*step, out),
            Event::ToolStarted { call, .. } => self.begin_call(call, out),
            Event::ToolFinished { call_id, outcome, .. } => self.end_call(call_id, outcome, out),
            Event::RunFinished(outcome) if !outcome.stays_open => self.finish(outcome, at_ms, out),
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

    fn begin_step(&mut self, step: u32, out: &mut BytesMut) {
        self.close_text(ItemStatus::Completed, Some(Phase::Commentary), out);
        (self.step, self.blocks, self.text_out) = (step, 0, false);
    }

    /// What was said in a step is void.
    fn discard(&mut self, step: u32, out: &mut BytesMut) {
        self.close_text(ItemStatus::Incomplete, None, out);
        self.done.retain(|done| done.step != Some(step));
        self.text_out = false;
    }

    fn begin_call(&mut self, call: &ToolCall, out: &mut BytesMut) {
        if self.calls.iter().any(|open| open.call.id == call.id) {
            return;
        }
        self.close_text(ItemStatus::Completed, Some(Phase::Commentary), out);
        let output_index = self.next_output();
        let item = McpCall::begun(call, self.approved.contains(&call.id));
        let item_id = item.id.clone();
        let about = |more| About { item_id: &item_id, output_index, more };
        let frames = &mut self.frames;
        let added = OutputItem::McpCall(item);
        frames.write("response.output_item.added", || WithItem { output_index, item: &added }, out);
        frames.write("response.mcp_call.in_progress", || about(Nothing {}), out);
        self.write_arguments(CallOf::Server, &item_id, output_index, &call.arguments, out);
        self.calls.push(OpenCall { index: output_index, call: call.clone() });
    }

    fn end_call(&mut self, id: &CallId, outcome: &ToolOutcome, out: &mut BytesMut) {
        // A call that was never made has no item; what was said before it is no answer all the same.
        self.close_text(ItemStatus::Completed, Some(Phase::Commentary), out);
        let Some(place) = self.calls.iter().position(|open| open.call.id == *id) else { return };
        let OpenCall { index, call } = self.calls.remove(place);
        self.write_ended_call(index, &call, Some(outcome), out);
    }

    fn write_ended_call(&mut self, index: u32, call: &ToolCall, outcome: Option<&ToolOutcome>, out: &mut BytesMut) {
        let item = McpCall::begun(call, self.approved.contains(&call.id)).ended(call, outcome);
        let kind = match item.status {
            ItemStatus::Completed => Some("response.mcp_call.completed"),
            ItemStatus::Failed => Some("response.mcp_call.failed"),
            ItemStatus::InProgress | ItemStatus::Incomplete => None,
        };
        if let Some(kind) = kind {
            let about = || About { item_id: &item.id, output_index: index, more: Nothing {} };
            self.frames.write(kind, about, out);
        }
        self.write_done(index, None, &OutputItem::McpCall(item), out);
    }

    /// Ends an item, which is of the output from now on.
    fn write_done(&mut self, output_index: u32, step: Option<u32>, item: &OutputItem<'_>, out: &mut BytesMut) {
        self.frames.write("response.output_item.done", || WithItem { output_index, item }, out);
        self.done.push(Done { index: output_index, step, json: kept(item) });
    }

    fn write_response(&mut self, kind: &str, out: &mut BytesMut) {
        let mut frames = std::mem::replace(&mut self.frames, Frames::new(None));
        let with_agent = self.shown.with_agent;
        frames.write(kind, || WithResponse { response: self.object(with_agent) }, out);
        self.frames = frames;
    }

    fn next_output(&mut self) -> u32 {
        self.outputs += 1;
        self.outputs - 1
    }

    /// The items that are whole, in the order in which they began.
    fn output(&self) -> Vec<&RawValue> {
        let mut done: Vec<_> = self.done.iter().collect();
        done.sort_by_key(|done| done.index);
        done.into_iter().map(|done| &*done.json).collect()
    }

    fn object(&self, with_agent: bool) -> ResponseObject<'_> {
        let begun = ResponseObject::begun(&self.id, &self.names.model, self.names.session.as_ref(), &self.terms);
        let mut object = ResponseObject { created_at: self.created_ms / 1000, output: self.output(), ..begun };
        if self.progress == Progress::Queued {
            object.status = "queued";
        }
        let Some((outcome, ended_ms)) = &self.ended else { return object };
        let end = ending::end(outcome);
        object.status = end.status;
        object.completed_at = (end.status == "completed").then_some(ended_ms / 1000);
        object.incomplete_details = end.incomplete;
        object.error = ending::failure(outcome);
        object.usage = Some(ResponseUsage::from(outcome.leg_usage()));
        let agent = || {
            let (run, session) = (&self.names.id, self.names.session.as_ref());
            AgentObject::new(run, session, outcome, self.shown.with_report)
        };
        object.agent = with_agent.then(agent);
        object
    }
}

/// Whether an event may stand before the first of a response.
fn begins_elsewhere(event: &Event) -> bool {
    matches!(event, Event::ApprovalResolved(_) | Event::ApprovalRequired(_) | Event::RunResumed { .. })
}
