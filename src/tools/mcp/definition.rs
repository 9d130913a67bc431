//! What a server says of its tools, as far as it can be offered.
//!
//! The server may be compromised: a tool that cannot be offered is left out, and takes none of the others with it.

use std::collections::HashSet;

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::config::{Hints, McpServerConfig};
use crate::tools::mcp::names::exposed;
use crate::tools::schema;
use crate::tools::truncate::truncate;
use crate::types::Effect;
use crate::types::json::RawValueEq;
use crate::types::offer::OfferHash;
use crate::types::pattern::matches;

/// Most bytes of a description.
const MAX_DESCRIPTION: usize = 8 << 10;
/// Longest name that a server may give a tool.
const MAX_OWN_NAME: usize = 256;
/// Longest schema of a tool's arguments.
const MAX_SCHEMA: usize = 128 << 10;

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// What the server calls it.
    pub own_name: String,
    /// What models call it.
    pub name: String,
    /// What it does, as the server says.
    pub description: String,
    /// The schema of its arguments.
    pub parameters: RawValueEq,
    /// What repeating a call does, as the operator says.
    pub effect: Effect,
    /// What the server says of that, whether or not it is believed.
    pub hints: Hints,
    /// The SHA-256 of all that the server says of it, in hex.
    pub hash: OfferHash,
}

/// What a server lists: the tools that the operator wants and that can be offered, in the order of their names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Offered {
    pub(super) definitions: Vec<Definition>,
    /// The other wanted tools, by name, each with why it cannot be offered, as the end of a sentence.
    pub(super) left_out: Vec<(String, String)>,
}

/// Reads what a server lists.
pub(super) fn read(config: &McpServerConfig, listed: &[Value]) -> Offered {
    let is_wanted = |name: &str| {
        let named = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        named(&config.tools) && !named(&config.exclude)
    };
    let (mut found, mut names) = (Vec::<Listed<'_>>::new(), HashSet::new());
    let mut left_out = Vec::new();
    for tool in listed {
        match Listed::read(tool) {
            Ok(tool) if !is_wanted(tool.name) => {}
            Ok(tool) if !names.insert(tool.name) => {
                left_out.push((tool.name.to_owned(), "the server lists it twice".to_owned()));
            }
            Ok(tool) => found.push(tool),
            Err((name, _)) if !name.is_empty() && !is_wanted(name) => {}
            Err((name, why)) => left_out.push((name.to_owned(), why)),
        }
    }
    let names = exposed(&config.name, &found.iter().map(|tool| tool.name).collect::<Vec<_>>());
    let mut definitions: Vec<Definition> =
        found.iter().zip(names).map(|(tool, name)| tool.definition(config, name)).collect();
    definitions.sort_by(|a, b| a.name.cmp(&b.name));
    Offered { definitions, left_out }
}

/// A tool as the server lists it.
struct Listed<'a> {
    name: &'a str,
    parameters: Box<RawValue>,
    whole: &'a Value,
}

impl<'a> Listed<'a> {
    /// Reads what is listed; the error names the tool, and says in one sentence why it cannot be offered.
    fn read(tool: &'a Value) -> Result<Self, (&'a str, String)> {
        let name = tool["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            return Err(("", "it has no name".to_owned()));
        }
        if name.len() > MAX_OWN_NAME {
            let shown = &name[..name.floor_char_boundary(MAX_OWN_NAME)];
            return Err((shown, format!("its name is longer than {MAX_OWN_NAME} bytes")));
        }
        let parameters = parameters(&tool["inputSchema"]).map_err(|why| (name, why))?;
        Ok(Self { name, parameters, whole: tool })
    }

