//! How much of what was said is told, and how. Pure.
//!
//! Nothing, unless the operator asks for it. What is told is cut, and what looks like a secret is left out.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::redact::redact;
use crate::config::TracedContent;
use crate::types::conversation::{Content as Written, PartKind};
use crate::types::event::Turn;
use crate::types::{Message, Role};

/// How much of what was said is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Content {
    /// Nothing.
    #[default]
    Off,
    /// The beginning of each text.
    Previews,
    /// All, up to a bound.
    Full,
}

/// A message, by the conventions.
#[derive(Serialize)]
struct Told<'a> {
    role: &'static str,
    parts: Vec<ToldPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ToldPart<'a> {
    Text {
        content: String,
    },
    Reasoning {
        content: String,
    },
    ToolCall {
        id: &'a str,
        name: String,
        arguments: String,
    },
    ToolCallResponse {
        id: &'a str,
        response: String,
    },
    /// Something else, which is not told.
    Blob,
}

impl From<TracedContent> for Content {
    fn from(configured: TracedContent) -> Self {
        match configured {
            TracedContent::Off => Self::Off,
            TracedContent::Previews => Self::Previews,
            TracedContent::Full => Self::Full,
        }
    }
}

impl Content {
    /// How many characters of all that one attribute says are told.
    fn limit(self) -> usize {
        match self {
            Self::Off => 0,
            Self::Previews => 500,
            Self::Full => 50_000,
        }
    }

    /// A text as it is told; `None` if none is.
    #[must_use]
    pub fn text(self, text: &str) -> Option<String> {
        (self != Self::Off).then(|| redact(beginning(text, self.limit())).chars().take(self.limit()).collect())
    }

    /// Messages as they are told.
    #[must_use]
    pub fn messages(self, messages: &[Message]) -> String {
        let mut left = Budget(self.limit());
        let mut all = Vec::new();
        for message in messages {
            if !left.has_room() {
                break;
            }
            all.push(told(message, &mut left));
        }
        json(&all)
    }

    /// Instructions as they are told: their parts, whichever messages they are of.
    #[must_use]
    pub fn instructions(self, messages: &[Message]) -> String {
        let mut left = Budget(self.limit());
        let parts: Vec<_> = messages.iter().flat_map(|message| told(message, &mut left).parts).collect();
        json(&parts)
    }

    /// What the model said in a turn; `None` if that is not told.
    #[must_use]
    pub fn turn(self, turn: &Turn, finish_reason: &str) -> Option<String> {
        if self == Self::Off {
            return None;
        }
        let mut left = Budget(self.limit());
        let parts = turn.parts.iter().map_while(|part| told_part(&part.kind, &mut left)).collect();
        Some(json(&[Told { role: "assistant", parts, finish_reason: Some(finish_reason) }]))
    }
}

/// How many characters may still be told, as they are written.
struct Budget(usize);

/// What a message or a part of one takes beside its texts, about.
const FRAME: usize = 48;

/// The longest name that a model writes, as far as it is told.
const LONGEST_NAME: usize = 64;

impl Budget {
    fn has_room(&self) -> bool {
        self.0 > FRAME
    }

    /// Takes what stands around a message or a part; `None` without room for it.
    fn frame(&mut self) -> Option<()> {
        self.0 = self.0.checked_sub(FRAME)?;
        Some(())
    }

    /// As much of a text as there is room for.
    fn take(&mut self, text: &str) -> String {
        let (mut told, mut left) = (String::new(), self.0);
        for c in redact(beginning(text, self.0)).chars() {
            let Some(rest) = left.checked_sub(written(c)) else { break };
            left = rest;
            told.push(c);
        }
        self.0 = left;
        told
    }
}

/// The beginning of a text that so many characters are told of. A secret that the cut would halve is seen whole.
fn beginning(text: &str, told: usize) -> &str {
    let end = text.char_indices().nth(told.saturating_add(256)).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// How many characters this one takes in a string of JSON.
fn written(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => 1,
    }
}

fn told<'a>(message: &'a Message, left: &mut Budget) -> Told<'a> {
    let role = match message.role {
        Role::System | Role::Developer => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let parts = match (left.frame(), message.content()) {
        (None, _) => Vec::new(),
        (_, Written::Encoded(_, json)) => vec![ToldPart::Text { content: left.take(&text_of(json.get())) }],
        (_, Written::Parts(parts)) => parts.list.iter().map_while(|part| told_part(&part.kind, left)).collect(),
    };
    Told { role, parts, finish_reason: None }
}

/// A part as it is told; `None` without room for it.
fn told_part<'a>(part: &'a PartKind, left: &mut Budget) -> Option<ToldPart<'a>> {
    left.frame()?;
    Some(match part {
        PartKind::Text(text) | PartKind::Refusal(text) => ToldPart::Text { content: left.take(text) },
        PartKind::Link(link) => ToldPart::Text { content: left.take(&link.uri) },
        PartKind::Thinking(thinking) => ToldPart::Reasoning { content: left.take(&thinking.text) },
        PartKind::ToolCall(call) => {
            let name: String = call.name.chars().take(LONGEST_NAME).collect();
            let name = left.take(&name);
            ToldPart::ToolCall { id: call.id.as_str(), name, arguments: left.take(&call.arguments) }
        }
        PartKind::ToolResult(result) => {
            let text = crate::types::conversation::lines(&result.parts);
            ToldPart::ToolCallResponse { id: result.call.as_str(), response: left.take(&text) }
        }
        PartKind::Image { .. } | PartKind::Audio { .. } | PartKind::File { .. } | PartKind::Unknown { .. } => {
            ToldPart::Blob
        }
    })
}

/// The text of a message that is kept as it arrived. Of one that is more than text, its content as it was written.
fn text_of(json: &str) -> Cow<'_, str> {
    #[derive(serde::Deserialize)]
    struct Encoded<'a> {
        #[serde(borrow)]
        content: Option<&'a RawValue>,
    }
    let Ok(Encoded { content: Some(content) }) = serde_json::from_str(json) else { return Cow::Borrowed("") };
    serde_json::from_str(content.get()).map_or(Cow::Borrowed(content.get()), Cow::Owned)
}

fn json(told: &impl Serialize) -> String {
    serde_json::to_string(told).unwrap_or_default()
}
