//! The canonical text of a JSON body: equal requests have equal texts.
//!
//! The canonical form of RFC 8785, which crates write, is not enough. It writes every number as a double, so
//! 18446744073709551615 and 18446744073709551614 become equal, and one key would stand for two requests. Here
//! integers keep their digits. Members that only shape the response are left out, without building the value.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use crate::api::error::ApiError;
use crate::api::wire::body::malformed;

/// Members of a request that do not change what it asks for, only how the answer is written.
pub const SHAPE: [&str; 2] = ["stream", "stream_options"];

/// The same text for all bodies that ask for the same: without white space, members in order, strings
/// and numbers written one way, and without what only shapes the answer.
pub fn canonical(body: &str) -> Result<String, ApiError> {
    let mut out = String::with_capacity(body.len());
    if body.trim().is_empty() {
        return Ok("{}".to_owned());
    }
    let value = Canonical { out: &mut out, without: &SHAPE };
    let mut deserializer = serde_json::Deserializer::from_str(body);
    value.deserialize(&mut deserializer).map_err(|error| malformed(&error))?;
    Ok(out)
}

/// Writes a JSON value to `out`.
struct Canonical<'a> {
    out: &'a mut String,
    /// Members of an object that are left out; not of those within.
    without: &'static [&'static str],
}

impl<'de> DeserializeSeed<'de> for Canonical<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Canonical<'_> {
    fn write<T: serde::Serialize + ?Sized, E: Error>(self, value: &T) -> Result<(), E> {
        self.out.push_str(&serde_json::to_string(value).map_err(E::custom)?);
        Ok(())
    }
}

impl<'de> Visitor<'de> for Canonical<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.write(&())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.write(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        self.out.push('[');
        while values.next_element_seed(Canonical { out: self.out, without: &[] })?.is_some() {
            self.out.push(',');
        }
        self.out.push(']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let begin = self.out.len();
        let mut spans = Vec::new();
        while let Some(name) = members.next_key::<String>()? {
            let start = self.out.len();
            Canonical { out: self.out, without: &[] }.write(&name)?;
            self.out.push(':');
            members.next_value_seed(Canonical { out: self.out, without: &[] })?;
            self.out.push(',');
            if self.without.contains(&name.as_str()) {
                self.out.truncate(start);
            } else {
                spans.push(start - begin..self.out.len() - begin);
            }
        }
        let unsorted = self.out.split_off(begin);
        spans.sort_by(|one, other| unsorted[one.clone()].cmp(&unsorted[other.clone()]));
        self.out.push('{');
        for span in spans {
            self.out.push_str(&unsorted[span]);
        }
        self.out.push('}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_requests_have_one_canonical_form() {
        let one = r#"{"model":"m","messages":[{"role":"user","content":"Hi é"}],"agent":{"a":1,"b":[1.50,-0.0,null]}}"#;
        let other = "{ \"agent\" : {\"b\":[1.5,-0.0,null], \"a\":1}, \"stream\":true,\n\"messages\":[{\"content\":\
                     \"\\u0048i \\u00e9\",\"role\":\"user\"}],\"stream_options\":{\"include_usage\":true},\"model\":\"m\"}";
        assert_eq!(canonical(one).unwrap(), canonical(other).unwrap());
        assert_eq!(canonical(" ").unwrap(), canonical("{}").unwrap());
    }

    #[test]
    fn different_requests_have_different_canonical_forms() {
        let bodies = [
            r#"{"a":1}"#,
            r#"{"a":"1"}"#,
            r#"{"a":[1]}"#,
            r#"{"a":[[1]]}"#,
            r#"{"a":[1,1]}"#,
            r#"{"a":{"stream":true}}"#,
            r#"{"a":{"stream":false}}"#,
            r#"{"a":{}}"#,
            r#"{"a":[]}"#,
            r#"{"a":null}"#,
            r#"{"a":true}"#,
            r#"{"a":18446744073709551615}"#,
            r#"{"a":18446744073709551614}"#,
            r#"{"a":-1}"#,
            r#"{"b":1}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":2,"b":1}"#,
            r#"{"a":"b\":2"}"#,
            "{}",
        ];
        let mut seen: Vec<_> = bodies.iter().map(|body| canonical(body).unwrap()).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), bodies.len(), "{seen:?}");
    }
}
