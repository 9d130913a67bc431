//! Schemas of a document as JSON schemas of arguments.
//!
//! What a schema refers to becomes a definition of the tool's own schema, so recursive schemas stay as they are. What only describes
//! answers, or tells people something, is left out: a model pays for every word of it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::document::Document;

/// Most schemas within one tool's schema.
const MAX_SCHEMAS: usize = 5_000;
/// How deeply schemas may be nested.
const MAX_DEPTH: usize = 64;

/// Members whose value is one schema.
const ONE: [&str; 10] = [
    "items",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "not",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
];
/// Members whose value is a list of schemas.
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Members whose value is a table of schemas.
const TABLES: [&str; 2] = ["patternProperties", "dependentSchemas"];
/// Members that are taken as they are.
const PLAIN: [&str; 22] = [
    "type",
    "title",
    "description",
    "default",
    "enum",
    "const",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "deprecated",
];

/// Makes JSON schemas of a document's schemas, and collects what they refer to.
pub(super) struct Schemas<'a> {
    document: &'a Document,
    definitions: BTreeMap<String, Value>,
    /// The name of the definition that a reference became.
    names: BTreeMap<String, String>,
    /// Those that are not looked into yet, each with its name.
    pending: Vec<(String, &'a Value)>,
    left: usize,
}

impl<'a> Schemas<'a> {
    pub(super) fn of(document: &'a Document) -> Self {
        Self { document, definitions: BTreeMap::new(), names: BTreeMap::new(), pending: Vec::new(), left: MAX_SCHEMAS }
    }

    /// What the schemas so far refer to.
    pub(super) fn into_definitions(mut self) -> Result<Option<Value>, String> {
        // One after the other, so that a long chain of references takes no stack.
        while let Some((name, schema)) = self.pending.pop() {
            let converted = self.convert(schema)?;
            self.definitions.insert(name, converted);
        }
        Ok((!self.definitions.is_empty()).then(|| self.definitions.into_iter().collect::<Map<_, _>>().into()))
    }

    /// The JSON schema of a schema.
    pub(super) fn convert(&mut self, schema: &Value) -> Result<Value, String> {
        self.nested(schema, 0)
    }

    fn nested(&mut self, schema: &Value, depth: usize) -> Result<Value, String> {
        self.left = self.left.checked_sub(1).ok_or("its schema is too large")?;
        if depth > MAX_DEPTH {
            return Err("its schema is nested too deeply".to_owned());
        }
        let members = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(members) => members,
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err("it has a schema that is no object".to_owned());
            }
        };
        let mut converted = Map::new();
        if let Some(reference) = members.get("$ref") {
            let reference = reference.as_str().ok_or("it has a reference that is no text")?;
            converted.insert("$ref".into(), self.definition(reference)?.into());
            // Beside a reference, 3.0 takes nothing else for said.
            if self.document.is_3_0 {
                return Ok(converted.into());
            }
        }
        if members.contains_key("$dynamicRef") || members.contains_key("$id") {
            return Err("its schema is one that names others by addresses, which is not read".to_owned());
        }
        for name in PLAIN {
            if let Some(value) = members.get(name) {
                converted.insert(name.into(), value.clone());
            }
        }
        self.inner(members, &mut converted, depth)?;
        self.properties(members, &mut converted, depth)?;
        if self.document.is_3_0 {
            as_today(members, &mut converted);
        }
        Ok(converted.into())
    }

    /// The schemas within a schema, but for its properties.
    fn inner(&mut self, from: &Map<String, Value>, into: &mut Map<String, Value>, depth: usize) -> Result<(), String> {
        for name in ONE {
            if let Some(schema) = from.get(name) {
                into.insert(name.into(), self.nested(schema, depth + 1)?);
            }
        }
        for name in LISTS {
            if let Some(Value::Array(schemas)) = from.get(name) {
                let schemas = schemas.iter().map(|schema| self.nested(schema, depth + 1));
                into.insert(name.into(), schemas.collect::<Result<Vec<_>, _>>()?.into());
            }
        }
        for name in TABLES {
            if let Some(Value::Object(schemas)) = from.get(name) {
                let schemas = schemas.iter().map(|(key, schema)| Ok((key.clone(), self.nested(schema, depth + 1)?)));
                into.insert(name.into(), schemas.collect::<Result<Map<_, _>, String>>()?.into());
            }
        }
        Ok(())
    }

    /// The properties that a request may have: those that only answers have are left out.
    fn properties(
        &mut self,
        from: &Map<String, Value>,
        into: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), String> {
        let mut left_out = Vec::new();
        if let Some(Value::Object(properties)) = from.get("properties") {
            let mut kept = Map::new();
            for (name, schema) in properties {
                if self.document.resolve(schema)?.get("readOnly") == Some(&Value::Bool(true)) {
                    left_out.push(name.as_str());
                } else {
                    kept.insert(name.clone(), self.nested(schema, depth + 1)?);
                }
            }
            into.insert("properties".into(), kept.into());
        }
        if let Some(Value::Array(required)) = from.get("required") {
            let is_kept = |name: &&Value| name.as_str().is_some_and(|name| !left_out.contains(&name));
            let required: Vec<Value> = required.iter().filter(is_kept).cloned().collect();
            if !required.is_empty() {
                into.insert("required".into(), required.into());
            }
        }
        Ok(())
    }

    /// The definition that a reference becomes, as a reference to it.
    fn definition(&mut self, reference: &str) -> Result<String, String> {
        if let Some(name) = self.names.get(reference) {
            return Ok(format!("#/$defs/{name}"));
        }
        let target = self.document.referenced(reference)?;
        let name = self.new_name(reference);
        self.names.insert(reference.to_owned(), name.clone());
        self.definitions.insert(name.clone(), Value::Bool(true));
        self.pending.push((name.clone(), target));
        Ok(format!("#/$defs/{name}"))
    }

    fn new_name(&self, reference: &str) -> String {
        let last = reference.rsplit('/').next().unwrap_or_default();
        let plain: String = last.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }).collect();
        let mut name = plain.clone();
        for number in 2.. {
            if !name.is_empty() && !self.definitions.contains_key(&name) {
                break;
            }
            name = format!("{plain}_{number}");
        }
        name
    }
}

/// Says as a JSON schema does what 3.0 says in its own way.
fn as_today(from: &Map<String, Value>, into: &mut Map<String, Value>) {
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if let Some(Value::Bool(is_exclusive)) = from.get(exclusive) {
            into.remove(exclusive);
            if *is_exclusive && let Some(value) = into.remove(bound) {
                into.insert(exclusive.into(), value);
            }
        }
    }
    if from.get("nullable") != Some(&Value::Bool(true)) {
        return;
    }
    if let Some(Value::String(kind)) = from.get("type") {
        into.insert("type".into(), json!([kind, "null"]));
    }
    if let Some(Value::Array(values)) = into.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
}
