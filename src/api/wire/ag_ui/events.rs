//! The events of a run.

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::json;

use crate::api::wire::agent::events::native;
use crate::api::wire::openai_error::ErrorObject;
use crate::api::wire::responses::id;
use crate::api::wire::ui::act::{Act, Dialect, Ending, Kind};
use crate::api::wire::{RunNames, write_json_line};
use crate::types::outcome::RequiredCall;
use crate::types::{Outcome, Record, RunStatus, StopReason, ToolCall, Usage};

/// Writes the events of AG-UI.
#[derive(Debug)]
pub struct AgUi {
    /// The thread, as its client calls it.
    pub thread: String,
    /// The run, as its client calls it.
    pub run: String,
}

impl AgUi {
    /// For a client that calls nothing: the thread is the session, or the run itself.
    pub fn of(names: &RunNames) -> Self {
        let run = names.id.to_string();
        Self { thread: names.session.as_ref().map_or_else(|| run.clone(), ToString::to_string), run }
    }
}

/// An event.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
enum Event<'a> {
    RunStarted {
        thread_id: &'a str,
        run_id: &'a str,
    },
    StepStarted {
        step_name: String,
    },
    StepFinished {
        step_name: String,
    },
    TextMessageStart {
        message_id: &'a str,
        role: &'static str,
    },
    TextMessageContent {
        message_id: &'a str,
        delta: &'a str,
    },
    TextMessageEnd {
        message_id: &'a str,
    },
    ReasoningStart {
        message_id: &'a str,
    },
    ReasoningMessageStart {
        message_id: &'a str,
        role: &'static str,
    },
    ReasoningMessageContent {
        message_id: &'a str,
        delta: &'a str,
    },
    ReasoningMessageEnd {
        message_id: &'a str,
    },
    ReasoningEnd {
        message_id: &'a str,
    },
    ToolCallStart {
        tool_call_id: &'a str,
        tool_call_name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_message_id: Option<&'a str>,
    },
    ToolCallArgs {
        tool_call_id: &'a str,
        delta: &'a str,
    },
    ToolCallEnd {
        tool_call_id: &'a str,
    },
    ToolCallResult {
        message_id: String,
        tool_call_id: &'a str,
        role: &'static str,
        content: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<serde_json::Value>,
    },
    Custom {
        name: String,
        value: serde_json::Value,
    },
    RunFinished {
        thread_id: &'a str,
        run_id: &'a str,
        outcome: RunOutcome<'a>,
        usage: [TokenUsage<'a>; 1],
    },
    RunError {
        message: &'a str,
        code: &'a str,
    },
}

/// How a run ended, or why it waits.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
enum RunOutcome<'a> {
    Success {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pending_tool_call_ids: Vec<&'a str>,
    },
    Interrupt {
        interrupts: Vec<Interrupt<'a>>,
    },
    Cancelled,
}

/// A call that waits for an approval.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Interrupt<'a> {
    id: String,
    reason: &'static str,
    tool_call_id: &'a str,
    message: String,
    response_schema: serde_json::Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

/// What the model calls of the request took.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenUsage<'a> {
    model: &'a str,
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    reasoning_tokens: u64,
    cached_input_tokens: u64,
}

impl<'a> TokenUsage<'a> {
    fn of(usage: &Usage, model: &'a str) -> Self {
        Self {
            model,
            input_tokens: usage.prompt_tokens,
            output_tokens: usage.completion_tokens,
            total_tokens: usage.total(),
            reasoning_tokens: usage.reasoning_tokens,
            cached_input_tokens: usage.cached_tokens,
        }
    }
}

impl<'a> Interrupt<'a> {
    fn of(required: &'a RequiredCall) -> Self {
        let RequiredCall { call, reason, expires_ms } = required;
        let why = reason.as_deref().map(|why| format!(" {why}")).unwrap_or_default();
        let response_schema = json!({
            "type": "object",
            "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
            "required": ["approved"],
        });
        Self {
            id: id::of_call("mcpr", &call.id),
            reason: "tool_call",
            tool_call_id: call.id.as_str(),
            message: format!("The call of {} needs an approval.{why}", call.name),
            response_schema,
            expires_at: expires_ms.and_then(written),
        }
    }
}

/// A time, as RFC 3339 has it.
fn written(at_ms: u64) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(at_ms).ok()?);
    at.ok().map(|at| at.to_string())
}

impl Dialect for AgUi {
    const LAST_FRAME: &'static [u8] = b"";
    const UI_MESSAGE_STREAM: Option<&'static str> = None;

