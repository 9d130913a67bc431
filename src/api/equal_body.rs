//! Whether two bodies ask for the same: a hash of a JSON object's members but for those that only shape the answer.
//!
//! The members are hashed as they were sent. Clients repeat a request with the text that they sent before, so this need not
//! write the values anew, as a [canonical](super::canonical) text would.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::api::canonical::SHAPE;
use crate::api::error::ApiError;
use crate::api::wire::body::malformed;

/// Adds the members of the object `body` to `hash`, in the order of their names.
pub fn hash_members(body: &str, hash: &mut Sha256) -> Result<(), ApiError> {
    let mut members =
        serde_json::Deserializer::from_str(body).deserialize_map(Members).map_err(|error| malformed(&error))?;
    members.sort_by(|one, other| one.0.cmp(&other.0));
    for (name, value) in members.iter().filter(|(name, _)| !SHAPE.contains(&name.as_ref())) {
        for part in [name.as_ref(), value.get()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    Ok(())
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashed(body: &str) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash_members(body, &mut hash).unwrap();
        hash.finalize().to_vec()
    }

    #[test]
    fn bodies_are_equal_whose_members_are_but_for_what_shapes_the_answer() {
        let one = hashed(r#"{"model":"m","input":"Hi"}"#);
        for same in [
            r#"{"model":"m","input":"Hi","stream":true}"#,
            r#"{ "stream": false, "input": "Hi", "model": "m", "stream_options": {"include_obfuscation": false} }"#,
        ] {
            assert_eq!(hashed(same), one, "{same}");
        }
        for other in [r#"{"model":"m","input":"Ho"}"#, r#"{"model":"m","input":["Hi"]}"#, r#"{"model":"m"}"#, "{}"] {
            assert_ne!(hashed(other), one, "{other}");
        }
        assert_ne!(hashed(r#"{"a":{"stream":true}}"#), hashed(r#"{"a":{"stream":false}}"#));
        assert!(hash_members("[]", &mut Sha256::new()).is_err());
    }
}
