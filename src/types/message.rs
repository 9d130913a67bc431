//! Chat messages, kept in OpenAI's JSON.
//!
//! A message is encoded once, when it comes into being, and from then on copied: into the store, into
//! the next model request, back to the client. Who needs to look inside (another vendor's dialect)
//! decodes it.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::types::{CallId, ToolCall};

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

/// One chat message as a JSON object in OpenAI's shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    json: Arc<str>,
}

impl Message {
    /// A message that arrived as JSON and was found valid.
    #[must_use]
    pub fn from_valid_json(role: Role, json: &str) -> Self {
        Self { role, json: json.into() }
    }

    /// A message of plain text.
    #[must_use]
    pub fn text(role: Role, content: &str) -> Self {
        Self::encode(&Text { role, content })
    }

    /// What the model said and which tools it called. `text` may be empty.
    #[must_use]
    pub fn assistant(text: &str, calls: &[ToolCall]) -> Self {
        let tool_calls = calls.iter().map(CallJson::from).collect();
        let content = (!text.is_empty() || calls.is_empty()).then_some(text);
        Self::encode(&Assistant { role: Role::Assistant, content, tool_calls })
    }

    /// A tool's answer.
    #[must_use]
    pub fn tool(call: &CallId, content: &str) -> Self {
        Self::encode(&Tool { role: Role::Tool, tool_call_id: call.as_str(), content })
    }

    /// The JSON object.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }

    fn encode<T: Serialize + HasRole>(message: &T) -> Self {
        let json = serde_json::to_string(message).expect("strings and enums always encode");
        Self { role: message.role(), json: json.into() }
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

#[derive(Serialize)]
struct Text<'a> {
    role: Role,
    content: &'a str,
}

#[derive(Serialize)]
struct Assistant<'a> {
    role: Role,
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallJson<'a>>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "these are the wire's names")]
struct Tool<'a> {
    role: Role,
    tool_call_id: &'a str,
    content: &'a str,
}

trait HasRole {
    fn role(&self) -> Role;
}
macro_rules! has_role {
    ($($message:ident),*) => { $(impl HasRole for $message<'_> {
        fn role(&self) -> Role { self.role }
    })* };
}
has_role!(Text, Assistant, Tool);

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.json).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Head {
            role: Role,
        }
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let head: Head = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
        Ok(Self { role: head.role, json: raw.get().into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_openais() {
        let call = ToolCall { id: CallId::foreign("call_1"), name: "add".into(), arguments: "{\"a\":1}".into() };
        assert_eq!(
            Message::assistant("", &[call]).json(),
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]}"#
        );
        assert_eq!(Message::assistant("", &[]).json(), r#"{"role":"assistant","content":""}"#);
        assert_eq!(
            Message::tool(&CallId::foreign("call_1"), "3").json(),
            r#"{"role":"tool","tool_call_id":"call_1","content":"3"}"#
        );
        let text = Message::text(Role::User, "a \"b\"\n");
        let back: Message = serde_json::from_str(&serde_json::to_string(&text).unwrap()).unwrap();
        assert_eq!(back, text);
    }
}
