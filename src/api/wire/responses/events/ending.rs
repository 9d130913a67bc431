//! How a response ends.

use bytes::BytesMut;
use serde::Serialize;

use super::said::Kind;
use super::{About, OpenCall, Progress, State, WithItem};
use crate::api::wire::last_words::last_words;
use crate::api::wire::openai_error::ErrorObject;
use crate::api::wire::responses::object::{FailureObject, IncompleteDetails};
use crate::api::wire::responses::output::{ClientCall, ItemStatus, OutputItem, Phase};
use crate::api::wire::responses::{id, tool_names};
use crate::types::{ErrorKind, Outcome, StopReason};

/// What clients are told of an end.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// The status of the response.
    pub(super) status: &'static str,
    /// Why it is incomplete.
    pub(super) incomplete: Option<IncompleteDetails>,
    /// The last event.
    event: &'static str,
}

/// Whose tool is called.
#[derive(Debug, Clone, Copy)]
pub(super) enum CallOf<'a> {
    /// One of the server's.
    Server,
    /// The client's function of this name.
    Function(&'a str),
    /// A custom tool of the client.
    Custom,
}

/// The arguments of a call, under the name that they have in its item.
#[derive(Default, Serialize)]
struct Arguments<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a str>,
}

#[derive(Serialize)]
struct ErrorFrame<'a> {
    code: &'static str,
    message: &'a str,
    param: Option<&'a str>,
    error: FailureObject<'a>,
}

/// What clients are told of a run that ended so.
pub(super) fn end(outcome: &Outcome) -> End {
    let incomplete =
        |status, reason| End { status, incomplete: Some(IncompleteDetails { reason }), event: "response.incomplete" };
    if outcome.error.is_some() {
        return End { status: "failed", incomplete: None, event: "response.failed" };
    }
    match outcome.reason {
        StopReason::Done
        | StopReason::NoReply
        | StopReason::ClientTools
        | StopReason::OutcomeAsked
        | StopReason::AskUser
        | StopReason::Approval
        | StopReason::ToolPending => End { status: "completed", incomplete: None, event: "response.completed" },
        StopReason::Length
        | StopReason::MaxIterations
        | StopReason::MaxToolCalls
        | StopReason::LoopGuard
        | StopReason::TokenBudget
        | StopReason::CostBudget
        | StopReason::Timeout => incomplete("incomplete", "max_output_tokens"),
        StopReason::Guardrail | StopReason::ContentFilter => incomplete("incomplete", "content_filter"),
        StopReason::Cancelled | StopReason::Abandoned => incomplete("cancelled", "cancelled"),
        StopReason::ProviderError
        | StopReason::ContextLimit
        | StopReason::EmptyResponse
        | StopReason::OutcomeUnknown
        | StopReason::ToolError
        | StopReason::CrashLoop
        | StopReason::StoreLostState
        | StopReason::InternalError => End { status: "failed", incomplete: None, event: "response.failed" },
    }
}

