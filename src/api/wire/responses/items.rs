//! Input items as messages, in which every call has its result.

use std::collections::{HashMap, HashSet};

use crate::agent::CallApproval;
use crate::api::wire::error::WireError;
use crate::api::wire::openai_chat::message::Messages;
use crate::api::wire::responses::item::Item;
use crate::types::conversation::{Part, PartKind, Parts, ToolResult};
use crate::types::{CallId, Message, Role, ToolCall};

/// What the items of a request say.
#[derive(Debug, Default)]
pub struct Input {
    /// The messages.
    pub messages: Messages,
    /// How many results are of calls that are not among the items.
    pub unpaired: usize,
    /// Decisions about calls, if what the model said and did last awaits them. Those before that were made once.
    pub approvals: Vec<CallApproval>,
    /// Where in the messages those begin that are said beside the decisions.
    pub beside: usize,
    /// The types of items that were left out.
    pub dropped: Vec<String>,
}

/// Makes messages of items. With `continues`, they may have results of calls that the server knows of.
pub fn messages_of(items: Vec<Item>, continues: bool) -> Result<Input, WireError> {
    let mut input = Input::default();
    let mut outputs = outputs_of(&items, continues)?;
    let mut turn = Turn::default();
    for item in items {
        match item {
            Item::Message(Role::Assistant, parts) => {
                input.approvals.clear();
                turn.close_if_said(&mut input);
                turn.said.extend(parts);
            }
            Item::Message(role, parts) => {
                turn.close(&mut input);
                input.messages.all.push(Message::from_parts(role, Parts { list: parts, ..Parts::default() }));
            }
            Item::Call(call) => {
                input.approvals.clear();
                turn.close_if_answered(&mut input);
                let result = outputs.remove(&call.id).ok_or_else(|| unanswered(&call.id))?;
                turn.add(call, result);
            }
            Item::Made(call, result) => {
                input.approvals.clear();
                // Those that stand in a row may be of one turn.
                if !turn.is_made {
                    turn.close_if_answered(&mut input);
                }
                turn.add(call, result);
                (turn.is_answered, turn.is_made) = (true, true);
            }
            Item::Output(result) => {
                if let Some(result) = outputs.remove(&result.call) {
                    // The answer to a waiting run, which has the call.
                    turn.close(&mut input);
                    input.messages.answered.push(result.call.clone());
                    input.unpaired += 1;
                    input.messages.all.push(Message::result(result));
                } else {
                    // It stands behind its call already.
                    (turn.is_answered, turn.is_made) = (true, false);
                }
            }
            Item::Asked => input.beside = input.messages.all.len(),
            Item::Approval(approval) => {
                // Without naming what it continues, a request has a transcript, of which the decisions are the end.
                if input.approvals.is_empty() && !continues {
                    input.beside = input.messages.all.len();
                }
                input.approvals.push(approval);
            }
            Item::Dropped(kind) if !input.dropped.contains(&kind) => input.dropped.push(kind),
            Item::Dropped(_) | Item::Known | Item::Reference(_) => {}
        }
    }
    turn.close(&mut input);
    input.beside = input.beside.max(input.messages.answers_from);
    Ok(input)
}

/// The results by their calls. Each is of a call of these items, or else of one that the server knows of.
fn outputs_of(items: &[Item], continues: bool) -> Result<HashMap<CallId, ToolResult>, WireError> {
    let calls = items.iter().filter_map(|item| if let Item::Call(call) = item { Some(&call.id) } else { None });
    let calls: HashSet<&CallId> = calls.collect();
    let mut outputs = HashMap::new();
    for item in items {
        let Item::Output(result) = item else { continue };
        // An id of ours leads to the run that waits for the result.
        if !continues && result.call.run().is_none() && !calls.contains(&result.call) {
            let message = format!("No tool call found for function call output with call_id {}.", result.call);
            return Err(WireError::invalid("input", message));
        }
        if outputs.insert(result.call.clone(), result.clone()).is_some() {
            let message = format!("There are two outputs for the call {}.", result.call);
            return Err(WireError::invalid("input", message));
        }
    }
    Ok(outputs)
}

fn unanswered(call: &CallId) -> WireError {
    WireError::invalid("input", format!("No tool output found for function call {call}."))
}

/// What the model said in a row, and the results of its calls.
#[derive(Default)]
struct Turn {
    said: Vec<Part>,
    results: Vec<ToolResult>,
    /// Whether a result was read: what the model says next is another turn.
    is_answered: bool,
    /// Whether the last item was a call with its result.
    is_made: bool,
}

impl Turn {
    fn add(&mut self, call: ToolCall, result: ToolResult) {
        self.said.push(PartKind::ToolCall(call).into());
        self.results.push(result);
    }

    fn close_if_answered(&mut self, input: &mut Input) {
        if self.is_answered {
            self.close(input);
        }
    }

    /// What was said in two messages does not become one text.
    fn close_if_said(&mut self, input: &mut Input) {
        if self.is_answered || matches!(self.said.last().map(|part| &part.kind), Some(PartKind::Text(_))) {
            self.close(input);
        }
    }

    fn close(&mut self, input: &mut Input) {
        let Self { said, results, .. } = std::mem::take(self);
        if said.is_empty() {
            return;
        }
        let messages = &mut input.messages;
        messages.all.push(Message::from_parts(Role::Assistant, Parts { list: said, ..Parts::default() }));
        // What the last turn was answered may be what a run waits for.
        messages.answers_from = messages.all.len();
        messages.answered = results.iter().map(|result| result.call.clone()).collect();
        messages.all.extend(results.into_iter().map(Message::result));
    }
}
