//! What a request says of itself that may come again: a key that its caller chose, or how often a client
//! library has tried already.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use sha2::{Digest, Sha256};

use crate::agent::{Kind, Once};
use crate::api::callers::Caller;
use crate::api::error::ApiError;
use crate::api::wire::body::malformed;
use crate::config::key::to_hex;

/// Names the request, for its caller to repeat it safely.
const KEY: &str = "idempotency-key";
/// Longest key.
const MAX_KEY: usize = 255;
/// How often OpenAI's libraries have sent the request before.
const RETRY_COUNT: &str = "x-stainless-retry-count";
/// Says that the answer was given before.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Members of a request that do not change what it asks for, only how the answer is written.
const SHAPE: [&str; 2] = ["stream", "stream_options"];

/// What the headers say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announced {
    /// The caller's key.
    Key(String),
    /// A client library's attempt, counted from 0.
    Attempt(u64),
    /// Nothing.
    Nothing,
}

impl Announced {
    /// Reads the headers. A key goes before a count; a count that is none is ignored, as all headers are
    /// that nobody asked for.
    pub fn read(headers: &HeaderMap) -> Result<Self, ApiError> {
        let mut keys = headers.get_all(KEY).iter();
        if let Some(key) = keys.next() {
            let visible = key.as_bytes().iter().all(u8::is_ascii_graphic);
            return match key.to_str() {
                Ok(text) if visible && (1..=MAX_KEY).contains(&text.len()) && keys.next().is_none() => {
                    Ok(Self::Key(text.to_owned()))
                }
                Ok(_) | Err(_) => {
                    let message = format!("must be one key of 1 to {MAX_KEY} visible ASCII characters");
                    Err(ApiError::invalid(KEY, message))
                }
            };
        }
        let count = headers.get(RETRY_COUNT).and_then(|count| count.to_str().ok()?.parse().ok());
        Ok(count.map_or(Self::Nothing, Self::Attempt))
    }

    /// Whether the caller chose a key.
    pub fn is_key(&self) -> bool {
        matches!(self, Self::Key(_))
    }

    /// What the request is known by when it comes again to `route`; `None` if nothing was announced.
    /// `body` is valid; `session` is what a header says.
    pub fn once(
        &self,
        route: &str,
        caller: &Caller,
        body: &str,
        session: Option<&str>,
    ) -> Result<Option<Once>, ApiError> {
        let session = session.unwrap_or_default();
        Ok(match self {
            Self::Nothing => None,
            Self::Key(key) => Some(Once {
                name: hash(&["key", route, key]),
                fingerprint: hash(&[&canonical(body)?, session]),
                kind: Kind::Key,
            }),
            Self::Attempt(count) => {
                // A library sends the same bytes again.
                let name = hash(&["attempt", route, caller.key_name.as_deref().unwrap_or_default(), session, body]);
                let kind = if *count == 0 { Kind::FirstAttempt } else { Kind::Repeated };
                Some(Once { fingerprint: name.clone(), name, kind })
            }
        })
    }

    /// The same for a request that only a key makes safe to send again.
    pub fn once_by_key(&self, route: &str, caller: &Caller, body: &str) -> Result<Option<Once>, ApiError> {
        if self.is_key() { self.once(route, caller, body, None) } else { Ok(None) }
    }
}

/// Marks an answer that was given before.
pub fn mark_replayed(headers: &mut HeaderMap) {
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
}

/// SHA-256 of all parts, in hex. Where one ends and the next begins is part of it.
fn hash(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    to_hex(&hash.finalize().into())
}

/// The same text for all bodies that ask for the same: without white space, members in order, strings
/// and numbers written one way, and without what only shapes the answer.
fn canonical(body: &str) -> Result<String, ApiError> {
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
    use crate::types::Tenant;

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

    #[test]
    fn hashed_parts_are_not_confused_with_one_another() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_eq!(hash(&[]).len(), 64);
    }

    #[test]
    fn idempotency_keys_are_visible_ascii() {
        let read = |name: &'static str, values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(name, HeaderValue::from_bytes(value).unwrap());
            }
            Announced::read(&headers)
        };
        for good in ["k", "a-1_2/3=\"~", &"x".repeat(255)] {
            assert_eq!(read(KEY, &[good.as_bytes()]).unwrap(), Announced::Key(good.to_owned()));
        }
        let long = "x".repeat(256);
        let bad: [&[&[u8]]; 6] = [&[b""], &[long.as_bytes()], &["é".as_bytes()], &[b"a b"], &[b"\ta"], &[b"a", b"b"]];
        for values in bad {
            let error = read(KEY, values).unwrap_err();
            let (param, code) = (error.object().param, error.object().code);
            assert_eq!((param, code), (Some(KEY.to_owned()), "invalid_value"), "{values:?}");
        }
        assert_eq!(read(RETRY_COUNT, &[b"2"]).unwrap(), Announced::Attempt(2));
        for odd in ["", "-1", "x", "1.0"] {
            assert_eq!(read(RETRY_COUNT, &[odd.as_bytes()]).unwrap(), Announced::Nothing, "{odd}");
        }
    }

    #[test]
    fn a_key_is_for_a_route_and_a_count_for_a_caller_and_its_bytes() {
        let caller = |key: &str| Caller {
            tenant: Tenant::default_tenant(),
            agents: None,
            key_name: Some(key.into()),
            generation: std::sync::Arc::default(),
        };
        let once = |announced: &Announced, route: &str, key: &str, body: &str| {
            announced.once(route, &caller(key), body, None).unwrap().unwrap()
        };
        let key = Announced::Key("k".into());
        let first = once(&key, "r", "one", "{}");
        assert_eq!(first, once(&key, "r", "two", "{ }"), "all keys of a tenant share what they name");
        assert_ne!(first.name, once(&key, "s", "one", "{}").name);
        assert_ne!(first.fingerprint, once(&key, "r", "one", r#"{"a":1}"#).fingerprint);
        assert_ne!(first.fingerprint, key.once("r", &caller("one"), "{}", Some("s")).unwrap().unwrap().fingerprint);
        let first = once(&Announced::Attempt(0), "r", "one", "{}");
        let again = once(&Announced::Attempt(1), "r", "one", "{}");
        assert_eq!((&first.name, first.kind, again.kind), (&again.name, Kind::FirstAttempt, Kind::Repeated));
        assert_ne!(first.name, once(&Announced::Attempt(1), "r", "two", "{}").name);
        assert_ne!(first.name, once(&Announced::Attempt(1), "r", "one", r#"{"stream":true}"#).name);
        assert_eq!(Announced::Nothing.once("r", &caller("one"), "{}", None).unwrap(), None);
    }
}
