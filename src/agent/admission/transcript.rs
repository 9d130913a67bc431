//! Whether the transcript that a client sends with its answers is that of the run.
//!
//! A run goes on with what it has stored. So a client that has edited its transcript is told that the edit changed nothing.
//! The client has seen less than the run has: neither the calls of the server's tools nor their results, nor what others
//! said to the run meanwhile; and it may keep the texts of several steps as one. Pure.

use serde_json::Value;

use crate::agent::error::{Field, StartError};
use crate::agent::machine::Run;
use crate::agent::request::NewRun;
use crate::llm::message_parts;
use crate::types::conversation::{Origin, Part, PartKind, Parts, ToolResult, joined};
use crate::types::{History, Message, Role, ToolCall};

/// Whether the messages before the client's answers say something else than those of the run. A client may leave out
/// how the conversation began.
pub(super) fn differs(transcript: &[Message], run: &Run) -> bool {
    let stored = run.messages().iter().filter(|message| !matches!(message.origin, Origin::Steering { .. }));
    let (Some(theirs), Some(ours)) = (turns(transcript), turns(stored)) else { return false };
    let is_longer = theirs.len() > ours.len() && run.spec().session.is_none();
    is_longer || theirs.iter().rev().zip(ours.iter().rev()).any(|(theirs, ours)| !theirs.is_part_of(ours))
}

/// A request without its first messages, if its session has these.
pub(super) fn without_known(new: &NewRun, history: &History) -> Option<Box<NewRun>> {
    let known = resent(&new.messages, history);
    if known == 0 {
        return None;
    }
    let warning = format!("the session has the first {known} of these messages; they are not added to it again");
    let warnings = new.warnings.iter().cloned().chain([warning]).collect();
    Some(Box::new(NewRun { messages: new.messages[known..].to_vec(), warnings, ..new.clone() }))
}

/// How many of a new run's messages its session has already, as the client sends the conversation again from its beginning, or from
/// some place on: those up to the model's newest message, if they are how the session's messages end. Two turns at least must be
/// alike. A client that sends nothing else means something else.
fn resent(messages: &[Message], history: &History) -> usize {
    let Some(last) = messages.iter().rposition(|message| matches!(message.role, Role::Assistant | Role::Tool)) else {
        return 0;
    };
    let (theirs, rest) = messages.split_at(last + 1);
    if rest.is_empty() || history.count() == 0 {
        return 0;
    }
    let begins = history.begins();
    let stored = history.placed().filter(|(place, _)| *place >= begins).map(|(_, message)| message);
    let (Some(theirs), Some(ours)) = (turns(theirs), turns(stored)) else { return 0 };
    // Where messages before these are not there, the first turn may be without its beginning.
    let known = if begins > 0 { ours.get(1..).unwrap_or_default() } else { &ours };
    let is_longer = theirs.len() > known.len() && begins == 0;
    let alike = theirs.iter().rev().zip(known.iter().rev());
    let is_resent = alike.len() > 1 && !is_longer && alike.clone().all(|(theirs, ours)| theirs.is_part_of(ours));
    if is_resent { last + 1 } else { 0 }
}

/// What one side said before the other one spoke.
#[derive(Debug, PartialEq)]
enum Turn {
    /// A message of the client.
    Client(Role, Vec<PartKind>),
    /// Messages of the model, and the results of its calls.
    Model(ModelTurn),
}

#[derive(Debug, Default, PartialEq)]
struct ModelTurn {
    texts: Vec<String>,
    calls: Vec<ToolCall>,
    results: Vec<ToolResult>,
}

/// The turns of a conversation; `None` if one of its messages cannot be read.
fn turns<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Option<Vec<Turn>> {
    let mut turns = Vec::new();
    for message in messages {
        let parts = message_parts(message).ok()?;
        match message.role {
            Role::System | Role::Developer | Role::User => turns.push(Turn::Client(message.role, kinds(&parts.list))),
            Role::Assistant | Role::Tool => {
                if !matches!(turns.last(), Some(Turn::Model(_))) {
                    turns.push(Turn::Model(ModelTurn::default()));
                }
                if let Some(Turn::Model(turn)) = turns.last_mut() {
                    turn.take(&parts);
                }
            }
        }
    }
    Some(turns)
}

fn kinds(parts: &[Part]) -> Vec<PartKind> {
    parts.iter().map(|part| part.kind.clone()).collect()
}

impl Turn {
    fn is_part_of(&self, stored: &Self) -> bool {
        match (self, stored) {
            (Self::Model(theirs), Self::Model(ours)) => theirs.is_part_of(ours),
            (Self::Client(..), Self::Client(..)) => self == stored,
            (Self::Client(..), Self::Model(_)) | (Self::Model(_), Self::Client(..)) => false,
        }
    }
}

impl ModelTurn {
    fn take(&mut self, parts: &Parts) {
        let text = joined(parts.list.iter().filter_map(|part| part.as_text().or_else(|| part.as_refusal())));
        self.texts.extend(Some(text.trim().to_owned()).filter(|text| !text.is_empty()));
        self.calls.extend(parts.list.iter().filter_map(Part::as_call).cloned());
        self.results.extend(parts.list.iter().filter_map(Part::as_result).cloned());
    }

    fn is_part_of(&self, stored: &Self) -> bool {
        let is_call = |one: &ToolCall, other: &ToolCall| {
            let arguments = |call: &ToolCall| serde_json::from_str::<Value>(&call.arguments).ok();
            one.id == other.id
                && one.name == other.name
                && (one.arguments == other.arguments || arguments(one).is_some_and(|one| Some(one) == arguments(other)))
        };
        let is_result =
            |one: &ToolResult, other: &ToolResult| one.call == other.call && kinds(&one.parts) == kinds(&other.parts);
        self.texts.iter().all(|text| is_said(text, &stored.texts))
            && self.calls.iter().all(|call| stored.calls.iter().any(|other| is_call(call, other)))
            && self.results.iter().all(|result| stored.results.iter().any(|other| is_result(result, other)))
    }
}

/// Whether `text` is that of a step, or of several that follow each other.
fn is_said(text: &str, steps: &[String]) -> bool {
    (0..steps.len()).any(|first| {
        let mut rest = text;
        for step in &steps[first..] {
            let Some(behind) = rest.strip_prefix(step.as_str()) else { break };
            rest = behind.trim_start();
            if rest.is_empty() {
                return true;
            }
        }
        false
    })
}

/// A request without the results that no run waits for, if its client repeats them before what is new: the run that got them failed
/// before it said anything, or was cancelled.
pub(super) fn without_unasked(new: &NewRun) -> Option<Box<NewRun>> {
    if !new.repeats || new.answers_from > 0 || new.answered.is_empty() {
        return None;
    }
    let first = new.messages.iter().position(|message| message.role != Role::Tool)?;
    let warning = format!("no run waits for the first {first} of these messages; they are not added to the session");
    let warnings = new.warnings.iter().cloned().chain([warning]).collect();
    let messages = new.messages[first..].to_vec();
    Some(Box::new(NewRun { messages, answered: Vec::new(), warnings, ..new.clone() }))
}

/// Refuses results of tool calls that no run waits for.
pub(super) fn refuse_unasked_results(new: &NewRun) -> Result<(), StartError> {
    if new.answers_from == 0 && !new.answered.is_empty() {
        let message = "no run waits for the results of these tool calls".to_owned();
        return Err(StartError::Invalid { field: Field::Message(0), message });
    }
    Ok(())
}
