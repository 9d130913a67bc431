//! What a model is offered: tools, and how it chooses among them.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::types::conversation::{Dialect, Extra};
use crate::types::json::RawValueEq;

/// What surrounds a definition, about, in bytes.
const FRAME_WEIGHT: usize = 72;

/// A tool as a model sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// 1–64 of `A-Z a-z 0-9 _ -`.
    pub name: String,
    /// What it does and when to use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON schema of its arguments; without it, it takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<RawValueEq>,
    /// Whether the upstream is to hold the model to the schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// Members that are not known.
    #[serde(default, skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}

/// The tools that a model is offered. Encoded at most once for each dialect; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ToolOffer(Arc<Offered>);

#[derive(Debug, Default)]
struct Offered {
    tools: Vec<Arc<ToolDefinition>>,
    encodings: [OnceLock<Box<str>>; Dialect::COUNT],
}

impl ToolOffer {
    /// The tools.
    #[must_use]
    pub fn tools(&self) -> &[Arc<ToolDefinition>] {
        &self.0.tools
    }

    /// Whether no tools are offered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.tools.is_empty()
    }

    /// How many bytes of text they are to a model, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.0.tools.iter().map(|tool| tool.weight()).sum()
    }

    /// The tools in `dialect`, as `encode` made them when they were first asked for.
    pub fn encoded(&self, dialect: Dialect, encode: impl FnOnce(&[Arc<ToolDefinition>]) -> String) -> &str {
        self.0.encodings[dialect as usize].get_or_init(|| encode(&self.0.tools).into())
    }
}

impl FromIterator<Arc<ToolDefinition>> for ToolOffer {
    fn from_iter<T: IntoIterator<Item = Arc<ToolDefinition>>>(tools: T) -> Self {
        Self(Arc::new(Offered { tools: tools.into_iter().collect(), ..Offered::default() }))
    }
}

impl ToolDefinition {
    /// The SHA-256 of all that a model sees of the tool, in hex: another definition has another. The order of members of the
    /// schema does not count.
    #[must_use]
    pub fn hash(&self) -> String {
        // Members of a value are in the order of their names. Nested too deep it is none, and hashed as it is written.
        let sorted = serde_json::to_value(self).and_then(|value| serde_json::to_vec(&value));
        let written = sorted.or_else(|_| serde_json::to_vec(self));
        let written = written.expect("a definition holds only strings and valid raw JSON");
        format!("{:x}", Bytes::copy_from_slice(&Sha256::digest(&written)))
    }

    fn weight(&self) -> usize {
        let description = self.description.as_ref().map_or(0, String::len);
        FRAME_WEIGHT + self.name.len() + description + self.parameters.as_ref().map_or(0, |json| json.get().len())
    }
}

/// The name of the set of server tools that a run is offered: the SHA-256 of their definitions, in hex. The name
/// can be computed from the definitions, and shows whether given definitions are the right ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OfferHash(Arc<str>);

impl OfferHash {
    /// The name of an offer that is written so.
    #[must_use]
    pub fn of(written: &[u8]) -> Self {
        let digest = Sha256::digest(written);
        Self(format!("{:x}", Bytes::copy_from_slice(&digest)).into())
    }

    /// 64 hex digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Which of the tools must be called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolChoice {
    /// Whichever the model likes, or none.
    #[default]
    Auto,
    /// None.
    None,
    /// Any.
    Required,
    /// The one of this name.
    Function(String),
}
