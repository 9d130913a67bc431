//! Which arguments a schema declares.
//!
//! A schema accepts members that it does not name, and a service may understand more parameters than its operator
//! wants the model to use. So arguments that are not declared are not sent. The same holds for the members of objects
//! within arguments, wherever the schema says what members such an object has.

use std::collections::HashMap;
use std::ptr;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Keywords whose values are schemas of the same value.
const SAME_VALUE: [&str; 6] = ["allOf", "anyOf", "oneOf", "if", "then", "else"];
/// Keywords that lead to schemas elsewhere, of which only those within the same document are looked at.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords that welcome members that have no name in the schema.
const OTHERS: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];
/// Most characters of a place that are told.
const MAX_PLACE: usize = 100;

/// What was found, by the addresses of a schema and of a value. Where several schemas lead back to one, there are as
/// many ways to each value as the product of their number over all levels above it.
type Found = HashMap<(*const Value, *const Value), Option<String>>;

/// The names that a schema gives to arguments and to what is in them.
#[derive(Debug)]
pub(super) struct Declared {
    schema: Value,
}

/// All schemas that are about one value.
#[derive(Debug, Default)]
struct Schemas<'a> {
    all: Vec<&'a Value>,
    /// Whether something else may declare members too: a schema that is elsewhere, or one that takes any object.
    is_open: bool,
}

impl Declared {
    /// Reads a tool's parameters.
    pub(super) fn by(parameters: &RawValue) -> Self {
        Self { schema: serde_json::from_str(parameters.get()).unwrap_or_default() }
    }

    /// Whether the schema has a property of this name.
    pub(super) fn names(&self, name: &str) -> bool {
        let schemas = self.about(&[&self.schema]);
        schemas.all.iter().any(|schema| schema["properties"].get(name).is_some())
    }

    /// Where among the arguments there is one that is not declared: the beginning of its place, if that is long.
    pub(super) fn undeclared(&self, arguments: &Map<String, Value>) -> Option<String> {
        self.undeclared_member(&self.about(&[&self.schema]), arguments, &mut Found::new())
    }

    /// Where in a value, which this schema is about, a member is not declared. Each pair is looked at once.
    fn undeclared_by(&self, schema: &Value, value: &Value, found: &mut Found) -> Option<String> {
        let pair = (ptr::from_ref(schema), ptr::from_ref(value));
        if let Some(known) = found.get(&pair) {
            return known.clone();
        }
        let undeclared = self.undeclared_in(&[schema], value, found);
        found.insert(pair, undeclared.clone());
        undeclared
    }

