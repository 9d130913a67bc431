//! The chunks of a UI message's stream.

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::api::wire::messages::object::input_of;
use crate::api::wire::responses::id;
use crate::api::wire::ui::act::{Act, Dialect, Ending, Kind, Maker};
use crate::api::wire::{DONE, RunNames, write_json_line};
use crate::types::{CallId, Outcome, RunStatus, StopReason, ToolCall};

/// Writes the chunks of a UI message.
#[derive(Debug, Default)]
pub struct AiSdk {
    /// The message that a request continues, as its client calls it.
    pub continued: Option<String>,
}

/// A chunk.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
enum Chunk<'a> {
    Start {
        message_id: &'a str,
    },
    StartStep,
    FinishStep,
    TextStart {
        id: &'a str,
    },
    TextDelta {
        id: &'a str,
        delta: &'a str,
    },
    TextEnd {
        id: &'a str,
    },
    ReasoningStart {
        id: &'a str,
    },
    ReasoningDelta {
        id: &'a str,
        delta: &'a str,
    },
    ReasoningEnd {
        id: &'a str,
    },
    ToolInputAvailable {
        tool_call_id: &'a str,
        tool_name: &'a str,
        input: &'a RawValue,
        #[serde(flatten)]
        of_server: OfServer,
    },
    ToolApprovalRequest {
        approval_id: String,
        tool_call_id: &'a str,
    },
    ToolOutputAvailable {
        tool_call_id: &'a str,
        output: &'a RawValue,
        #[serde(flatten)]
        of_server: OfServer,
    },
    ToolOutputError {
        tool_call_id: &'a str,
        error_text: &'a str,
        #[serde(flatten)]
        of_server: OfServer,
    },
    ToolOutputDenied {
        tool_call_id: &'a str,
    },
    #[serde(rename = "data-loopgate")]
    Data {
        data: Discarded<'a>,
    },
    Error {
        error_text: &'a str,
    },
    Abort,
    Finish {
        finish_reason: &'static str,
    },
}

/// What tells calls of the server from those that the client is to make.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct OfServer {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    provider_executed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dynamic: bool,
}

impl From<Maker> for OfServer {
    fn from(maker: Maker) -> Self {
        let is_server = maker == Maker::Server;
        Self { provider_executed: is_server, dynamic: is_server }
    }
}

/// That the texts of a step are void.
#[derive(Serialize)]
struct Discarded<'a> {
    event: &'static str,
    step: u32,
    reason: &'a str,
}

impl Dialect for AiSdk {
    const LAST_FRAME: &'static [u8] = DONE;
    const UI_MESSAGE_STREAM: Option<&'static str> = Some("v1");

    fn write(&self, act: &Act<'_>, names: &RunNames, out: &mut BytesMut) {
        match act {
            Act::Begin => {
                // All requests of a run continue one message.
                let own = || id::message(&names.id, 0);
                write(&Chunk::Start { message_id: &self.continued.clone().unwrap_or_else(own) }, out);
            }
            Act::BeginStep(_) => write(&Chunk::StartStep, out),
            Act::EndStep(_) => write(&Chunk::FinishStep, out),
            Act::BeginText(Kind::Text, id) => write(&Chunk::TextStart { id }, out),
            Act::Text(Kind::Text, id, delta) => write(&Chunk::TextDelta { id, delta }, out),
            Act::EndText(Kind::Text, id) => write(&Chunk::TextEnd { id }, out),
            Act::BeginText(Kind::Thinking, id) => write(&Chunk::ReasoningStart { id }, out),
            Act::Text(Kind::Thinking, id, delta) => write(&Chunk::ReasoningDelta { id, delta }, out),
            Act::EndText(Kind::Thinking, id) => write(&Chunk::ReasoningEnd { id }, out),
            Act::Call { call, maker, .. } => write_call(call, *maker, out),
            Act::AskApproval(call) => {
                let approval_id = id::of_call("mcpr", &call.id);
                write(&Chunk::ToolApprovalRequest { approval_id, tool_call_id: call.id.as_str() }, out);
            }
            Act::Answer { call, maker, text, ending } => write_answer(call, *maker, text, *ending, out),
            Act::Void { step, reason, .. } => {
                write(&Chunk::Data { data: Discarded { event: "step.discarded", step: *step, reason } }, out);
            }
            // The message has the call.
            Act::Recall(..) | Act::Aside(_) => {}
            Act::End(outcome) => write_end(outcome, out),
            Act::BreakOff(error) => write_failure(&error.message, out),
        }
    }
}

fn write(chunk: &Chunk<'_>, out: &mut BytesMut) {
    out.put_slice(b"data: ");
    write_json_line(chunk, out);
    out.put_slice(b"\n\n");
}

fn write_call(call: &ToolCall, maker: Maker, out: &mut BytesMut) {
    let (tool_call_id, tool_name, input) = (call.id.as_str(), call.name.as_str(), input_of(call));
    write(&Chunk::ToolInputAvailable { tool_call_id, tool_name, input: &input, of_server: maker.into() }, out);
}

fn write_answer(call: &CallId, maker: Maker, text: &str, ending: Ending, out: &mut BytesMut) {
    let (tool_call_id, of_server) = (call.as_str(), maker.into());
    match ending {
        Ending::Made => {
            let output = output_of(text, maker);
            write(&Chunk::ToolOutputAvailable { tool_call_id, output: &output, of_server }, out);
        }
        Ending::Failed => write(&Chunk::ToolOutputError { tool_call_id, error_text: text, of_server }, out),
        Ending::Denied => write(&Chunk::ToolOutputDenied { tool_call_id }, out),
    }
}

/// What a call came to: a text, unless its client gave a value.
fn output_of(text: &str, maker: Maker) -> Box<RawValue> {
    let is_value = maker == Maker::Client && text.starts_with(['{', '[']);
    let value = is_value.then(|| serde_json::from_str(text).ok()).flatten();
    value.unwrap_or_else(|| to_raw_value(text).expect("a string is JSON"))
}

fn write_end(outcome: &Outcome, out: &mut BytesMut) {
    if let Some(error) = &outcome.error {
        write_failure(&error.message, out);
    } else if outcome.status() == RunStatus::Cancelled {
        write(&Chunk::Abort, out);
    } else {
        write(&Chunk::Finish { finish_reason: finish_reason(outcome.reason) }, out);
    }
}

fn write_failure(error_text: &str, out: &mut BytesMut) {
    write(&Chunk::Error { error_text }, out);
    write(&Chunk::Finish { finish_reason: "error" }, out);
}

/// The SDK's word for why a run stopped.
fn finish_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Done | StopReason::NoReply | StopReason::AskUser => "stop",
        StopReason::Length
        | StopReason::MaxIterations
        | StopReason::MaxToolCalls
        | StopReason::LoopGuard
        | StopReason::TokenBudget
        | StopReason::CostBudget
        | StopReason::Timeout => "length",
        StopReason::Guardrail | StopReason::ContentFilter => "content-filter",
        StopReason::ClientTools | StopReason::Approval => "tool-calls",
        StopReason::OutcomeAsked | StopReason::ToolPending | StopReason::Cancelled | StopReason::Abandoned => "other",
        StopReason::ProviderError
        | StopReason::ContextLimit
        | StopReason::EmptyResponse
        | StopReason::OutcomeUnknown
        | StopReason::ToolError
        | StopReason::CrashLoop
        | StopReason::StoreLostState
        | StopReason::InternalError => "error",
    }
}
