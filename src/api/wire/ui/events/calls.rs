//! Calls: those that the server makes, those that wait for an approval, and those that it asks the client to make.

use bytes::BytesMut;

use super::State;
use crate::api::wire::ui::act::{Act, Dialect, Ending, Maker};
use crate::llm::message_parts;
use crate::types::approval::{Approval, ApprovalDecision};
use crate::types::conversation::{Part, joined};
use crate::types::{CallId, Message, Outcome, Role, ToolCall, ToolOutcome};

/// What a call came to that its run ended before.
const NOT_FINISHED: &str = "The call was not finished.";

impl<D: Dialect> State<D> {
    /// A call of the server begins. One that waited for an approval was told before, as was one that is made again after a
    /// crash.
    pub(super) fn begin_call(&mut self, call: &ToolCall, out: &mut BytesMut) {
        if !self.calls.contains(&call.id) {
            self.write_call(call, Maker::Server, out);
            self.calls.push(call.id.clone());
        }
    }

    fn write_call(&mut self, call: &ToolCall, maker: Maker, out: &mut BytesMut) {
        self.close_text(out);
        let message = match self.message.take() {
            Some(message) => message,
            None => self.next_id("msg"),
        };
        self.tell(&Act::Call { call, maker, message: &message }, out);
        self.message = Some(message);
    }

    /// A call waits for an approval.
    pub(super) fn ask(&mut self, call: &ToolCall, out: &mut BytesMut) {
        self.begin_call(call, out);
        self.asked.push(call.id.clone());
        self.tell(&Act::AskApproval(call), out);
    }

    /// A call that waited was decided. Where the request brings the decision, its client was asked before.
    pub(super) fn resolve(&mut self, approval: &Approval, out: &mut BytesMut) {
        if approval.awaits_others {
            return;
        }
        let call = &approval.call_id;
        self.asked.retain(|asked| asked != call);
        if !self.calls.contains(call) {
            self.tell(&Act::Recall(call, &approval.name), out);
            self.calls.push(call.clone());
        }
        if approval.decision != ApprovalDecision::Approve {
            self.denied.push(call.clone());
        }
    }

    /// A call of the server has its result. One that was never begun was never told.
    pub(super) fn end_call(&mut self, call: &CallId, outcome: &ToolOutcome, out: &mut BytesMut) {
        let Some(place) = self.calls.iter().position(|open| open == call) else { return };
        self.calls.remove(place);
        let ending = if self.denied.contains(call) {
            Ending::Denied
        } else if outcome.is_error {
            Ending::Failed
        } else {
            Ending::Made
        };
        self.tell(&Act::Answer { call, maker: Maker::Server, text: outcome.text(), ending }, out);
    }

    /// The client has answered its calls. One that reads only from its answer on knows them.
    pub(super) fn answer_for_client(&mut self, answers: &[Message], out: &mut BytesMut) {
        for message in answers.iter().filter(|message| message.role == Role::Tool) {
            let Ok(parts) = message_parts(message) else { continue };
            for result in parts.list.iter().filter_map(Part::as_result) {
                let Some(place) = self.of_client.iter().position(|open| *open == result.call) else { continue };
                self.of_client.remove(place);
                let text = joined(result.parts.iter().filter_map(Part::as_text));
                let call = &result.call;
                self.tell(&Act::Answer { call, maker: Maker::Client, text, ending: Ending::Made }, out);
            }
        }
    }

    pub(super) fn write_client_calls(&mut self, outcome: &Outcome, out: &mut BytesMut) {
        for required in &outcome.required_calls {
            self.write_call(&required.call, Maker::Client, out);
            self.of_client.push(required.call.id.clone());
        }
    }

    /// Asks again for what still waits, where others were decided.
    pub(super) fn ask_again(&self, outcome: &Outcome, out: &mut BytesMut) {
        let left = outcome.required_calls.iter().filter(|required| !self.asked.contains(&required.call.id));
        for required in left {
            self.tell(&Act::AskApproval(&required.call), out);
        }
    }

    /// Ends the calls that the run leaves open.
    pub(super) fn drop_calls(&mut self, out: &mut BytesMut) {
        for call in std::mem::take(&mut self.calls) {
            let (text, maker) = (NOT_FINISHED.into(), Maker::Server);
            self.tell(&Act::Answer { call: &call, maker, text, ending: Ending::Failed }, out);
        }
    }
}
