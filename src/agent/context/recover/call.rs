//! The shapes in which models write calls.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::llm::ModelCall;

/// `{"name": …, "arguments": {…}}` and its relatives: `parameters` for `arguments`, either of them as a
/// string of JSON, the whole under `function`, or the name alone there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
    #[serde(borrow)]
    function: Option<&'a RawValue>,
    #[serde(rename = "type")]
    _type: Option<&'a RawValue>,
    #[serde(rename = "id")]
    _id: Option<&'a RawValue>,
}

/// The calls in a JSON value: an object that is one, or an array of them. `None` if anything in it is
/// not a call.
pub(super) fn decode(value: &str) -> Option<Vec<ModelCall>> {
    if value.starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(value).ok()?;
        return items.into_iter().map(|item| call(item.get())).collect();
    }
    Some(vec![call(value)?])
}

fn call(value: &str) -> Option<ModelCall> {
    let written: Written<'_> = serde_json::from_str(value).ok()?;
    let arguments = match (written.arguments, written.parameters) {
        (Some(arguments), None) | (None, Some(arguments)) => Some(object(arguments)?),
        (None, None) => None,
        (Some(_), Some(_)) => return None,
    };
    match (written.name, written.function, arguments) {
        (Some(name), None, Some(arguments)) => Some(ModelCall { name, arguments }),
        (None, Some(function), Some(arguments)) => {
            let name = serde_json::from_str(function.get()).ok()?;
            Some(ModelCall { name, arguments })
        }
        // The wrapper holds no wrapper: what is within is a name and arguments.
        (None, Some(function), None) => {
            let inner: Written<'_> = serde_json::from_str(function.get()).ok()?;
            if inner.function.is_some() {
                return None;
            }
            call(function.get())
        }
        _ => None,
    }
}

/// Whether a tool's name may have this character.
pub(super) fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// A text as JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The text of an object that is written as such or as a string.
fn object(arguments: &RawValue) -> Option<String> {
    let text = match serde_json::from_str::<String>(arguments.get()) {
        Ok(text) if text.trim().is_empty() => "{}".to_owned(),
        Ok(text) => serde_json::from_str::<&RawValue>(&text).ok()?.get().to_owned(),
        Err(_) => arguments.get().to_owned(),
    };
    text.starts_with('{').then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_shape_of_a_call_is_read() {
        let a = || ModelCall { name: "a".into(), arguments: "{\"x\": 1}".into() };
        for value in [
            r#"{"name": "a", "arguments": {"x": 1}}"#,
            r#"{"parameters": {"x": 1}, "name": "a"}"#,
            r#"{"name": "a", "arguments": "{\"x\": 1}"}"#,
            r#"{"type": "function", "id": "call_1", "function": {"name": "a", "arguments": " {\"x\": 1} "}}"#,
            r#"{"type": "function", "name": "a", "parameters": {"x": 1}}"#,
            r#"{"function": "a", "arguments": {"x": 1}}"#,
        ] {
            assert_eq!(decode(value), Some(vec![a()]), "{value}");
            assert_eq!(decode(&format!("[{value} , {value}]")), Some(vec![a(), a()]), "{value}");
        }
        assert_eq!(decode(r#"{"name": "a", "arguments": ""}"#).unwrap()[0].arguments, "{}");
        for value in [
            "{}",
            r#"{"name": "a"}"#,
            r#"{"name": "a", "arguments": null}"#,
            r#"{"name": "a", "arguments": [1]}"#,
            r#"{"name": "a", "arguments": "x"}"#,
            r#"{"name": "a", "arguments": "[1]"}"#,
            r#"{"name": 1, "arguments": {}}"#,
            r#"{"name": "a", "arguments": {}, "parameters": {}}"#,
            r#"{"name": "a", "name": "b", "arguments": {}}"#,
            r#"{"name": "a", "arguments": {}, "age": 7}"#,
            r#"{"function": {"function": {"name": "a", "arguments": {}}}}"#,
            r#"[{"name": "a", "arguments": {}}, {"name": "a"}]"#,
        ] {
            assert_eq!(decode(value), None, "{value}");
        }
        assert_eq!(decode("[]"), Some(Vec::new()));
    }
}
