//! Parses JSON into values, of which there may be a number: few bytes of JSON are many of memory.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Parses JSON of at most so many values. The error is a clause.
pub(super) fn parse(text: &str, most: usize) -> Result<Value, String> {
    let mut left = most;
    let mut reader = serde_json::Deserializer::from_str(text);
    let parsed = Tree { left: &mut left }.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    parsed.map_err(|error| format!("is not JSON that can be read: {error}"))
}

/// A value, and how many more there may be.
struct Tree<'l> {
    left: &'l mut usize,
}

impl Tree<'_> {
    fn inner(&mut self) -> Tree<'_> {
        Tree { left: self.left }
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        *self.left = self.left.checked_sub(1).ok_or_else(|| D::Error::custom("it holds too many values"))?;
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut from: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element_seed(self.inner())? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut from: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = from.next_key()? {
            members.insert(name, from.next_value_seed(self.inner())?);
        }
        Ok(members.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_library() {
        let text = r#"{"a":[null,true,-1,18446744073709551615,1.5,"x\u00e9"],"b":{},"a":{"c":[]}}"#;
        assert_eq!(parse(text, 100).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        for bad in ["{", "[1,]", "1 2", "", &"[".repeat(1_000)] {
            assert!(parse(bad, 10_000).unwrap_err().starts_with("is not JSON that can be read: "), "{bad}");
        }
    }

    #[test]
    fn values_are_counted_while_they_are_read() {
        let text = format!("[{}[]]", "[],".repeat(99));
        assert!(parse(&text, 101).is_ok());
        assert!(parse(&text, 100).unwrap_err().contains("too many values"));
    }
}
