//! `system` and `messages` as the conversation that they are.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::wire::body::{clip, located, missing};
use crate::api::wire::error::{ErrorCode, WireError};
use crate::api::wire::json_object::JsonObject;
use crate::api::wire::messages::block::{Block, Speaker, read_block};
use crate::api::wire::messages::content::{read_texts, views};
use crate::api::wire::responses::item::Item;
use crate::api::wire::responses::items::{Input, messages_of};
use crate::types::conversation::{Part, ToolResult};
use crate::types::{CallId, Role, ToolCall};

/// Most messages of one request.
const MAX_MESSAGES: usize = 10_000;
/// What a model is told of a call whose transcript has no result.
const NO_RESULT: &str = "The call has no result.";

/// What a request says.
#[derive(Debug)]
pub struct Transcript {
    /// Its messages.
    pub input: Input,
    /// The call with which its last message ends, and which has no result: the message paused there.
    pub paused: Option<CallId>,
}

/// A message as it is written.
#[derive(Deserialize)]
struct View<'a> {
    role: String,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

/// Reads `system` and `messages`. With `continues`, there may be results of calls that a session knows of.
pub fn read(system: Option<&RawValue>, messages: &[&RawValue], continues: bool) -> Result<Transcript, WireError> {
    if messages.is_empty() {
        return Err(WireError::invalid("messages", "there must be at least one message"));
    }
    if messages.len() > MAX_MESSAGES {
        return Err(WireError::invalid("messages", format!("there may be at most {MAX_MESSAGES} messages")));
    }
    let mut reader = Reader::default();
    if let Some(raw) = system.filter(|raw| raw.get() != "null") {
        let parts = read_texts(raw).map_err(|error| error.within("system"))?;
        reader.said(Role::System, parts);
    }
    for (index, json) in messages.iter().enumerate() {
        reader.take(json.get()).map_err(|error| error.within(&format!("messages[{index}]")))?;
    }
    reader.check_answered().map_err(|error| error.within(&format!("messages[{}]", messages.len() - 1)))?;
    reader.into_transcript(continues)
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    steps: Vec<Step>,
    /// The calls of the client's tools in the last turn of the model.
    open: Vec<CallId>,
    /// Those of them that have a result.
    closed: HashSet<CallId>,
    /// The results of calls that the server made.
    made: HashMap<CallId, ToolResult>,
    /// The calls that the server made in the last message, if it is the model's.
    last_made: Vec<CallId>,
}

/// One thing that was said or done.
enum Step {
    Item(Item),
    /// A call that the server made.
    Made(ToolCall),
}

impl Reader {
    fn take(&mut self, json: &str) -> Result<(), WireError> {
        let JsonObject(View { role, content }): JsonObject<View<'_>> = located(json)?;
        let content = content.ok_or_else(|| missing("content"))?;
        let within = |error: WireError| error.within("content");
        match role.as_str() {
            "system" | "developer" => {
                let parts = read_texts(content).map_err(within)?;
                self.said(Role::System, parts);
                Ok(())
            }
            "user" => self.take_user(content).map_err(within),
            "assistant" => {
                self.check_answered()?;
                self.open.clear();
                self.closed.clear();
                self.take_assistant(content).map_err(within)
            }
            other => {
                let message = format!("{:?} is not a role: use user, assistant or system", clip(other));
                Err(WireError::invalid("role", message))
            }
        }
    }

    fn take_user(&mut self, content: &RawValue) -> Result<(), WireError> {
        self.last_made.clear();
        let mut said = Vec::new();
        let mut has_results = false;
        for (index, view) in views(content)?.into_iter().enumerate() {
            let block = read_block(view, Speaker::User).map_err(|error| error.within(&format!("[{index}]")))?;
            match block {
                Block::Said(parts) => said.extend(parts),
                Block::Result(result) => {
                    has_results = true;
                    self.closed.insert(result.call.clone());
                    self.add(Block::Result(result));
                }
                Block::Call(_) | Block::Made(_) | Block::MadeResult(_) | Block::Thinking | Block::Dropped(_) => {
                    self.add(block);
                }
            }
        }
        if said.is_empty() && !has_results {
            return Err(WireError::new(ErrorCode::InvalidValue, "must have a block"));
        }
        // What is said beside results comes after them.
        self.said(Role::User, said);
        Ok(())
    }