    fn write(&self, act: &Act<'_>, names: &RunNames, out: &mut BytesMut) {
        match act {
            Act::Begin => write(&Event::RunStarted { thread_id: &self.thread, run_id: &self.run }, out),
            Act::BeginStep(step) => write(&Event::StepStarted { step_name: step_name(*step) }, out),
            Act::EndStep(step) => write(&Event::StepFinished { step_name: step_name(*step) }, out),
            Act::BeginText(kind, id) => begin_text(*kind, id, out),
            Act::Text(Kind::Text, message_id, delta) => write(&Event::TextMessageContent { message_id, delta }, out),
            Act::Text(Kind::Thinking, message_id, delta) => {
                write(&Event::ReasoningMessageContent { message_id, delta }, out);
            }
            Act::EndText(kind, id) => end_text(*kind, id, out),
            Act::Call { call, message, .. } => write_call(call, message, out),
            // Each run of this protocol begins the calls that it ends. A client has the arguments, and would add them once more.
            Act::Recall(call, name) => {
                let tool_call_id = call.as_str();
                write(&Event::ToolCallStart { tool_call_id, tool_call_name: name, parent_message_id: None }, out);
                write(&Event::ToolCallEnd { tool_call_id }, out);
            }
            // The end of the stream asks.
            Act::AskApproval(_) => {}
            Act::Answer { call, text, ending, .. } => {
                let metadata = (*ending != Ending::Made).then(|| json!({"loopgate": {"isError": true}}));
                let (message_id, tool_call_id) = (id::of_call("result", call), call.as_str());
                write(&Event::ToolCallResult { message_id, tool_call_id, role: "tool", content: text, metadata }, out);
            }
            Act::Void { step, reason, texts } => {
                let value = json!({"step": step, "reason": reason, "messageIds": texts});
                write(&Event::Custom { name: "loopgate.step.discarded".to_owned(), value }, out);
            }
            Act::Aside(record) => write_aside(record, names, out),
            Act::End(outcome) => self.write_end(outcome, names, out),
            Act::BreakOff(error) => write(&Event::RunError { message: &error.message, code: error.code }, out),
        }
    }
}

impl AgUi {
    fn write_end(&self, outcome: &Outcome, names: &RunNames, out: &mut BytesMut) {
        if let Some(error) = &outcome.error {
            let code = ErrorObject::from(error).code;
            return write(&Event::RunError { message: &error.message, code }, out);
        }
        let calls = outcome.required_calls.iter();
        let of = if outcome.status() == RunStatus::Cancelled {
            RunOutcome::Cancelled
        } else if outcome.reason == StopReason::Approval {
            RunOutcome::Interrupt { interrupts: calls.map(Interrupt::of).collect() }
        } else {
            let is_clients = outcome.reason == StopReason::ClientTools;
            let pending = calls.filter(|_| is_clients).map(|required| required.call.id.as_str());
            RunOutcome::Success { pending_tool_call_ids: pending.collect() }
        };
        let usage = [TokenUsage::of(outcome.leg_usage(), &names.model)];
        write(&Event::RunFinished { thread_id: &self.thread, run_id: &self.run, outcome: of, usage }, out);
    }
}

fn write(event: &Event<'_>, out: &mut BytesMut) {
    out.put_slice(b"data: ");
    write_json_line(event, out);
    out.put_slice(b"\n\n");
}

fn step_name(step: u32) -> String {
    format!("step {step}")
}

fn begin_text(kind: Kind, message_id: &str, out: &mut BytesMut) {
    match kind {
        Kind::Text => write(&Event::TextMessageStart { message_id, role: "assistant" }, out),
        Kind::Thinking => {
            write(&Event::ReasoningStart { message_id }, out);
            write(&Event::ReasoningMessageStart { message_id, role: "reasoning" }, out);
        }
    }
}

fn end_text(kind: Kind, message_id: &str, out: &mut BytesMut) {
    match kind {
        Kind::Text => write(&Event::TextMessageEnd { message_id }, out),
        Kind::Thinking => {
            write(&Event::ReasoningMessageEnd { message_id }, out);
            write(&Event::ReasoningEnd { message_id }, out);
        }
    }
}

fn write_call(call: &ToolCall, message: &str, out: &mut BytesMut) {
    let (tool_call_id, parent_message_id) = (call.id.as_str(), Some(message));
    write(&Event::ToolCallStart { tool_call_id, tool_call_name: &call.name, parent_message_id }, out);
    write(&Event::ToolCallArgs { tool_call_id, delta: &call.arguments }, out);
    write(&Event::ToolCallEnd { tool_call_id }, out);
}

/// What else happened, as the agent's own stream tells it. Clients of this protocol refuse members that are null.
fn write_aside(record: &Record, names: &RunNames, out: &mut BytesMut) {
    let Some(event) = native(record, names, false) else { return };
    let name = format!("loopgate.{}", event.name());
    let mut value = serde_json::to_value(&event).expect("wire types hold only strings, numbers and valid raw JSON");
    if let Some(members) = value.as_object_mut() {
        members.retain(|name, value| name != "type" && !value.is_null());
    }
    write(&Event::Custom { name, value }, out);
}
