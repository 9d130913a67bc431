//! Messages in OpenAI's chat dialect: typed parts into JSON, and JSON into typed parts.
//!
//! Both directions are pure. Reading keeps members that it does not know, and writing puts them back. So a message
//! that is read and written again has the same meaning, member by member. Parts that the dialect has no place for (a
//! signature of thinking, a picture in a tool's result) are left out or replaced by a note.

mod decode;
mod encode;
pub(super) mod manner;
pub(super) mod pictures;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::Serialize;

use crate::types::conversation::{Content, Dialect, Message, Parts, ToolCall};

/// The message as a JSON object. One that arrived so is copied; any other is encoded once.
#[must_use]
pub fn json(message: &Message) -> &str {
    message.encoded(Dialect::OpenaiChat, |_| match parts(message) {
        Ok(parts) => encode::encode(message.role, &parts),
        Err(_) => encode::encode(message.role, &Parts::default()),
    })
}

/// What a message says, by parts.
pub fn parts(message: &Message) -> Result<Cow<'_, Parts>, serde_json::Error> {
    match message.content() {
        Content::Encoded(Dialect::OpenaiChat, json) => decode::decode(json.get()).map(Cow::Owned),
        Content::Encoded(Dialect::AnthropicMessages | Dialect::OpenaiResponses | Dialect::GeminiContents, _) => {
            Err(<serde_json::Error as serde::de::Error>::custom("no message arrives in this dialect"))
        }
        Content::Parts(parts) => Ok(Cow::Borrowed(parts)),
    }
}

/// A tool call in the shape of an assistant message's `tool_calls`.
#[derive(Debug, Serialize)]
pub struct CallJson<'a> {
    id: &'a str,
    r#type: &'static str,
    function: FunctionJson<'a>,
}

#[derive(Debug, Serialize)]
struct FunctionJson<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> From<&'a ToolCall> for CallJson<'a> {
    fn from(call: &'a ToolCall) -> Self {
        let function = FunctionJson { name: &call.name, arguments: &call.arguments };
        Self { id: call.id.as_str(), r#type: "function", function }
    }
}

/// The messages of a request, separated by commas.
#[cfg(test)]
pub(crate) fn joined(conversation: &crate::types::Conversation) -> String {
    conversation.iter().map(json).collect::<Vec<_>>().join(",")
}
