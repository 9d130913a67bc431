//! JSON schemas of tool arguments: bounded, offline, compiled once.
//!
//! Schemas of clients and of remote servers are not trusted. A schema that is compiled here fetches nothing and
//! matches its patterns in linear time. Checking arguments takes no exponential time and cannot exhaust the stack.

mod survey;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;
use serde_json::value::RawValue;

/// The longest schema, in bytes of JSON.
const MAX_BYTES: usize = 64 * 1024;
/// The largest compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;
/// How deeply a value may be nested that a recursive schema describes: each level of it may take the
/// validator through the whole schema, on the stack.
const MAX_RECURSIVE_VALUE_DEPTH: usize = 32;
/// How much of a validator's own words is passed on, in characters: they may quote the arguments.
const MAX_REASON_CHARS: usize = 300;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    recursive: bool,
}

/// Compiles a schema, which must be an object. The error says in one sentence what is wrong with it.
pub fn compile(schema: &RawValue) -> Result<Schema, String> {
    if schema.get().len() > MAX_BYTES {
        return Err(format!("the schema is longer than {MAX_BYTES} bytes"));
    }
    let schema: Value =
        serde_json::from_str(schema.get()).map_err(|error| format!("the schema is not JSON: {error}"))?;
    if !schema.is_object() {
        return Err("the schema must be an object".into());
    }
    let recursive = survey::is_recursive(&schema)?;
    jsonschema::options()
        .offline()
        .should_validate_formats(false)
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
        .build(&schema)
        .map(|validator| Schema { validator, recursive })
        .map_err(|error| format!("the schema is not valid: {}", describe(&error)))
}

/// What is wrong with the schema of a tool that others execute, in one sentence. It may be of any draft, and is not
/// compiled: it only must be a schema, of an object.
pub fn refusal(schema: &RawValue) -> Option<String> {
    let schema: Value = match serde_json::from_str(schema.get()) {
        Ok(schema) => schema,
        Err(error) => return Some(format!("is not JSON: {error}")),
    };
    match &schema {
        Value::Object(members) if members.get("type").is_none_or(|kind| kind == "object") => {}
        Value::Object(_) => return Some("must describe an object: its type is \"object\"".to_owned()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Some("must be a JSON schema, an object".to_owned());
        }
    }
    let wrong = jsonschema::draft202012::meta::validate(&schema).err()?;
    let is_older = jsonschema::draft7::meta::is_valid(&schema) || jsonschema::draft4::meta::is_valid(&schema);
    (!is_older).then(|| format!("is not a valid JSON schema: {}", describe(&wrong)))
}

impl Schema {
    /// Whether the schema allows `value`; the error says in one sentence what is wrong and where.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        if self.recursive && nesting(value) > MAX_RECURSIVE_VALUE_DEPTH {
            return Err(format!("it is nested more than {MAX_RECURSIVE_VALUE_DEPTH} levels deep"));
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        // To look for errors takes time exponential in the depth of a recursive schema's value; the
        // check above remembers what it has seen, and does not.
        let errors = if self.recursive { Vec::new() } else { self.validator.iter_errors(value).take(2).collect() };
        Err(match errors.as_slice() {
            [] => "it does not satisfy the schema".into(),
            [error] => describe(error),
            [error, ..] => format!("{}; more is wrong besides", describe(error)),
        })
    }
}

fn describe(error: &ValidationError<'_>) -> String {
    let path = error.instance_path().as_str();
    let place = if path.is_empty() { String::new() } else { format!("at {path}: ") };
    let words = error.to_string();
    match words.char_indices().nth(MAX_REASON_CHARS) {
        Some((end, _)) => format!("{place}{}…", &words[..end]),
        None => format!("{place}{words}"),
    }
}