    /// Where in a value, which these schemas are about, a member is not declared. It is not known of an object whose
    /// schema says nothing of members.
    fn undeclared_in<'a>(&'a self, schemas: &[&'a Value], value: &Value, found: &mut Found) -> Option<String> {
        let schemas = self.about(schemas);
        match value {
            Value::Object(members) => {
                let says_members = schemas.all.iter().any(|schema| schema["properties"].is_object());
                (says_members && !schemas.is_open).then(|| self.undeclared_member(&schemas, members, found)).flatten()
            }
            Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
                let about: Vec<_> = schemas.all.iter().flat_map(|schema| item_schemas(schema, index)).collect();
                self.undeclared_in(&about, item, found).map(|inner| join(&format!("[{index}]"), &inner))
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    fn undeclared_member<'a>(
        &'a self,
        schemas: &Schemas<'a>,
        members: &Map<String, Value>,
        found: &mut Found,
    ) -> Option<String> {
        let all = || schemas.all.iter();
        // Which members a pattern is about is not looked at.
        let patterns: Vec<_> =
            all().filter_map(|schema| schema["patternProperties"].as_object()).flat_map(Map::values).collect();
        let others = || all().flat_map(|schema| OTHERS.into_iter().filter_map(|keyword| schema.get(keyword)));
        members.iter().find_map(|(name, value)| {
            let mut about: Vec<_> = all().filter_map(|schema| schema["properties"].get(name)).collect();
            let within = |inner: String| join(name, &inner);
            if !about.is_empty() {
                about.extend(&patterns);
                return self.undeclared_in(&about, value, found).map(within);
            }
            let mut undeclared = Some(beginning(name));
            for other in patterns.iter().copied().chain(others()).filter(|other| **other != Value::Bool(false)) {
                // One that has nothing against it is enough.
                undeclared = Some(within(self.undeclared_by(other, value, found)?));
            }
            undeclared
        })
    }

    /// These schemas, and all that they say is about the same value.
    fn about<'a>(&'a self, schemas: &[&'a Value]) -> Schemas<'a> {
        let mut found = Schemas::default();
        for schema in schemas {
            self.collect(schema, &mut found);
        }
        found
    }

    fn collect<'a>(&'a self, schema: &'a Value, found: &mut Schemas<'a>) {
        if found.all.iter().any(|known| std::ptr::eq(*known, schema)) {
            return;
        }
        found.all.push(schema);
        found.is_open |= takes_any_object_instead(schema);
        for keyword in REFERENCES {
            let Some(to) = schema.get(keyword).and_then(Value::as_str) else { continue };
            match to.strip_prefix('#').and_then(|place| self.schema.pointer(place)) {
                Some(referred) => self.collect(referred, found),
                None => found.is_open = true,
            }
        }
        for part in SAME_VALUE.iter().filter_map(|keyword| schema.get(keyword)) {
            match part.as_array() {
                Some(parts) => parts.iter().for_each(|part| self.collect(part, found)),
                None => self.collect(part, found),
            }
        }
        if let Some(parts) = schema["dependentSchemas"].as_object() {
            parts.values().for_each(|part| self.collect(part, found));
        }
    }
}

/// Whether any object will do in place of one that has certain members.
fn takes_any_object_instead(schema: &Value) -> bool {
    let is_bare = |choice: &Value| {
        let says_more =
            SAME_VALUE.iter().chain(&REFERENCES).chain(&["properties"]).any(|keyword| choice.get(keyword).is_some());
        choice["type"] == "object" && !says_more
    };
    let mut choices = ["anyOf", "oneOf"].iter().filter_map(|keyword| schema[*keyword].as_array()).flatten();
    !schema["properties"].is_object() && choices.any(is_bare)
}

/// What a schema of a list says of the item at this place.
fn item_schemas(schema: &Value, index: usize) -> impl Iterator<Item = &Value> {
    let by_place = schema["prefixItems"].get(index).or_else(|| match schema.get("items") {
        Some(Value::Array(items)) => items.get(index).or_else(|| schema.get("additionalItems")),
        items => items.or_else(|| schema.get("unevaluatedItems")),
    });
    by_place.into_iter().chain(schema.get("contains"))
}

/// The place of something that is within something else.
fn join(outer: &str, inner: &str) -> String {
    let dot = if inner.starts_with('[') { "" } else { "." };
    beginning(&format!("{outer}{dot}{inner}"))
}

/// As much of a place as is told.
fn beginning(place: &str) -> String {
    place.chars().take(MAX_PLACE).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Where arguments have what this schema does not declare.
    fn undeclared(schema: &str, arguments: &str) -> Option<String> {
        let declared = Declared::by(&RawValue::from_string(schema.into()).unwrap());
        declared.undeclared(&serde_json::from_str(arguments).unwrap())
    }

    fn allowed(schema: &str) -> Vec<&'static str> {
        let is_allowed = |name: &&str| undeclared(schema, &format!(r#"{{"{name}":{{"x":1}}}}"#)).is_none();
        ["a", "b", "c", "z"].into_iter().filter(is_allowed).collect()
    }

    #[test]
    fn names_are_declared_by_properties_wherever_a_schema_has_them() {
        for (schema, expected) in [
            (r#"{"type":"object"}"#, &[] as &[&str]),
            (r#"{"properties":{"a":{"properties":{"x":{},"b":{}}}}}"#, &["a"]),
            (r#"{"properties":{"a":{}},"additionalProperties":false}"#, &["a"]),
            (r#"{"properties":{"a":{}},"anyOf":[{"required":["a"]},{"properties":{"b":{}}}]}"#, &["a", "b"]),
            (r##"{"$ref":"#/$defs/x","$defs":{"x":{"properties":{"a":{}}},"y":{"properties":{"b":{}}}}}"##, &["a"]),
            (r##"{"$ref":"#","properties":{"c":{}}}"##, &["c"]),
            (r#"{"dependentSchemas":{"a":{"properties":{"b":{}}}}}"#, &["b"]),
        ] {
            assert_eq!(allowed(schema), expected, "{schema}");
        }
    }

    #[test]
    fn a_schema_may_welcome_other_names_in_so_many_words() {
        for schema in [r#"{"additionalProperties":true}"#, r#"{"properties":{},"patternProperties":{"^x-":{}}}"#] {
            assert_eq!(allowed(schema), ["a", "b", "c", "z"], "{schema}");
        }
    }

    #[test]
    fn names_within_arguments_are_declared_too() {
        const PERSON: &str = r##""$defs":{"p":{"properties":{"name":{},"boss":{"$ref":"#/$defs/p"}}}}"##;
        let with_person = |rest: &str| format!("{{{PERSON},{rest}}}");
        for (rest, arguments, expected) in [
            (r#""properties":{"o":{"properties":{"n":{}}}}"#, r#"{"o":{"n":5,"admin":true}}"#, "o.admin"),
            (r#""properties":{"o":{"items":{"properties":{"n":{}}}}}"#, r#"{"o":[{"n":5},{"x":1}]}"#, "o[1].x"),
            (r#""properties":{"o":{"items":{"items":{"properties":{}}}}}"#, r#"{"o":[[{"x":1}]]}"#, "o[0][0].x"),
            (r#""properties":{"o":{"prefixItems":[{"properties":{}}],"items":{}}}"#, r#"{"o":[{"x":1}]}"#, "o[0].x"),
            (r#""properties":{"o":{"items":[{},{"properties":{}}]}}"#, r#"{"o":[{"x":1},{"y":1}]}"#, "o[1].y"),
            (r##""properties":{"o":{"$ref":"#/$defs/p"}}"##, r#"{"o":{"boss":{"boss":{"x":1}}}}"#, "o.boss.boss.x"),
            (r##""properties":{"o":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/p"}]}}"##, r#"{"o":{"x":1}}"#, "o.x"),
            (
                r##""properties":{"o":{"allOf":[{"$ref":"#/$defs/p"},{"properties":{"n":{}}}]}}"##,
                r#"{"o":{"n":1,"name":1,"x":1}}"#,
                "o.x",
            ),
            (r##""additionalProperties":{"$ref":"#/$defs/p"}"##, r#"{"any":{"name":1,"x":1}}"#, "any.x"),
            (r##""patternProperties":{"^a":{"$ref":"#/$defs/p"}}"##, r#"{"any":{"x":1}}"#, "any.x"),
        ] {
            assert_eq!(undeclared(&with_person(rest), arguments).as_deref(), Some(expected), "{rest}");
        }
    }

    #[test]
    fn what_a_schema_leaves_open_within_arguments_is_sent() {
        for o in [
            "{}",
            "true",
            r#"{"type":"object"}"#,
            r#"{"properties":{"n":{}},"additionalProperties":true}"#,
            r#"{"properties":{"n":{}},"additionalProperties":{"type":"number"}}"#,
            r#"{"properties":{"n":{}},"patternProperties":{"^x":{}}}"#,
            r#"{"properties":{"n":{}},"patternProperties":{"^y":{"properties":{}},"^x":{}}}"#,
            r#"{"anyOf":[{"properties":{"n":{}}},{"type":"object"}]}"#,
            r#"{"properties":{"n":{}},"$ref":"https://example.com/other"}"#,
            r##"{"properties":{"n":{}},"$dynamicRef":"#other"}"##,
        ] {
            let schema = format!(r#"{{"properties":{{"o":{o}}}}}"#);
            assert_eq!(undeclared(&schema, r#"{"o":{"n":1,"x":1}}"#), None, "{o}");
            let list = format!(r#"{{"properties":{{"o":{{"type":"array","items":{o}}}}}}}"#);
            assert_eq!(undeclared(&list, r#"{"o":[{"n":1},{"x":1},5]}"#), None, "{o}");
        }
    }

    #[test]
    fn schemas_that_lead_back_to_one_are_followed_once_for_each_value() {
        const TO_ITSELF: &str = r##"{"properties":{"n":{"properties":{}}},
            "additionalProperties":{"$ref":"#"},"unevaluatedProperties":{"$ref":"#"}}"##;
        const BY_ANOTHER: &str = r##"{"properties":{"n":{}},"$defs":{"node":{"properties":{"k":{"$ref":"#"}}}},
            "patternProperties":{"^a":{"$ref":"#/$defs/node"},"^b":{"$ref":"#/$defs/node"}},
            "additionalProperties":{"$ref":"#/$defs/node"}}"##;
        let nested = |levels, open: &str, leaf: &str, close: &str| {
            format!("{}{leaf}{}", open.repeat(levels), close.repeat(levels))
        };
        for (schema, arguments, is_declared) in [
            (TO_ITSELF, nested(60, r#"{"a":"#, r#"{"n":{}}"#, "}"), true),
            (TO_ITSELF, nested(60, r#"{"a":"#, r#"{"n":{"z":1}}"#, "}"), false),
            (BY_ANOTHER, nested(60, r#"{"a":{"k":"#, r#"{"a":{"k":1}}"#, "}}"), true),
            (BY_ANOTHER, nested(60, r#"{"a":{"k":"#, r#"{"a":{"z":1}}"#, "}}"), false),
        ] {
            let (done, end) = mpsc::channel();
            // On a thread, so that a search without end fails the test.
            thread::spawn(move || done.send(undeclared(schema, &arguments)));
            let place = end.recv_timeout(Duration::from_secs(20)).expect("the search ends");
            let expected = (!is_declared).then(|| if schema == TO_ITSELF { "a.a.a." } else { "a.k.a." });
            assert_eq!(place.as_deref().map(|place| &place[..6]), expected);
            assert_eq!(place.map(|place| place.len()), expected.map(|_| 100));
        }
    }
}
