//! What is known of a message after the records of its run so far, and how its blocks are written.

use bytes::BytesMut;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::text::OpenText;
use crate::api::wire::RunNames;
use crate::api::wire::agent::object::AgentObject;
use crate::api::wire::messages::error::{MessagesError, MessagesErrorBody};
use crate::api::wire::messages::frame::{DeltaHead, write, write_whole};
use crate::api::wire::messages::object::{MessageObject, MessageUsage, OutBlock, input_of, no_input};
use crate::api::wire::messages::stop_reason::stop_reason;
use crate::api::wire::responses::id;
use crate::types::{CallId, Outcome, ToolCall};

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

/// What a fold knows of a message.
#[derive(Debug)]
pub(super) struct State {
    pub(super) names: RunNames,
    pub(super) shown: Shown,
    pub(super) progress: Progress,
    /// Whether the run waits on with the call behind which the message begins.
    pub(super) is_paused: bool,
    pub(super) id: String,
    /// The index of the next block.
    pub(super) index: u32,
    /// The blocks that are whole, each with the step that it goes with should that become void.
    pub(super) blocks: Vec<(Option<u32>, Box<RawValue>)>,
    pub(super) open: Option<OpenText>,
    pub(super) calls: Vec<ToolCall>,
    /// Whether the message has a call of the server's tools.
    pub(super) has_called: bool,
    /// What the model call under way takes in, by estimate.
    pub(super) estimate: u64,
    pub(super) step: u32,
    /// Whether text of the step went out.
    pub(super) text_out: bool,
    /// Steps that are known to be void: nothing of them is shown.
    pub(super) void: Vec<u32>,
    pub(super) ended: Option<Box<Outcome>>,
}

/// How far a message came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    NotBegun,
    Begun,
    /// Text is void that a stream cannot take back. Whether the run goes on is not known yet.
    Voided,
    Ended,
    /// The stream has ended with an error, and its run goes on.
    BrokenOff,
}

#[derive(Serialize)]
struct WithMessage<'a> {
    message: MessageObject<'a>,
}

/// A block that begins.
#[derive(Serialize)]
pub(super) struct BlockStart<'a> {
    pub(super) index: u32,
    pub(super) content_block: &'a OutBlock<'a>,
}

#[derive(Serialize)]
pub(super) struct BlockStop {
    pub(super) index: u32,
}

impl State {
    pub(super) fn new(names: RunNames, shown: Shown) -> Self {
        Self {
            id: id::message(&names.id, names.leg),
            names,
            shown,
            progress: Progress::NotBegun,
            is_paused: false,
            index: 0,
            blocks: Vec::new(),
            open: None,
            calls: Vec::new(),
            has_called: false,
            estimate: 0,
            step: 0,
            text_out: false,
            void: Vec::new(),
            ended: None,
        }
    }

    /// Begins the message, with the estimate of its first model call.
    pub(super) fn begin(&mut self, out: &mut BytesMut) {
        if self.progress == Progress::NotBegun {
            self.progress = Progress::Begun;
            if self.shown.frames {
                write("message_start", WithMessage { message: self.object() }, out);
            }
        }
    }

    pub(super) fn write_server_call(&mut self, call: &ToolCall, out: &mut BytesMut) {
        let input = input_of(call);
        if self.shown.frames && self.shown.input_by_deltas {
            self.write_by_delta(&OutBlock::of_server(call, &no_input()), input.get(), out);
        } else {
            self.write_block(&OutBlock::of_server(call, &input), out);
        }
    }

    /// Writes a block that is whole when it begins.
    pub(super) fn write_block(&mut self, block: &OutBlock<'_>, out: &mut BytesMut) {
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
    pub(super) fn write_by_delta(&mut self, block: &OutBlock<'_>, input: &str, out: &mut BytesMut) {
        self.close_text(out);
        self.begin(out);
        let index = self.next_index();
        write("content_block_start", BlockStart { index, content_block: block }, out);
        DeltaHead::new(index, "input_json_delta", "partial_json").write(input, out);
        write("content_block_stop", BlockStop { index }, out);
    }

    pub(super) fn next_index(&mut self) -> u32 {
        self.index += 1;
        self.index - 1
    }

    pub(super) fn keep(&mut self, step: Option<u32>, block: &OutBlock<'_>) {
        self.blocks.push((step, to_raw_value(block).expect("blocks hold only strings and valid raw JSON")));
    }

    pub(super) fn object(&self) -> MessageObject<'_> {
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

    pub(super) fn write_error(&self, kind: &'static str, code: &str, message: &str, out: &mut BytesMut) {
        if self.shown.frames {
            let error = MessagesError { r#type: kind, message, code, param: None, run_id: None };
            write_whole("error", &MessagesErrorBody::new(error, self.shown.request_id.as_deref()), out);
        }
    }
}
