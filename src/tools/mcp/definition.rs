//! What a server says of its tools, as far as it can be offered.
//!
//! The server may be compromised: a tool that cannot be offered is left out, and takes none of the others with it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::config::{Hints, McpServerConfig};
use crate::tools::mcp::names::exposed;
use crate::tools::schema::{self, Allowance, Schema};
use crate::tools::truncate::truncate;
use crate::types::Effect;
use crate::types::json::RawValueEq;
use crate::types::offer::OfferHash;
use crate::types::pattern::matches;

/// Most bytes of a description.
const MAX_DESCRIPTION: usize = 8 << 10;
/// Longest name that a server may give a tool.
const MAX_OWN_NAME: usize = 256;

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
#[derive(Debug, Default)]
pub(super) struct Offered {
    /// Each with the schema of its arguments, compiled.
    pub(super) tools: Vec<(Definition, Arc<Schema>)>,
    /// The other wanted tools, by name, each with why it cannot be offered, as the end of a sentence.
    pub(super) left_out: Vec<(String, String)>,
}

/// What was compiled of the list before, by the hashes of the definitions.
pub(super) type Known = HashMap<OfferHash, Arc<Schema>>;

/// Reads what a server lists. This may take seconds: a server may list what is much work.
pub(super) fn read(config: &McpServerConfig, listed: &[Value], known: &Known) -> Offered {
    let is_wanted = |name: &str| {
        let named = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        named(&config.tools) && !named(&config.exclude)
    };
    let (mut found, mut names) = (Vec::<Listed<'_>>::new(), HashSet::new());
    let (mut left_out, mut allowance) = (Vec::new(), Allowance::default());
    for tool in listed {
        let (name, is_named) = match own_name(tool) {
            Ok(name) => (name, Ok(())),
            Err((name, why)) => (name, Err(why)),
        };
        if !name.is_empty() && !is_wanted(name) {
            continue;
        }
        let read = is_named.and_then(|()| {
            if !names.insert(name) {
                return Err("the server lists it twice".to_owned());
            }
            Listed::read(name, tool, known, &mut allowance)
        });
        match read {
            Ok(tool) => found.push(tool),
            Err(why) => left_out.push((name.to_owned(), why)),
        }
    }
    let names = exposed(&config.name, &found.iter().map(|tool| tool.name).collect::<Vec<_>>());
    let tools = found.into_iter().zip(names).map(|(tool, name)| (tool.definition(config, name), tool.schema));
    let mut tools: Vec<(Definition, Arc<Schema>)> = tools.collect();
    tools.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    Offered { tools, left_out }
}

/// What a server calls a tool; the error has as much of the name as is shown, and says why the tool cannot be offered.
fn own_name(tool: &Value) -> Result<&str, (&str, String)> {
    let name = tool["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        return Err(("", "it has no name".to_owned()));
    }
    if name.len() > MAX_OWN_NAME {
        let shown = &name[..name.floor_char_boundary(MAX_OWN_NAME)];
        return Err((shown, format!("its name is longer than {MAX_OWN_NAME} bytes")));
    }
    Ok(name)
}

/// A tool as the server lists it.
struct Listed<'a> {
    name: &'a str,
    parameters: Box<RawValue>,
    schema: Arc<Schema>,
    hash: OfferHash,
    whole: &'a Value,
}

impl<'a> Listed<'a> {
    /// Reads what is listed, and compiles what is not known yet; the error says in one sentence why it cannot be offered.
    fn read(name: &'a str, tool: &'a Value, known: &Known, allowance: &mut Allowance) -> Result<Self, String> {
        let parameters = parameters(&tool["inputSchema"])?;
        // The members of objects are in the order of their names.
        let hash = OfferHash::of(tool.to_string().as_bytes());
        let schema = match known.get(&hash) {
            Some(schema) => {
                schema.take_from(allowance)?;
                schema.clone()
            }
            None => Arc::new(schema::compile_within(&parameters, allowance)?),
        };
        Ok(Self { name, parameters, schema, hash, whole: tool })
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
            hash: self.hash.clone(),
            name,
        }
    }
}