    fn definition(&self, config: &McpServerConfig, name: String) -> Definition {
        let text = |member: &str| self.whole[member].as_str().filter(|text| !text.trim().is_empty());
        let description = text("description").or_else(|| text("title")).unwrap_or(self.name);
        let annotations = &self.whole["annotations"];
        let hints =
            Hints { read_only: annotations["readOnlyHint"] == true, idempotent: annotations["idempotentHint"] == true };
        Definition {
            own_name: self.name.to_owned(),
            description: truncate(description, MAX_DESCRIPTION).0.into_owned(),
            parameters: RawValueEq(self.parameters.clone()),
            effect: config.effects.of(self.name, hints),
            hints,
            // The members of objects are in the order of their names.
            hash: OfferHash::of(self.whole.to_string().as_bytes()),
            name,
        }
    }
}

/// The schema of a tool's arguments, if they can be checked by it.
fn parameters(schema: &Value) -> Result<Box<RawValue>, String> {
    let mut members = match schema {
        Value::Object(members) => members.clone(),
        Value::Null => serde_json::Map::new(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err("the schema of its arguments is no object".to_owned());
        }
    };
    match members.get("type") {
        None => drop(members.insert("type".to_owned(), "object".into())),
        Some(kind) if kind == "object" => {}
        Some(_) => return Err("the schema of its arguments describes no object".to_owned()),
    }
    // Some vendors refuse a schema without them.
    members.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
    let written = to_raw_value(&members).map_err(|error| error.to_string())?;
    if written.get().len() > MAX_SCHEMA {
        return Err(format!("the schema of its arguments is longer than {MAX_SCHEMA} bytes"));
    }
    schema::compile(&written)?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::mcp::testing::config;

    #[test]
    fn tools_that_cannot_be_offered_are_left_out_alone() {
        let listed = [
            json!({"name": "good", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}),
            json!({"name": "bare", "title": "Bare", "description": " "}),
            json!({"name": "remote", "inputSchema": {"type": "object", "$ref": "http://169.254.169.254/"}}),
            json!({"name": "list", "inputSchema": {"type": "array"}}),
            json!({"name": "x".repeat(300)}),
            json!({"name": "huge", "inputSchema": {"type": "object", "description": "x".repeat(200_000)}}),
            json!({"description": "nameless"}),
            json!("text"),
            json!({"name": "good", "description": "again"}),
        ];
        let Offered { definitions: tools, left_out } = read(&config("s"), &listed);
        let names: Vec<(&str, &str)> =
            tools.iter().map(|tool| (tool.name.as_str(), tool.description.as_str())).collect();
        assert_eq!(names, [("s__bare", "Bare"), ("s__good", "good")]);
        assert_eq!(tools[0].parameters.get(), r#"{"properties":{},"type":"object"}"#);
        assert_eq!(tools[1].effect, Effect::Write, "what a server says of itself is not believed");
        let huge = left_out.iter().find(|(name, _)| name == "huge").unwrap();
        assert_eq!((left_out.len(), huge.1.as_str()), (7, "the schema of its arguments is longer than 131072 bytes"));
    }

    #[test]
    fn the_operator_chooses_among_them() {
        let listed = ["get_a", "get_b", "set_a"].map(|name| json!({ "name": name }));
        let config = McpServerConfig { tools: vec!["get_*".into()], exclude: vec!["*_b".into()], ..config("s") };
        let tools = read(&config, &listed).definitions;
        assert_eq!(tools.iter().map(|tool| tool.own_name.as_str()).collect::<Vec<_>>(), ["get_a"]);
    }

    #[test]
    fn every_change_of_what_a_server_says_changes_the_hash_and_the_order_of_members_does_not() {
        let hash =
            |listed: &str| read(&config("s"), &[serde_json::from_str(listed).unwrap()]).definitions[0].hash.clone();
        let first = hash(r#"{"name": "a", "description": "x", "inputSchema": {"type": "object"}}"#);
        assert_eq!(first, hash(r#"{"inputSchema": {"type": "object"}, "description": "x", "name": "a"}"#));
        assert_ne!(first, hash(r#"{"name": "a", "description": "y", "inputSchema": {"type": "object"}}"#));
        assert_ne!(first, hash(r#"{"name": "a", "description": "x", "inputSchema": {"type": "object", "a": 1}}"#));
    }
}
