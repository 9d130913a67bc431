//! The parts of a request's messages that the rules use.

use crate::llm::openai::messages::parts;
use crate::types::conversation::{Part, ToolResult};
use crate::types::{CallId, Conversation, Message, Role};

/// How much of a user's message the rules look at, in bytes.
const MAX_SAID_BYTES: usize = 8 * 1024;

/// The conversation so far.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// What users said, oldest first.
    pub(super) user: Vec<String>,
    /// The calls since the last user message, in order.
    pub(super) calls: Vec<Called>,
}

/// A call and its result, which may be missing.
#[derive(Debug)]
pub(super) struct Called {
    pub(super) id: CallId,
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) result: Option<String>,
}

impl Transcript {
    /// Reads what was said.
    pub(super) fn read(conversation: &Conversation) -> Result<Self, serde_json::Error> {
        let mut messages: Vec<&Message> = conversation.iter().collect();
        // What follows results directly asks for the closing answer to the question before them.
        if let [.., Message { role: Role::Tool, .. }, Message { role: Role::User, .. }] = messages.as_slice() {
            messages.pop();
        }
        let mut transcript = Self::default();
        for message in messages {
            transcript.take(message.role, &parts(message)?.list);
        }
        Ok(transcript)
    }

    /// What the user said last.
    pub(super) fn question(&self) -> &str {
        self.user.last().map_or("", String::as_str)
    }

    /// The results since the last user message, in the order of their calls.
    pub(super) fn results(&self) -> impl Iterator<Item = (&Called, &str)> {
        self.calls.iter().filter_map(|call| Some((call, call.result.as_deref()?)))
    }

    fn take(&mut self, role: Role, parts: &[Part]) {
        match role {
            Role::System | Role::Developer => {}
            Role::User => {
                let mut text = text(parts);
                text.truncate(text.floor_char_boundary(MAX_SAID_BYTES));
                self.user.push(text);
                self.calls.clear();
            }
            Role::Assistant => self.calls.extend(parts.iter().filter_map(Part::as_call).map(|call| Called {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
                result: None,
            })),
            Role::Tool => {
                for result in parts.iter().filter_map(Part::as_result) {
                    if let Some(call) = self.calls.iter_mut().find(|call| call.id == result.call) {
                        call.result = Some(told(result));
                    }
                }
            }
        }
    }
}

/// What a tool answered: its text, or the JSON that stands for it.
fn told(result: &ToolResult) -> String {
    match &result.structured {
        Some(json) if result.parts.is_empty() => json.get().to_owned(),
        Some(_) | None => text(&result.parts),
    }
}

/// All text of a message.
fn text(parts: &[Part]) -> String {
    parts.iter().filter_map(Part::as_text).collect::<Vec<_>>().join(" ")
}
