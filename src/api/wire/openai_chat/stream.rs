//! The stream of chunks.
//!
//! The stream has nothing but chunks: no event names, no frames of other kinds. With the extension, every other event
//! is one more field of an ordinary chunk, which clients pass on or ignore.
//!
//! The last frame of an event has the event's number. A stream that is cut within an event is resumed after the event
//! before it. So a client that resumes drops the frames that it got after the last number.

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::json;

use crate::api::wire::agent::events::{NativeEvent, native};
use crate::api::wire::agent::object::AgentObject;
use crate::api::wire::chunk::{ChunkTemplate, Said, completion_id};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::openai_chat::completion::finish_reason;
use crate::api::wire::openai_error::ErrorBody;
use crate::api::wire::usage::UsageObject;
use crate::api::wire::{Encoder, RunNames, write_id, write_json, write_json_line};
use crate::llm::openai::messages::CallJson;
use crate::types::question::asked;
use crate::types::{Event, Outcome, Record, RunStatus};

/// What ends a frame. JSON holds no line breaks, so it stands nowhere else.
const FRAME_END: &[u8] = b"\n\n";
/// Said where text that went out became void.
const BROKEN_STREAM: &str = "The answer broke off. The text that was sent so far is void.";

/// Writes chunks.
#[derive(Debug)]
pub struct ChatChunks {
    names: RunNames,
    template: ChunkTemplate,
    include_usage: bool,
    extension: bool,
    with_report: bool,
    said_role: bool,
    /// Whether text of the current step went out: if that becomes void, the stream has failed.
    text_out: bool,
    failed: bool,
    /// The steps whose text is not written: they became void before the stream began.
    void: Vec<u32>,
    /// Whether the answer ended. If the run continues after that, its client has answered and the next answer begins.
    ended: bool,
}

impl ChatChunks {
    /// An encoder for one run.
    pub fn new(names: RunNames, include_usage: bool, extension: bool, with_report: bool) -> Self {
        let template = ChunkTemplate::new(&names, include_usage);
        Self {
            names,
            template,
            include_usage,
            extension,
            with_report,
            said_role: false,
            text_out: false,
            failed: false,
            void: Vec::new(),
            ended: false,
        }
    }

    /// The same for a reader that has seen nothing of these steps, which became void.
    #[must_use]
    pub fn without(self, steps: impl IntoIterator<Item = u32>) -> Self {
        Self { void: steps.into_iter().collect(), ..self }
    }

