//! What is known of a run's responses after its records so far.

use std::cell::LazyCell;
use std::sync::Arc;

use bytes::BytesMut;
use serde_json::value::{RawValue, to_raw_value};

use super::bodies::{WithItem, WithResponse};
use super::ending;
use super::text::OpenText;
use crate::api::wire::RunNames;
use crate::api::wire::agent::object::AgentObject;
use crate::api::wire::responses::frame::Frames;
use crate::api::wire::responses::id;
use crate::api::wire::responses::object::{ResponseObject, ResponseUsage};
use crate::api::wire::responses::output::{ItemStatus, OutputItem, Phase, kept};
use crate::types::response::ResponseTerms;
use crate::types::{CallId, Outcome, ToolCall};

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

/// What a fold knows of a run's responses.
#[derive(Debug)]
pub(super) struct State {
    pub(super) names: RunNames,
    pub(super) terms: Arc<ResponseTerms>,
    pub(super) shown: Shown,
    pub(super) frames: Frames,
    pub(super) id: String,
    pub(super) created_ms: u64,
    /// Whether its first record is there.
    pub(super) created: bool,
    pub(super) progress: Progress,
    /// How its run ended, and when.
    pub(super) ended: Option<(Box<Outcome>, u64)>,
    /// How many items have begun.
    pub(super) outputs: u32,
    pub(super) done: Vec<Done>,
    pub(super) open: Option<OpenText>,
    pub(super) calls: Vec<OpenCall>,
    /// The calls that were approved.
    pub(super) approved: Vec<CallId>,
    pub(super) step: u32,
    /// How many texts the step has so far.
    pub(super) blocks: u32,
    /// Whether text of the step went out.
    pub(super) text_out: bool,
    /// How often the reader heard nothing for a while, in a row.
    pub(super) silences: u8,
}

/// How far a response came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    NotBegun,
    Queued,
    Begun,
    Ended,
    /// Its client has continued the run.
    Over,
}

/// An item that is whole.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) index: u32,
    /// The step that it goes with, should that become void.
    pub(super) step: Option<u32>,
    pub(super) json: Box<RawValue>,
}

/// A call that the server makes.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) index: u32,
    pub(super) call: ToolCall,
}

impl State {
    /// Of a run of which nothing happened yet.
    pub(super) fn new(names: RunNames, terms: Arc<ResponseTerms>, shown: Shown) -> Self {
        Self {
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
        }
    }

    /// Whether the records are of the response that is shown.
    pub(super) fn is_shown(&self) -> bool {
        self.shown.leg.is_none_or(|leg| leg == self.names.leg) && self.progress != Progress::Over
    }

    /// Another request of the client begins the next response.
    pub(super) fn turn_to(&mut self, leg: u32, terms: Option<&Arc<ResponseTerms>>) {
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

    pub(super) fn begin(&mut self, at_ms: u64, waits: bool, out: &mut BytesMut) {
        if self.progress == Progress::NotBegun {
            (self.created_ms, self.created) = (at_ms, true);
            self.progress = if waits { Progress::Queued } else { Progress::Begun };
            // Both show the same object.
            let then = if waits { "response.queued" } else { "response.in_progress" };
            return self.write_response(&["response.created", then], out);
        }
        self.progress = Progress::Begun;
        self.write_response(&["response.in_progress"], out);
    }

    pub(super) fn begin_step(&mut self, step: u32, out: &mut BytesMut) {
        self.close_text(ItemStatus::Completed, Some(Phase::Commentary), out);
        (self.step, self.blocks, self.text_out) = (step, 0, false);
    }

    /// What was said in a step is void.
    pub(super) fn discard(&mut self, step: u32, out: &mut BytesMut) {
        self.close_text(ItemStatus::Incomplete, None, out);
        self.done.retain(|done| done.step != Some(step));
        self.text_out = false;
    }

    /// Ends an item, which is of the output from now on.
    pub(super) fn write_done(
        &mut self,
        output_index: u32,
        step: Option<u32>,
        item: &OutputItem<'_>,
        out: &mut BytesMut,
    ) {
        self.frames.write("response.output_item.done", || WithItem { output_index, item }, out);
        self.done.push(Done { index: output_index, step, json: kept(item) });
    }

    /// Writes frames of these kinds that show the response as it is.
    pub(super) fn write_response(&mut self, kinds: &[&str], out: &mut BytesMut) {
        let mut frames = std::mem::replace(&mut self.frames, Frames::new(None));
        let object = LazyCell::new(|| {
            to_raw_value(&self.object(self.shown.with_agent))
                .expect("it holds only strings, numbers and valid raw JSON")
        });
        for kind in kinds {
            frames.write(kind, || WithResponse { response: &object }, out);
        }
        drop(object);
        self.frames = frames;
    }

    pub(super) fn next_output(&mut self) -> u32 {
        self.outputs += 1;
        self.outputs - 1
    }

    /// The items that are whole, in the order in which they began.
    pub(super) fn output(&self) -> Vec<&RawValue> {
        let mut done: Vec<_> = self.done.iter().collect();
        done.sort_by_key(|done| done.index);
        done.into_iter().map(|done| &*done.json).collect()
    }

    pub(super) fn object(&self, with_agent: bool) -> ResponseObject<'_> {
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
