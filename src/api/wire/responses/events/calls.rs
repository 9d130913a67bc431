//! Calls: those that the server makes, those that it asks the client to make, and those that wait for an approval.

use bytes::BytesMut;
use serde::Serialize;

use super::bodies::{About, Nothing, WithItem};
use super::state::{OpenCall, State};
use crate::api::wire::responses::output::{ClientCall, ItemStatus, McpCall, OutputItem, Phase};
use crate::api::wire::responses::{id, tool_names};
use crate::types::{CallId, Outcome, ToolCall, ToolOutcome};

/// Whose tool is called.
#[derive(Debug, Clone, Copy)]
enum CallOf<'a> {
    /// One of the server's.
    Server,
    /// The client's function of this name.
    Function(&'a str),
    /// A custom tool of the client.
    Custom,
}

/// The arguments of a call, under the name that they have in its item.
#[derive(Default, Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a str>,
}

impl State {
    pub(super) fn begin_call(&mut self, call: &ToolCall, out: &mut BytesMut) {
        if self.calls.iter().any(|open| open.call.id == call.id) {
            return;
        }
        self.close_text(ItemStatus::Completed, Some(Phase::Commentary), out);
        let output_index = self.next_output();
        let terms = self.terms.clone();
        let item = McpCall::begun(call, &terms, self.approved.contains(&call.id));
        let item_id = item.id.clone();
        let about = |more| About { item_id: &item_id, output_index, more };
        let frames = &mut self.frames;
        let added = OutputItem::McpCall(item);
        frames.write("response.output_item.added", || WithItem { output_index, item: &added }, out);
        frames.write("response.mcp_call.in_progress", || about(Nothing {}), out);
        self.write_arguments(CallOf::Server, &item_id, output_index, &call.arguments, out);
        self.calls.push(OpenCall { index: output_index, call: call.clone() });
    }

    pub(super) fn end_call(&mut self, id: &CallId, outcome: &ToolOutcome, out: &mut BytesMut) {
        // A call that was never made has no item; what was said before it is no answer all the same.
        self.close_text(ItemStatus::Completed, Some(Phase::Commentary), out);
        let Some(place) = self.calls.iter().position(|open| open.call.id == *id) else { return };
        let OpenCall { index, call } = self.calls.remove(place);
        self.write_ended_call(index, &call, Some(outcome), out);
    }

    pub(super) fn write_ended_call(
        &mut self,
        index: u32,
        call: &ToolCall,
        outcome: Option<&ToolOutcome>,
        out: &mut BytesMut,
    ) {
        let terms = self.terms.clone();
        let item = McpCall::begun(call, &terms, self.approved.contains(&call.id)).ended(call, outcome);
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

    pub(super) fn write_approval_requests(&mut self, outcome: &Outcome, out: &mut BytesMut) {
        let terms = self.terms.clone();
        for required in &outcome.required_calls {
            let output_index = self.next_output();
            let (server_label, name) = tool_names::shown(&required.call.name, &terms);
            let id = id::of_call("mcpr", &required.call.id);
            let item = OutputItem::McpApprovalRequest { id, server_label, name, arguments: &required.call.arguments };
            self.frames.write("response.output_item.added", || WithItem { output_index, item: &item }, out);
            self.write_done(output_index, None, &item, out);
        }
    }

    pub(super) fn write_client_calls(&mut self, outcome: &Outcome, out: &mut BytesMut) {
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
    fn write_arguments(&mut self, of: CallOf<'_>, item_id: &str, output_index: u32, text: &str, out: &mut BytesMut) {
        let kind = match of {
            CallOf::Server => "response.mcp_call_arguments",
            CallOf::Function(_) => "response.function_call_arguments",
            CallOf::Custom => "response.custom_tool_call_input",
        };
        let about = |more| About { item_id, output_index, more };
        let delta = Written { delta: Some(text), ..Written::default() };
        self.frames.write(&[kind, ".delta"].concat(), || about(delta), out);
        let done = match of {
            CallOf::Server => Written { arguments: Some(text), ..Written::default() },
            CallOf::Function(name) => Written { name: Some(name), arguments: Some(text), ..Written::default() },
            CallOf::Custom => Written { input: Some(text), ..Written::default() },
        };
        self.frames.write(&[kind, ".done"].concat(), || about(done), out);
    }
}