    fn take_assistant(&mut self, content: &RawValue) -> Result<(), WireError> {
        self.last_made.clear();
        for (index, view) in views(content)?.into_iter().enumerate() {
            let block = read_block(view, Speaker::Assistant).map_err(|error| error.within(&format!("[{index}]")))?;
            if let Block::Call(call) = &block {
                self.open.push(call.id.clone());
            } else if let Block::Made(call) = &block {
                self.last_made.push(call.id.clone());
            }
            self.add(block);
        }
        Ok(())
    }

    fn add(&mut self, block: Block) {
        match block {
            Block::Said(parts) => self.said(Role::Assistant, parts),
            Block::Call(call) => self.steps.push(Step::Item(Item::Call(call))),
            Block::Result(result) => self.steps.push(Step::Item(Item::Output(result))),
            Block::Made(call) => self.steps.push(Step::Made(call)),
            Block::MadeResult(result) => {
                self.made.insert(result.call.clone(), result);
            }
            Block::Dropped(kind) => self.steps.push(Step::Item(Item::Dropped(kind))),
            Block::Thinking => {}
        }
    }

    fn said(&mut self, role: Role, mut parts: Vec<Part>) {
        parts.retain(|part| !part.is_empty());
        if !parts.is_empty() {
            self.steps.push(Step::Item(Item::Message(role, parts)));
        }
    }

    /// Refuses a transcript that goes on without the results of the client's calls.
    fn check_answered(&self) -> Result<(), WireError> {
        let Some(call) = self.open.iter().find(|call| !self.closed.contains(call)) else { return Ok(()) };
        let id = shown_id(call);
        let message = format!("the tool_use {id} has no tool_result in the message after it");
        Err(WireError::new(ErrorCode::InvalidValue, message))
    }

    fn into_transcript(mut self, continues: bool) -> Result<Transcript, WireError> {
        let is_open = |call: &&CallId| !self.made.contains_key(call) && call.run().is_some();
        let paused = self.last_made.iter().rev().find(is_open).cloned();
        self.check_outputs(continues)?;
        let mut later = HashSet::new();
        let mut items: Vec<Item> = Vec::with_capacity(self.steps.len());
        // A call that is shown once more, in the message that goes on with it, was made once.
        for step in self.steps.into_iter().rev() {
            match step {
                Step::Item(item) => items.push(item),
                Step::Made(call) if later.insert(call.id.clone()) => {
                    let result = self.made.remove(&call.id).unwrap_or_else(|| without_result(&call.id));
                    items.push(Item::Made(call, result));
                }
                Step::Made(_) => {}
            }
        }
        items.reverse();
        let outputs: HashSet<CallId> = items.iter().filter_map(output_of).cloned().collect();
        let mut input = messages_of(items, continues).map_err(|error| error.at("messages"))?;
        // What the server did itself answers no run that waits for its client.
        input.messages.answered.retain(|call| outputs.contains(call));
        Ok(Transcript { input, paused })
    }

    /// Refuses results of calls that neither the transcript nor the server has.
    fn check_outputs(&self, continues: bool) -> Result<(), WireError> {
        let items = || self.steps.iter().filter_map(|step| if let Step::Item(item) = step { Some(item) } else { None });
        let calls: HashSet<&CallId> =
            items().filter_map(|item| if let Item::Call(call) = item { Some(&call.id) } else { None }).collect();
        let foreign = items().filter_map(output_of).find(|call| !calls.contains(call) && call.run().is_none());
        match foreign.filter(|_| !continues) {
            Some(call) => {
                let message = format!("the tool_result for {} has no tool_use before it", clip(call.as_str()));
                Err(WireError::invalid("messages", message))
            }
            None => Ok(()),
        }
    }
}

/// The call that an item has the client's result of.
fn output_of(item: &Item) -> Option<&CallId> {
    if let Item::Output(result) = item { Some(&result.call) } else { None }
}

/// An id as the client was shown it.
fn shown_id(call: &CallId) -> String {
    match call.run() {
        Some(_) => crate::api::wire::responses::id::of_call("toolu", call),
        None => clip(call.as_str()).to_owned(),
    }
}

fn without_result(call: &CallId) -> ToolResult {
    ToolResult { call: call.clone(), parts: vec![Part::text(NO_RESULT)], structured: None, is_error: true }
}
