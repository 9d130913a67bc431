//! JSON schemas of tool arguments: bounded, offline, compiled once.
//!
//! Schemas of clients and of remote servers are not trusted. A schema that is compiled here fetches nothing and
//! matches its patterns in linear time. Checking arguments takes no exponential time and cannot exhaust the stack.

mod allowance;
mod survey;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;
use serde_json::value::RawValue;

pub use self::allowance::Allowance;
use self::allowance::Taken;

/// The longest schema, in bytes of JSON.
pub const MAX_BYTES: usize = 64 * 1024;
/// How large a compiled pattern may be, in bytes: the least of these that all patterns of a schema fit into counts for each.
const PATTERN_BYTES: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];
/// How large the table may grow that a pattern fills in while it matches, in bytes.
const MAX_TABLE_BYTES: usize = 256 << 10;
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
    taken: Taken,
}

/// Compiles a schema, which must be an object. The error says in one sentence what is wrong with it.
pub fn compile(schema: &RawValue) -> Result<Schema, String> {
    compile_within(schema, &mut Allowance::default())
}

/// The same, for one of many schemas, which share what they may take.
pub fn compile_within(schema: &RawValue, allowance: &mut Allowance) -> Result<Schema, String> {
    compile_checking(schema, Formats::Ignored, allowance)
}

fn compile_checking(schema: &RawValue, formats: Formats, allowance: &mut Allowance) -> Result<Schema, String> {
    let bytes = schema.get().len();
    if bytes > MAX_BYTES {
        return Err(format!("the schema is longer than {MAX_BYTES} bytes"));
    }
    let schema: Value =
        serde_json::from_str(schema.get()).map_err(|error| format!("the schema is not JSON: {error}"))?;
    if !schema.is_object() {
        return Err("the schema must be an object".into());
    }
    let survey::Surveyed { is_recursive: recursive, patterns } = survey::survey(&schema)?;
    allowance.take_source(bytes, patterns)?;
    let mut sizes = PATTERN_BYTES.into_iter();
    let (validator, size) = loop {
        let size = sizes.next().unwrap_or_default();
        allowance.check_compiled(patterns.count * size)?;
        match build(&schema, size, formats) {
            Ok(validator) => break (validator, size),
            Err(_) if patterns.count > 0 && sizes.len() > 0 => {}
            Err(error) => {
                allowance.take_failure(patterns);
                return Err(format!("the schema is not valid: {}", describe(&error)));
            }
        }
    };
    let compiled = patterns.count * size;
    allowance.take_compiled(compiled)?;
    Ok(Schema { validator, recursive, taken: Taken { bytes, patterns, compiled } })
}

/// Compiles the schema of a form that a user fills in, whose texts must have the formats that it names.
pub fn form(schema: &RawValue) -> Result<Schema, String> {
    compile_checking(schema, Formats::Checked, &mut Allowance::default())
}

/// Whether texts must have the formats that a schema names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Formats {
    Checked,
    Ignored,
}

fn build(schema: &Value, most: usize, formats: Formats) -> Result<Validator, ValidationError<'_>> {
    let patterns = PatternOptions::regex().size_limit(most).dfa_size_limit(MAX_TABLE_BYTES);
    jsonschema::options()
        .offline()
        .should_validate_formats(formats == Formats::Checked)
        .with_pattern_options(patterns)
        .build(schema)
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
        Value::Object(_) => {
            return Some("must describe an object: its `type` must be \"object\", if it is given".to_owned());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Some("must be a JSON schema, an object".to_owned());
        }
    }
    let wrong = jsonschema::draft202012::meta::validate(&schema).err()?;
    let is_older = jsonschema::draft7::meta::is_valid(&schema) || jsonschema::draft4::meta::is_valid(&schema);
    (!is_older).then(|| format!("is not a valid JSON schema: {}", describe(&wrong)))
}

impl Schema {
    /// Takes what it takes once more, for another list of schemas that has it too.
    pub fn take_from(&self, allowance: &mut Allowance) -> Result<(), String> {
        allowance.take(self.taken)
    }

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
        let folded = format!("(?i){}", "[!-\u{10ffff}]".repeat(40));
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
            (many(&"[ab]".repeat(5_000), 1), "have too many classes"),
            (many(&folded, 1), "have too many classes"),
            (many(&folded.replace("(?i)", "(?x)( ?si:)"), 1), "have too many classes"),
            (many("^(?=a)b", 1), "not valid"),
            (many("((a{1000}){1000}){1000}", 1), "not valid"),
        ] {
            let error = compiled(&schema).expect_err(reason);
            assert!(error.contains(reason), "{error}");
        }
        assert!(compiled(&nested(31)).is_ok());
    }

    #[test]
    fn many_schemas_share_what_they_may_take() {
        let all = |schema: &dyn Fn(usize) -> Value| {
            let (mut allowance, mut kept) = (Allowance::default(), Vec::new());
            for number in 0.. {
                let schema = serde_json::value::to_raw_value(&schema(number)).unwrap();
                match compile_within(&schema, &mut allowance) {
                    Ok(schema) => kept.push(schema),
                    Err(error) => return (kept, error),
                }
            }
            unreachable!("schemas without end are refused");
        };
        let (long, error) = all(&|_| json!({ "description": "x".repeat(60_000) }));
        assert_eq!((long.len(), error.contains("the schemas of its server together")), (34, true), "{error}");
        let (many, error) = all(&|number| json!({ "pattern": format!("^{}{number}$", "x".repeat(4_000)) }));
        assert_eq!((many.len(), error.contains("the patterns in the schemas of its server")), (32, true), "{error}");
        let (large, error) = all(&|_| json!({ "pattern": "^[a-z]{5000}$" }));
        assert_eq!((large.len(), error.contains("the compiled patterns")), (32, true), "{error}");
        let (small, error) = all(&|_| json!({ "pattern": "^[a-z]+[0-9]$" }));
        assert_eq!((small.len(), error.contains("the compiled patterns")), (512, true), "{error}");
        let (mut allowance, invalid) = (Allowance::default(), json!({ "pattern": "^(?=a)b" }));
        let invalid = serde_json::value::to_raw_value(&invalid).unwrap();
        let refusals = (0..200).map(|_| compile_within(&invalid, &mut allowance).unwrap_err());
        let worked_on = refusals.filter(|error| error.contains("is not valid")).count();
        assert_eq!(worked_on, 128, "also what cannot be compiled is work");
        let mut allowance = Allowance::default();
        assert!(large.iter().all(|schema| schema.take_from(&mut allowance).is_ok()));
        assert!(large[0].take_from(&mut allowance).is_err(), "what is compiled already takes as much");
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
