//! Which arguments a schema declares.
//!
//! A schema accepts members that it does not name, and a service may understand more parameters than its operator
//! wants the model to use. So arguments that are not declared are not sent.

use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::value::RawValue;

/// Keywords whose values are schemas of the same object.
const SAME_OBJECT: [&str; 6] = ["allOf", "anyOf", "oneOf", "if", "then", "else"];
/// How deep schemas within schemas are looked at.
const MAX_DEPTH: usize = 16;

/// The names that a schema gives to arguments.
#[derive(Debug, Default)]
pub(super) struct Declared {
    names: BTreeSet<String>,
    /// Whether the schema says of other names that they are welcome, too.
    open: bool,
}

impl Declared {
    /// Reads a tool's parameters.
    pub(super) fn by(parameters: &RawValue) -> Self {
        let schema: Value = serde_json::from_str(parameters.get()).unwrap_or_default();
        let mut declared = Self::default();
        declared.read(&schema, &schema, MAX_DEPTH);
        declared
    }

    /// Whether the schema has a property of this name.
    pub(super) fn names(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether an argument of this name may be sent.
    pub(super) fn allows(&self, name: &str) -> bool {
        self.open || self.names(name)
    }

    fn read(&mut self, root: &Value, schema: &Value, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        if let Some(properties) = schema["properties"].as_object() {
            self.names.extend(properties.keys().cloned());
        }
        // Who writes these says that there are more; which of them are right, the schema has checked.
        let welcomes = |keyword: &str| schema.get(keyword).is_some_and(|others| *others != Value::Bool(false));
        self.open |= ["additionalProperties", "unevaluatedProperties", "patternProperties"].into_iter().any(welcomes);
        let referred = schema["$ref"].as_str().and_then(|to| root.pointer(to.strip_prefix('#')?));
        for part in referred.into_iter().chain(SAME_OBJECT.iter().filter_map(|keyword| schema.get(keyword))) {
            match part.as_array() {
                Some(parts) => parts.iter().for_each(|part| self.read(root, part, depth)),
                None => self.read(root, part, depth),
            }
        }
        if let Some(parts) = schema["dependentSchemas"].as_object() {
            parts.values().for_each(|part| self.read(root, part, depth));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(schema: &str) -> Vec<&'static str> {
        let declared = Declared::by(&RawValue::from_string(schema.into()).unwrap());
        ["a", "b", "c", "z"].into_iter().filter(|name| declared.allows(name)).collect()
    }

    #[test]
    fn names_are_declared_by_properties_wherever_a_schema_has_them() {
        for (schema, expected) in [
            (r#"{"type":"object"}"#, &[] as &[&str]),
            (r#"{"properties":{"a":{"properties":{"b":{}}}}}"#, &["a"]),
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
}
