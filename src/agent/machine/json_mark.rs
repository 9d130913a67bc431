//! One number for a JSON text, however its members are ordered and spaced. Pure, and takes no memory.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The number of a text. A text that is not JSON has one of its own.
pub(super) fn of(text: &str) -> u64 {
    let mut reader = serde_json::Deserializer::from_str(text);
    let mark = Mark::deserialize(&mut reader).and_then(|mark| reader.end().map(|()| mark));
    mark.map_or_else(|_| xxh3_64_with_seed(text.as_bytes(), u64::MAX), |Mark(mark)| mark)
}

/// The number of a value.
struct Mark(u64);

impl<'de> Deserialize<'de> for Mark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MarkVisitor)
    }
}

struct MarkVisitor;

/// The number of a plain value of this kind.
fn plain(kind: u64, bytes: &[u8]) -> Mark {
    Mark(xxh3_64_with_seed(bytes, kind))
}

impl<'de> Visitor<'de> for MarkVisitor {
    type Value = Mark;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Mark, E> {
        Ok(plain(0, &[]))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Mark, E> {
        Ok(plain(1, &[u8::from(value)]))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Mark, E> {
        Ok(plain(2, &value.to_le_bytes()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Mark, E> {
        Ok(plain(3, &value.to_le_bytes()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Mark, E> {
        Ok(plain(4, &value.to_bits().to_le_bytes()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Mark, E> {
        Ok(plain(5, value.as_bytes()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Mark, A::Error> {
        let mut all = 6;
        while let Some(Mark(mark)) = elements.next_element()? {
            all = xxh3_64_with_seed(&mark.to_le_bytes(), all);
        }
        Ok(Mark(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Mark, A::Error> {
        let mut all = 7_u64;
        while let Some((Mark(name), Mark(value))) = members.next_entry()? {
            all = all.wrapping_add(xxh3_64_with_seed(&value.to_le_bytes(), name));
        }
        Ok(Mark(xxh3_64(&all.to_le_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_means_the_same_has_the_same_number() {
        let texts = [
            r#"{"a":1,"b":[2,3]}"#,
            r#"{"a":1,"b":[3,2]}"#,
            r#"{"a":1}"#,
            r#"{"a":"1"}"#,
            r#"{"a":null}"#,
            "{}",
            "[]",
            "",
            r#"{"b":1,"a":[2,3]}"#,
            r#"{"a":{"b":1}}"#,
            "nothing",
            r#"{"a":1"#,
            r#"{"a":true}"#,
            r#"{"a":-1}"#,
            r#"{"a":1.5}"#,
        ];
        for one in texts {
            for other in texts {
                assert_eq!(of(one) == of(other), one == other, "{one} {other}");
            }
        }
        assert_eq!(of(texts[0]), of(" {\"b\" : [ 2,3 ],\n\"\\u0061\":1 } "));
    }
}
