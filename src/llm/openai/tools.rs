//! Tools and the choice among them in OpenAI's chat dialect.

use serde_json::value::RawValue;

use crate::llm::object::Object;
use crate::types::conversation::{Dialect, Extra};
use crate::types::json::Members;
use crate::types::offer::{ToolChoice, ToolDefinition, ToolOffer};

/// The tools, by pieces that have commas between their tools.
pub(super) fn pieces(offer: &ToolOffer) -> impl Iterator<Item = &str> {
    offer.encoded(Dialect::OpenaiChat, write).map(|(piece, _)| piece)
}

fn write(tool: &ToolDefinition, out: &mut Vec<u8>) {
    let mut object = Object::open(out, Dialect::OpenaiChat, &tool.extra);
    object.text("type", "function");
    object.nested("function", |function| {
        function.text("name", &tool.name);
        if let Some(description) = &tool.description {
            function.text("description", description);
        }
        if let Some(parameters) = &tool.parameters {
            function.json("parameters", parameters.get());
        }
        if let Some(strict) = &tool.strict {
            function.value("strict", strict);
        }
    });
    object.close();
}

/// A function tool of a request's `tools`; `None` if it is not one.
#[must_use]
pub fn decode(json: &RawValue) -> Option<ToolDefinition> {
    let mut members: Members = serde_json::from_str(json.get()).ok()?;
    members.read::<String>("type").filter(|kind| kind == "function")?;
    let tool = members.open("function", |function| {
        let name = function.read("name")?;
        let (description, strict) = (function.read("description"), function.read("strict"));
        let is_given = function.get("parameters").is_some_and(|schema| schema != "null");
        let parameters = if is_given { function.take("parameters") } else { None };
        Some(ToolDefinition { name, description, parameters, strict, extra: Extra::default() })
    })?;
    Some(ToolDefinition { extra: Extra::new(Dialect::OpenaiChat, members), ..tool })
}

/// `tool_choice`, where it is not left to the model.
pub(super) fn choice(choice: &ToolChoice) -> Option<String> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some("\"none\"".to_owned()),
        ToolChoice::Required => Some("\"required\"".to_owned()),
        ToolChoice::Function(name) => {
            Some(serde_json::json!({ "type": "function", "function": { "name": name } }).to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::types::json::RawValueEq;

    fn array(offer: &ToolOffer) -> String {
        format!("[{}]", pieces(offer).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn a_servers_tool_leaves_in_exactly_these_bytes() {
        let parameters: Box<RawValue> =
            serde_json::from_str(r#"{"type": "object", "properties": {"b": {"type": "number"}, "a": {}}}"#).unwrap();
        let full = ToolDefinition {
            name: "add".into(),
            description: Some("Adds \"b\".\n".into()),
            parameters: Some(RawValueEq(parameters)),
            ..ToolDefinition::default()
        };
        let bare = ToolDefinition { name: "now".into(), ..ToolDefinition::default() };
        let offer: ToolOffer = [full, bare].into_iter().map(Arc::new).collect();
        let expected = concat!(
            r#"[{"type":"function","function":{"name":"add","description":"Adds \"b\".\n","parameters":"#,
            r#"{"type": "object", "properties": {"b": {"type": "number"}, "a": {}}}}},"#,
            r#"{"type":"function","function":{"name":"now"}}]"#,
        );
        assert_eq!(array(&offer), expected);
    }

    #[test]
    fn a_clients_tool_goes_upstream_as_it_came() {
        let tools = [
            json!({ "type": "function", "function": { "name": "a" } }),
            json!({ "type": "function", "function": {
                "name": "b", "description": "B\n", "parameters": { "type": "object", "x": 1.50 }, "strict": true,
            } }),
            json!({ "type": "function", "cache_control": { "type": "ephemeral" }, "function": {
                "name": "c", "description": null, "parameters": null, "strict": null, "returns": [1],
            } }),
        ];
        let read = |tool: &Value| decode(&serde_json::value::to_raw_value(tool).unwrap()).map(Arc::new);
        let offer: ToolOffer = tools.iter().map(|tool| read(tool).unwrap()).collect();
        assert_eq!(serde_json::from_str::<Value>(&array(&offer)).unwrap(), Value::from(tools.to_vec()));
        assert_eq!(offer.tools().nth(2).unwrap().parameters, None);
        for other in [json!({ "type": "custom" }), json!({ "type": "function", "function": { "name": 7 } })] {
            assert_eq!(read(&other), None, "{other}");
        }
    }
}
