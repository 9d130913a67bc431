//! Lists of an answer that have a bound.
//!
//! What a list of small values takes in memory is many times the length of its JSON.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Most entries of a list, and most items of a response.
pub(super) const MOST: usize = 1_024;

/// A list of at most [`MOST`] entries. Of null it is the empty one.
#[derive(Debug)]
pub(super) struct Few<T>(pub(super) Vec<T>);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FewVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<T> {
            type Value = Few<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MOST} entries, or null")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut few = Vec::new();
                while let Some(entry) = list.next_element()? {
                    if few.len() == MOST {
                        return Err(A::Error::invalid_length(MOST + 1, &self));
                    }
                    few.push(entry);
                }
                Ok(Few(few))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Few::default())
            }
        }

        deserializer.deserialize_any(FewVisitor(PhantomData))
    }
}