    /// Says whose words follow, once.
    fn say_role(&mut self, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.said_role, true) {
            self.template.write(&json!({"role": "assistant", "content": ""}), None, b"", out);
        }
    }

    fn write_frames(&mut self, record: &Record, out: &mut BytesMut) {
        self.follow(record);
        if self.failed {
            return;
        }
        self.say_role(out);
        match &record.event {
            Event::TextDelta { step, .. } | Event::RefusalDelta { step, .. } if self.void.contains(step) => {}
            Event::TextDelta { step, text } => self.say(*step, Said::Text(text), out),
            Event::RefusalDelta { step, text } => self.say(*step, Said::Refusal(text), out),
            // With the extension the client is told which step it is to forget.
            Event::StepDiscarded { .. } if self.text_out && !self.extension => {
                self.fail(WireError::new(ErrorCode::UpstreamFailed, BROKEN_STREAM), out);
            }
            Event::StepStarted { .. } => self.begin_step(record, out),
            Event::RunFinished(outcome) if outcome.stays_open => self.extend(record, out),
            Event::RunFinished(outcome) => {
                self.extend(record, out);
                self.finish(outcome, out);
            }
            Event::RunQueued
            | Event::RunStarted
            | Event::RunResumed { .. }
            | Event::ThinkingDelta { .. }
            | Event::ToolArgumentsDelta { .. }
            | Event::ProviderRetry { .. }
            | Event::ProviderFallback(_)
            | Event::HedgeStarted(_)
            | Event::HedgeEnded(_)
            | Event::StepDiscarded { .. }
            | Event::Guarded(_)
            | Event::Context(_)
            | Event::BudgetWarning { .. }
            | Event::ApprovalRequired(_)
            | Event::ApprovalResolved(_)
            | Event::LoopGuardTriggered(_)
            | Event::PlanCreated { .. }
            | Event::ReflectionStarted { .. }
            | Event::ToolStarted { .. }
            | Event::ToolPending(_)
            | Event::Delegated(_)
            | Event::Handoff(_)
            | Event::QuestionAsked(_)
            | Event::QuestionResolved(_)
            | Event::ToolProgress { .. }
            | Event::HookRan(_)
            | Event::ToolFinished { .. }
            | Event::StepCompleted { .. } => self.extend(record, out),
            Event::TurnFinished { .. }
            | Event::CallAllowed { .. }
            | Event::ToolAnswered { .. }
            | Event::StartHooked
            | Event::StopRequested { .. }
            | Event::StopAfterStep
            | Event::CommandsApplied { .. }
            | Event::HandedOff => {}
        }
    }

    fn begin_step(&mut self, record: &Record, out: &mut BytesMut) {
        self.text_out = false;
        self.extend(record, out);
    }

    /// Notes what the record says of the response and of the run that it is of.
    fn follow(&mut self, record: &Record) {
        if self.ended {
            (self.said_role, self.text_out, self.failed, self.ended) = (false, false, false, false);
        }
        self.ended = matches!(&record.event, Event::RunFinished(outcome) if !outcome.stays_open);
        if self.names.follow(&record.event) {
            self.template = ChunkTemplate::new(&self.names, self.include_usage);
        }
    }

    fn say(&mut self, step: u32, said: Said<'_>, out: &mut BytesMut) {
        self.text_out = true;
        out.put_slice(b"data: ");
        self.template.write_text(said, Some(step).filter(|_| self.extension), out);
        out.put_slice(b"\n\n");
    }

    fn extend(&self, record: &Record, out: &mut BytesMut) {
        if let Some(event) = native(record, &self.names, self.with_report).filter(|_| self.extension) {
            let mut more = BytesMut::from(&br#","loopgate":"#[..]);
            write_json::<NativeEvent<'_>>(&event, &mut more);
            self.template.write(&json!({"content": ""}), None, &more, out);
        }
    }

    fn fail(&mut self, error: WireError, out: &mut BytesMut) {
        self.failed = true;
        out.put_slice(b"data: ");
        write_json(&ErrorBody::from(error), out);
        out.put_slice(b"\n\n");
    }

    fn finish(&mut self, outcome: &Outcome, out: &mut BytesMut) {
        if let Some(error) = &outcome.error {
            return self.fail(error.into(), out);
        }
        let says_why = outcome.status() == RunStatus::Incomplete || outcome.reason.is_told_in_words();
        let asked = if self.text_out { asked(outcome) } else { None };
        // Text that was held back until its step would be known to be the last, or what is asked behind text that was not.
        let held = asked
            .as_deref()
            .or(Some(&*outcome.output_text).filter(|text| says_why && !self.text_out && !text.is_empty()));
        if let Some(text) = held {
            out.put_slice(b"data: ");
            self.template.write_text(Said::Text(text), None, out);
            out.put_slice(b"\n\n");
        }
        let clients = outcome.required_calls.iter().filter(|_| !outcome.reason.is_told_in_words());
        for (index, required) in clients.enumerate() {
            let call = IndexedCall { index, call: (&required.call).into() };
            self.template.write(&json!({"tool_calls": [call]}), None, b"", out);
        }
        let mut more = BytesMut::from(&br#","agent":"#[..]);
        let agent = AgentObject::new(&self.names.id, self.names.session.as_ref(), outcome, self.with_report);
        write_json_line(&agent, &mut more);
        self.template.write(&json!({}), finish_reason(outcome.reason), &more, out);
        if self.include_usage {
            let usage = UsageChunk {
                id: completion_id(&self.names),
                object: "chat.completion.chunk",
                created: self.names.created_ms / 1000,
                model: &self.names.model,
                choices: [],
                usage: outcome.leg_usage().into(),
            };
            out.put_slice(b"data: ");
            write_json(&usage, out);
            out.put_slice(b"\n\n");
        }
    }
}

impl Encoder for ChatChunks {
    const READERS_COME_BACK: bool = false;

    fn encode(&mut self, record: &Record, out: &mut BytesMut) {
        let begin = out.len();
        self.write_frames(record, out);
        number_last_frame(record.seq, begin, out);
    }
}

/// Numbers the last of the frames that begin at `begin`, if there are any.
fn number_last_frame(seq: u64, begin: usize, out: &mut BytesMut) {
    let Some(end) = out.len().checked_sub(FRAME_END.len()).filter(|end| *end > begin) else { return };
    let before = memchr::memmem::rfind(&out[begin..end], FRAME_END);
    let last = before.map_or(begin, |at| begin + at + FRAME_END.len());
    let length = out.len();
    write_id(seq, out);
    let written = out.len() - length;
    out[last..].rotate_right(written);
}

#[derive(Serialize)]
struct IndexedCall<'a> {
    index: usize,
    #[serde(flatten)]
    call: CallJson<'a>,
}

#[derive(Serialize)]
struct UsageChunk<'a> {
    id: String,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [(); 0],
    usage: UsageObject,
}