/// Why a response failed, with a code by which clients know whether to send the request again.
pub(super) fn failure(outcome: &Outcome) -> Option<FailureObject<'_>> {
    let error = outcome.error.as_ref()?;
    let code = match error.kind {
        ErrorKind::ContextLength => "context_length_exceeded",
        ErrorKind::BudgetExceeded => "insufficient_quota",
        _ if outcome.may_be_repeated() => "server_error",
        _ => "invalid_prompt",
    };
    let r#type = ErrorObject::from(error).r#type;
    Some(FailureObject { code, message: &error.message, r#type, param: None })
}

impl State {
    pub(super) fn finish(&mut self, outcome: &Outcome, at_ms: u64, out: &mut BytesMut) {
        let goes_on_to_call = outcome.reason == StopReason::ClientTools || outcome.reason == StopReason::Approval;
        let phase = if goes_on_to_call { Phase::Commentary } else { Phase::FinalAnswer };
        self.close_text(ItemStatus::Completed, Some(phase), out);
        for OpenCall { index, call } in std::mem::take(&mut self.calls) {
            self.write_ended_call(index, &call, None, out);
        }
        match outcome.reason {
            StopReason::ClientTools => self.write_client_calls(outcome, out),
            StopReason::Approval if self.may_ask(outcome) => self.write_approval_requests(outcome, out),
            _ => {}
        }
        if let Some(text) = self.sentence(outcome) {
            self.say(self.step, Kind::Text, &text, out);
            self.close_text(ItemStatus::Completed, Some(Phase::FinalAnswer), out);
        }
        let end = end(outcome);
        self.ended = Some((Box::new(outcome.clone()), at_ms));
        self.progress = Progress::Ended;
        if let Some(FailureObject { code, message, r#type, .. }) = failure(outcome) {
            self.write_error(code, r#type, message, out);
        }
        self.write_response(end.event, out);
    }

    /// What the server says at the end, where the model did not.
    fn sentence(&self, outcome: &Outcome) -> Option<String> {
        let required = || outcome.required_calls.iter();
        match outcome.reason {
            StopReason::Approval if self.may_ask(outcome) => None,
            StopReason::Approval => {
                let tools: Vec<_> = required().map(|required| format!("`{}`", required.call.name)).collect();
                Some(format!("An approval is needed before {} can be called.", tools.join(", ")))
            }
            _ => last_words(outcome, self.text_out),
        }
    }

    /// Whether its client can be asked about all calls that wait for an approval.
    fn may_ask(&self, outcome: &Outcome) -> bool {
        let label = |name: &str| self.terms.may_ask_under(tool_names::split(name).0);
        outcome.required_calls.iter().all(|required| label(&required.call.name))
    }

    fn write_approval_requests(&mut self, outcome: &Outcome, out: &mut BytesMut) {
        for required in &outcome.required_calls {
            let output_index = self.next_output();
            let (server_label, name) = tool_names::split(&required.call.name);
            let id = id::of_call("mcpr", &required.call.id);
            let item = OutputItem::McpApprovalRequest { id, server_label, name, arguments: &required.call.arguments };
            self.frames.write("response.output_item.added", || WithItem { output_index, item: &item }, out);
            self.write_done(output_index, None, &item, out);
        }
    }

    fn write_client_calls(&mut self, outcome: &Outcome, out: &mut BytesMut) {
        let terms = self.terms.clone();
        for required in &outcome.required_calls {
            let call = ClientCall::of(&required.call, &terms);
            let output_index = self.next_output();
            let item = call.item(false);
            self.frames.write("response.output_item.added", || WithItem { output_index, item }, out);
            let of = if call.is_custom { CallOf::Custom } else { CallOf::Function(call.name()) };
            self.write_arguments(of, call.id(), output_index, &call.text, out);
            self.write_done(output_index, None, &call.item(true), out);
        }
    }

    /// The frames with the arguments of a call.
    pub(super) fn write_arguments(
        &mut self,
        of: CallOf<'_>,
        item_id: &str,
        output_index: u32,
        text: &str,
        out: &mut BytesMut,
    ) {
        let kind = match of {
            CallOf::Server => "response.mcp_call_arguments",
            CallOf::Function(_) => "response.function_call_arguments",
            CallOf::Custom => "response.custom_tool_call_input",
        };
        let about = |more| About { item_id, output_index, more };
        let delta = Arguments { delta: Some(text), ..Arguments::default() };
        self.frames.write(&[kind, ".delta"].concat(), || about(delta), out);
        let done = match of {
            CallOf::Server => Arguments { arguments: Some(text), ..Arguments::default() },
            CallOf::Function(name) => Arguments { name: Some(name), arguments: Some(text), ..Arguments::default() },
            CallOf::Custom => Arguments { input: Some(text), ..Arguments::default() },
        };
        self.frames.write(&[kind, ".done"].concat(), || about(done), out);
    }

    pub(super) fn write_error(&mut self, code: &'static str, r#type: &'static str, message: &str, out: &mut BytesMut) {
        let error = FailureObject { code, message, r#type, param: None };
        self.frames.write("error", || ErrorFrame { code, message, param: None, error }, out);
    }
}
