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

/// Tools that are offered together. Encoded at most once for each dialect.
#[derive(Debug, Default)]
pub struct OfferPiece {
    tools: Vec<Arc<ToolDefinition>>,
    weight: usize,
    encodings: [OnceLock<Box<str>>; Dialect::COUNT],
}

impl OfferPiece {
    /// How many bytes of text they are to a model, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.weight
    }

    fn encoded(&self, dialect: Dialect, encode: &impl Fn(&ToolDefinition, &mut Vec<u8>)) -> &str {
        self.encodings[dialect as usize].get_or_init(|| {
            let mut out = Vec::new();
            for (index, tool) in self.tools.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                encode(tool, &mut out);
            }
            String::from_utf8(out).expect("definitions are written from strings").into()
        })
    }
}

impl FromIterator<Arc<ToolDefinition>> for OfferPiece {
    fn from_iter<T: IntoIterator<Item = Arc<ToolDefinition>>>(tools: T) -> Self {
        let tools: Vec<_> = tools.into_iter().collect();
        let weight = tools.iter().map(|tool| tool.weight()).sum();
        Self { tools, weight, encodings: Default::default() }
    }
}

/// The tools that a model is offered, in pieces that several runs and steps may share. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ToolOffer {
    pieces: Arc<[Arc<OfferPiece>]>,
    /// How many pieces stay the same for the whole run. Those that come later stand behind them, so that what upstreams
    /// cache up to there stays good.
    stable: usize,
}

impl ToolOffer {
    /// The tools of these pieces, which stay the same for the whole run. Pieces without tools are left out.
    pub fn of(pieces: impl IntoIterator<Item = Arc<OfferPiece>>) -> Self {
        let pieces: Arc<[_]> = pieces.into_iter().filter(|piece| !piece.tools.is_empty()).collect();
        Self { stable: pieces.len(), pieces }
    }

    /// The same, and pieces that came later.
    #[must_use]
    pub fn followed_by(&self, later: impl IntoIterator<Item = Arc<OfferPiece>>) -> Self {
        Self { pieces: self.pieces.iter().cloned().chain(later).collect(), stable: self.stable }
    }

    /// The tools.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<ToolDefinition>> {
        self.pieces.iter().flat_map(|piece| &piece.tools)
    }

    /// Whether no tools are offered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// How many bytes of text they are to a model, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.pieces.iter().map(|piece| piece.weight).sum()
    }

    /// The tools in `dialect` by pieces, each with commas between its tools as `encode` wrote them when they were first asked
    /// for. The pieces that stay the same for the whole run come first; the others are marked.
    pub fn encoded<'o>(
        &'o self,
        dialect: Dialect,
        encode: impl Fn(&ToolDefinition, &mut Vec<u8>) + 'o,
    ) -> impl Iterator<Item = (&'o str, Stays)> {
        let stays = |index| if index < self.stable { Stays::WholeRun } else { Stays::FromHereOn };
        self.pieces.iter().enumerate().map(move |(index, piece)| (piece.encoded(dialect, &encode), stays(index)))
    }

    /// Writes the tools in `dialect`, with commas between them.
    pub fn write(&self, dialect: Dialect, encode: impl Fn(&ToolDefinition, &mut Vec<u8>), out: &mut Vec<u8>) {
        for (index, (piece, _)) in self.encoded(dialect, encode).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(piece.as_bytes());
        }
    }
}

/// Since when a piece of an offer is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// Since the run began.
    WholeRun,
    /// Since a later step.
    FromHereOn,
}

impl FromIterator<Arc<ToolDefinition>> for ToolOffer {
    fn from_iter<T: IntoIterator<Item = Arc<ToolDefinition>>>(tools: T) -> Self {
        Self::of([Arc::new(tools.into_iter().collect())])
    }
}

impl ToolDefinition {
    /// The SHA-256 of all that a model sees of the tool, in hex: another definition has another, however its JSON is written.
    #[must_use]
    pub fn hash(&self) -> String {
        // A schema that is nested too deep for a value is hashed as it is written.
        let sorted = serde_json::to_value(self).and_then(|mut value| {
            value.sort_all_objects();
            serde_json::to_vec(&value)
        });
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
