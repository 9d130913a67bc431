//! One message: its role, its origin and its parts.
//!
//! A message that arrived in a dialect stays as it was written, and is copied when it leaves in the same dialect. Any
//! other encoding is made once, when it is first needed, and kept beside the message. `llm` encodes and decodes; this
//! module knows no dialect's members.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::origin::Origin;
use super::part::{Dialect, Extra, Part, PartKind, Parts, ToolCall, ToolResult};
use crate::types::CallId;
use crate::types::json::RawValueEq;

/// What a picture weighs, whatever its size: about what vendors count for one.
pub const MEDIA_WEIGHT: usize = 4_096;
/// What sound of so many base64 characters weighs. Models read 10 to 32 tokens in a second of it, four bytes each; the
/// second has 10,000 characters or more where it is not compressed, and 2,000 or more where it is.
#[must_use]
pub fn audio_weight(characters: usize, is_compressed: bool) -> usize {
    characters / if is_compressed { 16 } else { 64 }
}

/// Whether sound of this format is compressed.
#[must_use]
pub fn is_compressed_audio(format: &str) -> bool {
    !matches!(format, "wav" | "pcm16" | "l16")
}

/// What surrounds a message, about.
const FRAME_WEIGHT: usize = 32;
/// What counts the owners of a shared value, in bytes.
const SHARED: usize = 2 * size_of::<usize>();
/// What surrounds a call, about.
pub(super) const CALL_WEIGHT: usize = 64;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions; shapes one run and is not kept in a session.
    System,
    /// OpenAI's newer name for [`Role::System`].
    Developer,
    /// The person or program that asks.
    User,
    /// The model.
    Assistant,
    /// A tool's answer to one call.
    Tool,
}

/// One message of a conversation. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// Where it came from.
    pub origin: Origin,
    body: Arc<Body>,
}

#[derive(Debug)]
struct Body {
    content: Content,
    weight: usize,
    /// By dialect, what was made of `content`.
    encodings: [OnceLock<Box<str>>; Dialect::COUNT],
}

/// What a message says, in the form in which it came into being.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A JSON object, as it arrived.
    Encoded(Dialect, RawValueEq),
    /// Typed parts.
    Parts(Parts),
}

impl Message {
    /// A message that arrived in `dialect` and was found valid. `weight` is how many of its bytes the
    /// model reads as text.
    #[must_use]
    pub fn from_valid_json(role: Role, dialect: Dialect, json: Box<RawValue>, weight: usize) -> Self {
        Self::new(role, Content::Encoded(dialect, RawValueEq(json)), weight)
    }

    /// A message of typed parts.
    #[must_use]
    pub fn from_parts(role: Role, parts: Parts) -> Self {
        let weight = FRAME_WEIGHT + parts.list.iter().map(Part::weight).sum::<usize>();
        Self::new(role, Content::Parts(parts), weight)
    }

    /// A message of plain text.
    #[must_use]
    pub fn text(role: Role, text: &str) -> Self {
        Self::from_parts(role, Parts { list: vec![Part::text(text)], extra: Extra::default() })
    }

    /// What the model said and which tools it called. `text` may be empty.
    #[must_use]
    pub fn assistant(text: &str, calls: &[ToolCall]) -> Self {
        let text = (!text.is_empty()).then(|| Part::text(text));
        let calls = calls.iter().map(|call| PartKind::ToolCall(call.clone()).into());
        let list = text.into_iter().chain(calls).collect();
        Self::from_parts(Role::Assistant, Parts { list, extra: Extra::default() })
    }

    /// A tool's answer of plain text.
    #[must_use]
    pub fn tool(call: &CallId, text: &str) -> Self {
        let parts = vec![Part::text(text)];
        Self::result(ToolResult { call: call.clone(), parts, structured: None, is_error: false })
    }

    /// A tool's answer.
    #[must_use]
    pub fn result(result: ToolResult) -> Self {
        let list = vec![PartKind::ToolResult(Box::new(result)).into()];
        Self::from_parts(Role::Tool, Parts { list, extra: Extra::default() })
    }

    fn new(role: Role, content: Content, weight: usize) -> Self {
        let body = Body { content, weight, encodings: [const { OnceLock::new() }; Dialect::COUNT] };
        Self { role, origin: Origin::Given, body: Arc::new(body) }
    }