/// The schema of a tool's arguments, if it may be one by which they can be checked.
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
    if written.get().len() > schema::MAX_BYTES {
        return Err(format!("the schema of its arguments is longer than {} bytes", schema::MAX_BYTES));
    }
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
        let Offered { tools, left_out } = read(&config("s"), &listed, &Known::new());
        let tools: Vec<Definition> = tools.into_iter().map(|(definition, _)| definition).collect();
        let names: Vec<(&str, &str)> =
            tools.iter().map(|tool| (tool.name.as_str(), tool.description.as_str())).collect();
        assert_eq!(names, [("s__bare", "Bare"), ("s__good", "good")]);
        assert_eq!(tools[0].parameters.get(), r#"{"properties":{},"type":"object"}"#);
        assert_eq!(tools[1].effect, Effect::Write, "what a server says of itself is not believed");
        let huge = left_out.iter().find(|(name, _)| name == "huge").unwrap();
        assert_eq!((left_out.len(), huge.1.as_str()), (7, "the schema of its arguments is longer than 65536 bytes"));
    }

    #[test]
    fn the_operator_chooses_among_them() {
        let listed = ["get_a", "get_b", "set_a"].map(|name| json!({ "name": name }));
        let config = McpServerConfig { tools: vec!["get_*".into()], exclude: vec!["*_b".into()], ..config("s") };
        let tools = read(&config, &listed, &Known::new()).tools;
        assert_eq!(tools.iter().map(|(tool, _)| tool.own_name.as_str()).collect::<Vec<_>>(), ["get_a"]);
    }

    #[test]
    fn a_list_takes_bounded_work_and_memory_and_what_is_unchanged_is_not_compiled_again() {
        let pattern = |number: usize| format!("^[a-z]{{5000}}{number}$");
        let listed: Vec<Value> = (0..40)
            .map(|number| json!({"name": format!("t{number:02}"), "inputSchema": {"pattern": pattern(number)}}))
            .collect();
        let first = read(&config("s"), &listed, &Known::new());
        assert_eq!((first.tools.len(), first.left_out.len()), (32, 8), "{:?}", first.left_out);
        assert!(first.left_out[0].1.contains("of its server together"), "{:?}", first.left_out);
        let known: Known =
            first.tools.iter().map(|(definition, schema)| (definition.hash.clone(), schema.clone())).collect();
        let again = read(&config("s"), &listed[8..], &known);
        let is_kept = |(definition, schema): &(Definition, Arc<Schema>)| {
            known.get(&definition.hash).is_some_and(|known| Arc::ptr_eq(known, schema))
        };
        assert_eq!((again.tools.len(), again.tools.iter().filter(|tool| is_kept(tool)).count()), (32, 24));
        let all = read(&config("s"), &listed, &known);
        assert_eq!(all.tools.len(), 32, "what is known counts too");
        let unwanted = McpServerConfig { tools: vec!["t39".into()], ..config("s") };
        assert_eq!(read(&unwanted, &listed, &Known::new()).tools.len(), 1, "other tools take nothing");
    }

    #[test]
    fn every_change_of_what_a_server_says_changes_the_hash_and_the_order_of_members_does_not() {
        let hash = |listed: &str| {
            let tools = read(&config("s"), &[serde_json::from_str(listed).unwrap()], &Known::new()).tools;
            tools[0].0.hash.clone()
        };
        let first = hash(r#"{"name": "a", "description": "x", "inputSchema": {"type": "object"}}"#);
        assert_eq!(first, hash(r#"{"inputSchema": {"type": "object"}, "description": "x", "name": "a"}"#));
        assert_ne!(first, hash(r#"{"name": "a", "description": "y", "inputSchema": {"type": "object"}}"#));
        assert_ne!(first, hash(r#"{"name": "a", "description": "x", "inputSchema": {"type": "object", "a": 1}}"#));
    }
}
