//! What the rules look at in a request's messages.

use serde::Deserialize;

use crate::types::Role;

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
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) result: Option<String>,
}

impl Transcript {
    /// Decodes message objects that are separated by commas.
    pub(super) fn decode(messages: &str) -> Result<Self, serde_json::Error> {
        let mut messages: Vec<Message> = serde_json::from_str(&format!("[{messages}]"))?;
        // What follows results directly asks for the closing answer to the question before them.
        if let [.., Message { role: Role::Tool, .. }, Message { role: Role::User, .. }] = messages.as_slice() {
            messages.pop();
        }
        let mut transcript = Self::default();
        for message in messages {
            transcript.read(message);
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

    fn read(&mut self, message: Message) {
        let mut text = message.content.map(Content::text).unwrap_or_default();
        match message.role {
            Role::System | Role::Developer => {}
            Role::User => {
                text.truncate(text.floor_char_boundary(MAX_SAID_BYTES));
                self.user.push(text);
                self.calls.clear();
            }
            Role::Assistant => self.calls.extend(message.tool_calls.into_iter().flatten().map(|call| Called {
                id: call.id,
                name: call.function.name,
                arguments: call.function.arguments,
                result: None,
            })),
            Role::Tool => {
                let id = message.tool_call_id.unwrap_or_default();
                if let Some(call) = self.calls.iter_mut().find(|call| call.id == id) {
                    call.result = Some(text);
                }
            }
        }
    }
}

#[derive(Deserialize)]
struct Message {
    role: Role,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    tool_calls: Option<Vec<Call>>,
    #[serde(default)]
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// A part of any kind; only text has `text`.
#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
struct Call {
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    arguments: String,
}

impl Content {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().map(|part| part.text).collect::<Vec<_>>().join(" "),
        }
    }
}
