//! JSON that is kept as it was written, and JSON in as much memory as it takes.

use std::cell::Cell;
use std::fmt;

use bytes::Bytes;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Memory that a thread keeps to write JSON in, at most. Longer JSON is rare.
const MAX_SCRATCH: usize = 64 << 10;

/// The largest whole number that every reader of JSON tells from the next.
pub const MAX_NUMBER: u64 = 1 << 53;

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Writes a value as JSON that is kept for long: in one allocation, of its length.
pub fn compact<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, serde_json::Error> {
    SCRATCH.with(|scratch| {
        // A value that is written meanwhile, or a panic, finds an empty vector here.
        let mut written = scratch.take();
        serde_json::to_writer(&mut written, value)?;
        let json = Bytes::copy_from_slice(&written);
        if written.capacity() <= MAX_SCRATCH {
            written.clear();
            scratch.set(written);
        }
        Ok(json)
    })
}

/// Whether a value is its type's default: then it is not written, and read as the default.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Raw JSON that can be compared.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawValueEq(pub Box<RawValue>);

impl RawValueEq {
    /// The JSON text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for RawValueEq {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for RawValueEq {}

/// The members of a JSON object, in their order and with their values as they were written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members(pub Vec<(String, RawValueEq)>);

impl Members {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members in their order.
    #[must_use]
    pub fn as_slice(&self) -> &[(String, RawValueEq)] {
        &self.0
    }

    /// Where the member of this name stands.
    fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|(known, _)| known == name)
    }

    /// Removes a member and returns its value.
    pub fn take(&mut self, name: &str) -> Option<RawValueEq> {
        let (_, value) = self.0.remove(self.position(name)?);
        Some(value)
    }

    /// Removes a member and reads its value; one that is not a `T` stays where it is.
    pub fn read<T: for<'de> Deserialize<'de>>(&mut self, name: &str) -> Option<T> {
        let at = self.position(name)?;
        let (_, json) = &self.0[at];
        let value = serde_json::from_str(json.get()).ok()?;
        self.0.remove(at);
        Some(value)
    }

    /// Reads what is known of a member that is an object. What is left of it stays in its place.
    pub fn open<T>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let at = self.position(name)?;
        let (_, json) = &mut self.0[at];
        let mut inner: Self = serde_json::from_str(json.get()).ok()?;
        let found = read(&mut inner)?;
        if inner.is_empty() {
            self.0.remove(at);
        } else {
            *json = RawValueEq(serde_json::value::to_raw_value(&inner).ok()?);
        }
        Some(found)
    }

    /// The JSON of a member's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.get())
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_that_is_kept_takes_no_more_memory_than_it_is_long() {
        let long = "x".repeat(2 * MAX_SCRATCH);
        for text in ["short", &long, "short again", "after a failure"] {
            let json = compact(text).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(Vec::from(json).capacity(), text.len() + 2);
            compact(&Failing).unwrap_err();
        }
        assert!(SCRATCH.take().capacity() <= MAX_SCRATCH);
    }

    /// Fails after it wrote something.
    struct Failing;

    impl Serialize for Failing {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry("half", "of it")?;
            Err(serde::ser::Error::custom("no more"))
        }
    }
}