    /// The same message with this origin.
    #[must_use]
    pub fn from(self, origin: Origin) -> Self {
        Self { origin, ..self }
    }

    /// What it says, in the form in which it came into being.
    #[must_use]
    pub fn content(&self) -> &Content {
        &self.body.content
    }

    /// How many bytes of text it is to a model, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.body.weight
    }

    /// How many bytes of text, media and JSON it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.body.content {
            Content::Encoded(_, json) => json.get().len(),
            Content::Parts(parts) => parts.bytes(),
        }
    }

    /// How many bytes of memory it takes, about, once it was encoded in the dialect of its upstream.
    #[must_use]
    pub fn memory(&self) -> usize {
        let content = match &self.body.content {
            Content::Encoded(_, json) => json.get().len(),
            Content::Parts(parts) => parts.frames() + 2 * parts.bytes() + FRAME_WEIGHT,
        };
        size_of::<Self>() + SHARED + size_of::<Body>() + content
    }

    /// The message in `dialect`: as it arrived, or as `encode` made it when it was first asked for.
    pub fn encoded(&self, dialect: Dialect, encode: impl FnOnce(&Content) -> String) -> &str {
        match &self.body.content {
            Content::Encoded(own, json) if *own == dialect => json.get(),
            content @ (Content::Encoded(..) | Content::Parts(_)) => {
                self.body.encodings[dialect as usize].get_or_init(|| encode(content).into())
            }
        }
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.role == other.role && self.origin == other.origin && self.body.content == other.body.content
    }
}

impl Eq for Message {}

/// A message as it is stored.
#[derive(Serialize)]
struct Stored<'a> {
    role: Role,
    #[serde(skip_serializing_if = "is_given")]
    origin: &'a Origin,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoded: Option<(Dialect, usize, &'a RawValueEq)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<&'a Parts>,
}

/// A message as it is read from the store.
#[derive(Deserialize)]
struct Read {
    role: Role,
    #[serde(default)]
    origin: Origin,
    encoded: Option<(Dialect, usize, Box<RawValue>)>,
    parts: Option<Parts>,
}

fn is_given(origin: &Origin) -> bool {
    *origin == Origin::Given
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (encoded, parts) = match &self.body.content {
            Content::Encoded(dialect, json) => (Some((*dialect, self.body.weight, json)), None),
            Content::Parts(parts) => (None, Some(parts)),
        };
        Stored { role: self.role, origin: &self.origin, encoded, parts }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Read { role, origin, encoded, parts } = Read::deserialize(deserializer)?;
        let message = match encoded {
            Some((dialect, weight, json)) => Self::from_valid_json(role, dialect, json, weight),
            None => Self::from_parts(role, parts.ok_or_else(|| serde::de::Error::missing_field("parts"))?),
        };
        Ok(message.from(origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::RunId;

    #[test]
    fn what_is_stored_is_read_as_it_was() {
        let call = ToolCall { id: CallId::foreign("call_1"), name: "add".into(), arguments: "{\"a\":1}".into() };
        let json = RawValue::from_string(r#"{"role": "user","content":"hi" , "name":"ada"}"#.into()).unwrap();
        let run = RunId::mint();
        for message in [
            Message::assistant("so", &[call]).from(Origin::Step { run: run.clone(), step: 2 }),
            Message::tool(&CallId::foreign("call_1"), "3\n").from(Origin::Request { run, leg: 1, index: 0 }),
            Message::from_valid_json(Role::User, Dialect::OpenaiChat, json, 7),
        ] {
            let stored = serde_json::to_string(&message).unwrap();
            let read: Message = serde_json::from_str(&stored).unwrap();
            assert_eq!((&read, read.weight()), (&message, message.weight()), "{stored}");
        }
    }

    #[test]
    fn an_encoding_is_made_once_and_not_at_all_where_it_is_there() {
        let json = RawValue::from_string("{\"as\":\"it came\"}".into()).unwrap();
        let arrived = Message::from_valid_json(Role::User, Dialect::OpenaiChat, json, 0);
        assert_eq!(arrived.encoded(Dialect::OpenaiChat, |_| panic!("it is there")), "{\"as\":\"it came\"}");
        let ours = Message::text(Role::User, "x");
        assert_eq!(ours.encoded(Dialect::OpenaiChat, |_| "made".into()), "made");
        assert_eq!(ours.clone().encoded(Dialect::OpenaiChat, |_| panic!("it was made")), "made");
    }
}
