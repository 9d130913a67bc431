//! Content that is a list of parts, as reasoning models of Mistral write it.

use serde_json::Value;

/// The chunk with each such list as the two strings that other servers write: text, and reasoning. `None` if it has none.
pub(super) fn as_strings(json: &[u8]) -> Option<String> {
    let mut chunk: Value = serde_json::from_slice(json).ok()?;
    let mut has_list = false;
    for choice in chunk.get_mut("choices")?.as_array_mut()? {
        for member in ["delta", "message"] {
            let Some(message) = choice.get_mut(member).and_then(Value::as_object_mut) else { continue };
            let Some(Value::Array(parts)) = message.get("content") else { continue };
            let (text, thinking) = (said(parts, "text"), said(parts, "thinking"));
            message.insert("content".to_owned(), text.into());
            message.insert("reasoning_content".to_owned(), thinking.into());
            has_list = true;
        }
    }
    has_list.then(|| chunk.to_string())
}

/// What the parts of this kind say, each in the member of that name: a string, or a list of further parts.
fn said(parts: &[Value], kind: &str) -> String {
    let of_kind = parts.iter().filter(|part| part["type"] == kind);
    of_kind.map(|part| part[kind].as_array().map_or_else(|| text(&part[kind]), |parts| said(parts, "text"))).collect()
}

fn text(said: &Value) -> String {
    said.as_str().unwrap_or_default().to_owned()
}
