//! OpenAI's chat completion: the stream of chunks, and the one object.
//!
//! The stream holds nothing else: no event names, no foreign frames. With the extension, every other
//! event rides on an ordinary chunk as one more field, which clients pass on or ignore.
//!
//! The last frame of an event bears the event's number. A stream that is cut within an event is resumed
//! after the one before, so whoever resumes drops the frames that came without a number since.

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::api::error::{ApiError, ErrorBody};
use crate::api::wire::agent_events::{NativeEvent, native};
use crate::api::wire::agent_object::{AgentObject, UsageObject};
use crate::api::wire::{Encoder, RunNames, write_id, write_json};
use crate::types::message::CallJson;
use crate::types::{Event, Outcome, Record, RunStatus, StopReason};

/// What ends a frame. JSON holds no line breaks, so it stands nowhere else.
const FRAME_END: &[u8] = b"\n\n";

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
    /// Whether the answer ended: if the run goes on, its client answered, and another one begins.
    ended: bool,
}

/// The parts of a chunk that are the same in all of a run's.
#[derive(Debug)]
pub struct ChunkTemplate {
    /// Everything up to the delta.
    head: String,
    /// What closes a chunk whose last member is `choices`.
    tail: &'static str,
}

impl ChunkTemplate {
    /// For one run; with `usage_member`, each chunk bears `"usage":null`, as OpenAI's do when usage is
    /// asked for.
    pub fn new(names: &RunNames, usage_member: bool) -> Self {
        let model = serde_json::to_string(&names.model).expect("a string always encodes");
        let head = format!(
            r#"{{"id":"{}","object":"chat.completion.chunk","created":{},"model":{model},"choices":[{{"index":0,"delta":"#,
            completion_id(names),
            names.created_ms / 1000,
        );
        Self { head, tail: if usage_member { r#","usage":null"# } else { "" } }
    }

    /// A chunk of text; with `step`, it says which step the text belongs to.
    pub fn write_text(&self, text: &str, step: Option<u32>, out: &mut BytesMut) {
        out.put_slice(self.head.as_bytes());
        out.put_slice(br#"{"content":"#);
        write_json(text, out);
        out.put_slice(br#"},"finish_reason":null}]"#);
        out.put_slice(self.tail.as_bytes());
        if let Some(step) = step {
            out.put_slice(br#","loopgate":{"step":"#);
            write_json(&step, out);
            out.put_u8(b'}');
        }
        out.put_u8(b'}');
    }

    /// A chunk with this delta and finish reason, and further members of the chunk, each with its comma.
    fn write<D: Serialize + ?Sized>(&self, delta: &D, finish_reason: Option<&str>, more: &[u8], out: &mut BytesMut) {
        out.put_slice(b"data: ");
        out.put_slice(self.head.as_bytes());
        write_json(delta, out);
        out.put_slice(br#","finish_reason":"#);
        write_json(&finish_reason, out);
        out.put_slice(b"}]");
        out.put_slice(self.tail.as_bytes());
        out.put_slice(more);
        out.put_slice(b"}\n\n");
    }
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
            ended: false,
        }
    }

    fn write_frames(&mut self, record: &Record, out: &mut BytesMut) {
        if self.ended {
            (self.said_role, self.text_out, self.failed, self.ended) = (false, false, false, false);
        }
        self.ended = matches!(record.event, Event::RunFinished(_));
        if self.failed {
            return;
        }
        if !self.said_role {
            self.said_role = true;
            self.template.write(&json!({"role": "assistant", "content": ""}), None, b"", out);
        }
        match &record.event {
            Event::TextDelta { step, text } => {
                self.text_out = true;
                out.put_slice(b"data: ");
                self.template.write_text(text, Some(*step).filter(|_| self.extension), out);
                out.put_slice(b"\n\n");
            }
            Event::StepDiscarded { .. } if self.text_out => {
                self.fail(&ApiError::broken_stream(), out);
            }
            Event::StepStarted { .. } => {
                self.text_out = false;
                self.extend(record, out);
            }
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
            | Event::StepDiscarded { .. }
            | Event::BudgetWarning { .. }
            | Event::ToolStarted { .. }
            | Event::ToolFinished { .. }
            | Event::StepCompleted { .. } => self.extend(record, out),
            Event::TurnFinished { .. } | Event::StopRequested { .. } | Event::MailRead { .. } => {}
        }
    }

    fn extend(&self, record: &Record, out: &mut BytesMut) {
        if let Some(event) = native(record, &self.names, self.with_report).filter(|_| self.extension) {
            let mut more = BytesMut::from(&br#","loopgate":"#[..]);
            write_json::<NativeEvent<'_>>(&event, &mut more);
            self.template.write(&json!({"content": ""}), None, &more, out);
        }
    }

    fn fail(&mut self, error: &ApiError, out: &mut BytesMut) {
        self.failed = true;
        out.put_slice(b"data: ");
        write_json(&ErrorBody { error: error.object().clone() }, out);
        out.put_slice(b"\n\n");
    }

    fn finish(&mut self, outcome: &Outcome, out: &mut BytesMut) {
        if let Some(error) = &outcome.error {
            return self.fail(&error.into(), out);
        }
        if outcome.status() == RunStatus::Incomplete && !self.text_out && !outcome.output_text.is_empty() {
            // A run that a limit ended always says something, if only which limit.
            out.put_slice(b"data: ");
            self.template.write_text(&outcome.output_text, None, out);
            out.put_slice(b"\n\n");
        }
        for (index, call) in outcome.required_calls.iter().enumerate() {
            let call = IndexedCall { index, call: call.into() };
            self.template.write(&json!({"tool_calls": [call]}), None, b"", out);
        }
        let mut more = BytesMut::from(&br#","agent":"#[..]);
        let agent = AgentObject::new(&self.names.id, self.names.session.as_ref(), outcome, self.with_report);
        write_json(&agent, &mut more);
        self.template.write(&json!({}), finish_reason(outcome.reason), &more, out);
        if self.include_usage {
            let usage = UsageChunk {
                id: completion_id(&self.names),
                object: "chat.completion.chunk",
                created: self.names.created_ms / 1000,
                model: &self.names.model,
                choices: [],
                usage: (&outcome.usage).into(),
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

/// A whole chat completion.
#[derive(Debug, Serialize, ToSchema)]
pub struct Completion<'a> {
    /// Shares the run's suffix.
    #[schema(example = "chatcmpl-019a0000000070008000000000000000")]
    id: String,
    /// `chat.completion`.
    object: &'static str,
    /// Unix seconds.
    created: u64,
    /// The model or agent as it was asked for.
    model: &'a str,
    /// One.
    choices: [Choice<'a>; 1],
    /// Tokens of all steps.
    usage: UsageObject,
    /// How the run ended.
    agent: AgentObject<'a>,
}

/// The answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct Choice<'a> {
    /// 0.
    index: u32,
    /// The assistant's message.
    message: AssistantMessage<'a>,
    /// Always null.
    logprobs: Option<bool>,
    /// `stop`, `length`, `tool_calls` or `content_filter`.
    finish_reason: Option<&'static str>,
}

/// The assistant's message.
#[derive(Debug, Serialize, ToSchema)]
pub struct AssistantMessage<'a> {
    /// `assistant`.
    role: &'static str,
    /// The final text; null where there are only calls.
    content: Option<&'a str>,
    /// Always null.
    refusal: Option<&'a str>,
    /// The client's calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    tool_calls: Vec<CallJson<'a>>,
}

/// The one object of a run that ended so.
pub fn completion<'a>(names: &'a RunNames, outcome: &'a Outcome, with_report: bool) -> Completion<'a> {
    let calls: Vec<CallJson<'_>> = outcome.required_calls.iter().map(CallJson::from).collect();
    let content = Some(outcome.output_text.as_str()).filter(|text| !text.is_empty() || calls.is_empty());
    let message = AssistantMessage { role: "assistant", content, refusal: None, tool_calls: calls };
    let finish_reason = finish_reason(outcome.reason);
    Completion {
        id: completion_id(names),
        object: "chat.completion",
        created: names.created_ms / 1000,
        model: &names.model,
        choices: [Choice { index: 0, message, logprobs: None, finish_reason }],
        usage: (&outcome.usage).into(),
        agent: AgentObject::new(&names.id, names.session.as_ref(), outcome, with_report),
    }
}

/// Why the answer ended, in OpenAI's words; a failed run has no answer.
fn finish_reason(reason: StopReason) -> Option<&'static str> {
    match reason {
        StopReason::Done | StopReason::Cancelled => Some("stop"),
        StopReason::Length
        | StopReason::MaxIterations
        | StopReason::TokenBudget
        | StopReason::CostBudget
        | StopReason::Timeout => Some("length"),
        StopReason::ClientTools => Some("tool_calls"),
        StopReason::ProviderError
        | StopReason::EmptyResponse
        | StopReason::OutcomeUnknown
        | StopReason::CrashLoop
        | StopReason::StoreLostState
        | StopReason::InternalError => None,
    }
}

fn completion_id(names: &RunNames) -> String {
    format!("chatcmpl-{}", names.id.suffix())
}
