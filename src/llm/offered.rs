//! A model that an upstream offers, and what the upstream's list of models tells of it.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A model of an upstream's list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfferedModel {
    /// Its name there.
    pub name: String,
    /// How much it takes there.
    pub sizes: Sizes,
}

/// How much a model takes, as far as its upstream says it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Most tokens of input and output together.
    pub context_window: Option<u64>,
    /// Most output tokens of one turn.
    pub max_output_tokens: Option<u64>,
}

impl From<&str> for OfferedModel {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), sizes: Sizes::default() }
    }
}

/// A number of tokens in a list; whatever else stands there says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tokens(pub Option<u64>);

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Value::deserialize(deserializer)?.as_u64().filter(|tokens| *tokens > 0)))
    }
}