/// How many arrays and objects lie within each other. Parsing has bounded it.
fn nesting(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(nesting).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(nesting).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compiled(schema: &Value) -> Result<Schema, String> {
        compile(&serde_json::value::to_raw_value(schema).unwrap())
    }

    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!({}), |inner, _| json!({ "x": inner }))
    }

    #[test]
    fn errors_name_what_and_where() {
        let schema = compiled(&json!({
            "type": "object",
            "properties": { "city": { "type": "string" }, "days": { "items": { "enum": ["mon", "tue"] } } },
            "required": ["city"],
            "additionalProperties": false
        }))
        .unwrap();
        assert_eq!(schema.check(&json!({ "city": "Oslo", "days": ["mon"] })), Ok(()));
        assert_eq!(schema.check(&json!({})), Err("\"city\" is a required property".into()));
        assert_eq!(schema.check(&json!({ "city": 1 })), Err("at /city: 1 is not of type \"string\"".into()));
        let error = schema.check(&json!({ "city": "Oslo", "days": ["mon", "sun"], "unit": "C" })).unwrap_err();
        assert!(error.ends_with("; more is wrong besides"), "{error}");
        let long = schema.check(&json!({ "city": "Oslo", "days": ["é".repeat(9_999)] })).unwrap_err();
        assert!(long.starts_with("at /days/0: ") && long.chars().count() < 400, "{long}");
    }

    #[test]
    fn ordinary_references_work() {
        let schema = compiled(&json!({
            "$defs": { "a b": { "type": "integer" }, "node": { "properties": { "left": { "$ref": "#/$defs/node" } } } },
            "properties": { "n": { "$ref": "#/$defs/a%20b" }, "tree": { "$ref": "#/$defs/node" }, "$id": { "type": "string" } }
        }))
        .unwrap();
        assert_eq!(schema.check(&json!({ "n": 1, "tree": { "left": { "left": {} } }, "$id": "x" })), Ok(()));
        assert_eq!(schema.check(&json!({ "n": "1" })), Err("it does not satisfy the schema".into()));
        assert_eq!(schema.check(&nested(32)), Err("it is nested more than 32 levels deep".into()));
    }

    #[test]
    fn what_cannot_be_bounded_is_refused() {
        let many = |pattern: &str, count: usize| {
            let properties: serde_json::Map<_, _> =
                (0..count).map(|n| (format!("p{n}"), json!({ "pattern": pattern }))).collect();
            json!({ "properties": properties })
        };
        for (schema, reason) in [
            (json!(true), "must be an object"),
            (json!({ "type": "strange" }), "not valid"),
            (json!({ "$ref": "https://example.com/schema.json" }), "only `#` and `#/…` are supported"),
            (json!({ "$ref": "other.json#/a" }), "only `#` and `#/…` are supported"),
            (json!({ "$ref": "#anchor" }), "only `#` and `#/…` are supported"),
            (json!({ "$ref": "#/$defs/absent" }), "which is not there"),
            (json!({ "$schema": "https://example.com/dialect" }), "not valid"),
            (json!({ "$dynamicRef": "#x" }), "not supported"),
            (json!({ "properties": { "a": { "$id": "https://example.com/", "$ref": "#" } } }), "below its root"),
            (json!({ "description": "x".repeat(65_536) }), "longer than 65536 bytes"),
            (nested(32), "more than 32 levels deep"),
            (many("^a$", 33), "more than 32 patterns"),
            (many("^(?=a)b", 1), "not valid"),
            (many("((a{1000}){1000}){1000}", 1), "not valid"),
        ] {
            let error = compiled(&schema).expect_err(reason);
            assert!(error.contains(reason), "{error}");
        }
        assert!(compiled(&nested(31)).is_ok());
    }

    #[test]
    fn references_that_multiply_are_refused() {
        let definitions: serde_json::Map<_, _> = (0..20)
            .map(|n| {
                let next = json!({ "$ref": format!("#/$defs/a{}", n + 1) });
                (format!("a{n}"), json!({ "allOf": [next, next] }))
            })
            .chain([("a20".to_owned(), json!({ "type": "object" }))])
            .collect();
        let error = compiled(&json!({ "$defs": definitions, "$ref": "#/$defs/a0" })).unwrap_err();
        assert!(error.contains("more than 10000 objects"), "{error}");
    }

    #[test]
    fn recursion_takes_neither_exponential_time_nor_the_stack() {
        for schema in [
            json!({ "$ref": "#" }),
            json!({ "allOf": [{ "$ref": "#" }] }),
            json!({ "properties": { "x": { "allOf": [{ "$ref": "#" }, { "$ref": "#" }] } } }),
            json!({ "anyOf": [{ "properties": { "x": { "$ref": "#" } } }, { "properties": { "x": { "$ref": "#" } } }], "unevaluatedProperties": false }),
        ] {
            assert_eq!(compiled(&schema).unwrap().check(&nested(31)), Ok(()));
        }
        for length in [50, 1_500] {
            for backwards in [false, true] {
                // Names in either order, so that the chain is met from its start or from its end.
                let name = |n: usize| format!("d{:05}", if backwards { length - n } else { n });
                let mut definitions: serde_json::Map<_, _> =
                    (0..length).map(|n| (name(n), json!({ "$ref": format!("#/$defs/{}", name(n + 1)) }))).collect();
                definitions.insert(name(length), json!({ "properties": { "x": { "$ref": "#" } } }));
                let schema = json!({ "$defs": definitions, "$ref": format!("#/$defs/{}", name(0)) });
                match compiled(&schema) {
                    Ok(schema) => assert_eq!(schema.check(&nested(31)), Ok(())),
                    Err(error) => assert!(length > 50 && error.contains("once its references are resolved"), "{error}"),
                }
            }
        }
    }
}
