//! Schemas of a document as JSON schemas of arguments.
//!
//! What a schema refers to becomes a definition of the tool's own schema, so recursive schemas stay as they are. What only describes
//! answers, or tells people something, is left out: a model pays for every word of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::budget::Taken;
use super::document::Document;

/// Most schemas, members and parameters that are looked into for one tool.
const MAX_SCHEMAS: usize = 10_000;
/// Most bytes of what one tool's schema is made of: a longer one is not compiled.
const MAX_BYTES: usize = 64 << 10;
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
    /// How many definitions begin with a name already.
    numbers: BTreeMap<String, usize>,
    taken: Taken,
}

impl<'a> Schemas<'a> {
    pub(super) fn of(document: &'a Document) -> Self {
        Self {
            document,
            definitions: BTreeMap::new(),
            names: BTreeMap::new(),
            pending: Vec::new(),
            numbers: BTreeMap::new(),
            taken: Taken::default(),
        }
    }

    /// What they took so far.
    pub(super) fn taken(&self) -> Taken {
        self.taken
    }

    /// Counts what is looked into. Fails if it is too much for one tool.
    pub(super) fn count(&mut self, schemas: usize) -> Result<(), String> {
        self.taken.schemas += schemas;
        if self.taken.schemas > MAX_SCHEMAS { Err("its schema is too large".to_owned()) } else { Ok(()) }
    }

    /// Counts what is taken over as it is, before it is copied.
    fn weigh(&mut self, value: &Value) -> Result<(), String> {
        let text = |text: &str| text.len() + 2;
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.add_bytes(4),
            Value::String(value) => self.add_bytes(text(value)),
            Value::Array(items) => items.iter().try_for_each(|item| {
                self.add_bytes(1)?;
                self.weigh(item)
            }),
            Value::Object(members) => members.iter().try_for_each(|(name, value)| {
                self.add_bytes(text(name))?;
                self.weigh(value)
            }),
        }
    }

    fn add_bytes(&mut self, bytes: usize) -> Result<(), String> {
        self.taken.bytes += bytes;
        if self.taken.bytes > MAX_BYTES { Err("its schema is too large".to_owned()) } else { Ok(()) }
    }

    /// What the schemas so far refer to.
    pub(super) fn take_definitions(&mut self) -> Result<Option<Value>, String> {
        // One after the other, so that a long chain of references takes no stack.
        while let Some((name, schema)) = self.pending.pop() {
            let converted = self.convert(schema)?;
            self.definitions.insert(name, converted);
        }
        let definitions = std::mem::take(&mut self.definitions);
        Ok((!definitions.is_empty()).then(|| definitions.into_iter().collect::<Map<_, _>>().into()))
    }

    /// The JSON schema of a schema.
    pub(super) fn convert(&mut self, schema: &Value) -> Result<Value, String> {
        self.nested(schema, 0)
    }

    fn nested(&mut self, schema: &Value, depth: usize) -> Result<Value, String> {
        self.count(1)?;
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
                self.weigh(value)?;
                self.taken.patterns += usize::from(name == "pattern");
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
                self.taken.patterns += schemas.len();
                let schemas = schemas.iter().map(|(key, schema)| {
                    self.add_bytes(key.len())?;
                    Ok((key.clone(), self.nested(schema, depth + 1)?))
                });
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
        let mut left_out = BTreeSet::new();
        if let Some(Value::Object(properties)) = from.get("properties") {
            let mut kept = Map::new();
            for (name, schema) in properties {
                self.count(1)?;
                self.add_bytes(name.len())?;
                if self.document.resolve(schema)?.get("readOnly") == Some(&Value::Bool(true)) {
                    left_out.insert(name.as_str());
                } else {
                    kept.insert(name.clone(), self.nested(schema, depth + 1)?);
                }
            }
            into.insert("properties".into(), kept.into());
        }
        if let Some(Value::Array(required)) = from.get("required") {
            self.count(required.len())?;
            let is_kept = |name: &&Value| name.as_str().is_some_and(|name| !left_out.contains(name));
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

    fn new_name(&mut self, reference: &str) -> String {
        let last = reference.rsplit('/').next().unwrap_or_default();
        let plain: String = last.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }).collect();
        let number = self.numbers.entry(plain.clone()).or_default();
        let mut name = plain.clone();
        while name.is_empty() || self.definitions.contains_key(&name) {
            *number += 1;
            name = format!("{plain}_{}", *number + 1);
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
