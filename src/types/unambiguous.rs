//! JSON that all readers understand in the same way.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Most characters of a member's name that a complaint quotes.
const MAX_QUOTED: usize = 100;

/// The members of arguments that are one JSON object, in which no name is given twice. Nothing at all counts as `{}`.
#[must_use]
pub fn unambiguous_object(arguments: &str) -> Option<Map<String, Value>> {
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
    match serde_json::from_str(arguments) {
        Ok(Unambiguous(Value::Object(members))) => Some(members),
        Ok(_) | Err(_) => None,
    }
}

/// A value in which no object has two members of one name: of two, one reader sees the first and another the
/// last, so what is shown would not be what is done.
#[derive(Debug)]
pub struct Unambiguous(pub Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnambiguousVisitor).map(Self)
    }
}

struct UnambiguousVisitor;

impl<'de> Visitor<'de> for UnambiguousVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unambiguous(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = object.next_key::<String>()? {
            if members.contains_key(&name) {
                let quoted: String = name.chars().take(MAX_QUOTED).collect();
                return Err(A::Error::custom(format_args!("the member {quoted:?} is given twice")));
            }
            let Unambiguous(value) = object.next_value()?;
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}
