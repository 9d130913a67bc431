//! One part of a turn while it is written.

use serde_json::value::{RawValue, to_raw_value};

use crate::llm::{ModelCall, ModelPart};
use crate::types::conversation::{Dialect, Part, PartKind, Proof, Seal, Thinking};
use crate::types::json::{Members, RawValueEq};

/// The member that bears the signature of a part.
pub(super) const SIGNATURE: &str = "thoughtSignature";

/// A part, and the signature that came with it; empty if there was none.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) said: Said,
    pub(super) signature: String,
}

/// What a part says.
#[derive(Debug)]
pub(super) enum Said {
    Text(String),
    Thought(String),
    Call(ModelCall),
    /// A part of a kind that is not known, without its signature.
    Unknown(RawValueEq),
}

impl Said {
    /// A part of a kind that is not known; `None` if nothing is in it but its signature.
    pub(super) fn unknown(json: &RawValue) -> Option<Self> {
        let mut members: Members = serde_json::from_str(json.get()).ok()?;
        members.take(SIGNATURE);
        members.0.retain(|(_, json)| json.get() != "null");
        let is_empty = members.is_empty();
        let json = to_raw_value(&members).ok().filter(|_| !is_empty)?;
        Some(Self::Unknown(RawValueEq(json)))
    }

    /// How many bytes it has.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Text(text) | Self::Thought(text) => text.len(),
            Self::Call(call) => call.name.len() + call.arguments.len(),
            Self::Unknown(json) => json.get().len(),
        }
    }
}

impl Piece {
    /// Adds its parts to a turn of the model that signs as `author`. A signature stands before the part that it came
    /// with, or alone where that part had nothing else.
    pub(super) fn write(self, author: &str, parts: &mut Vec<ModelPart>) {
        let Self { said, signature } = self;
        let seal = |proof| Some(Box::new(Seal { author: author.to_owned(), id: None, proof }));
        let thinking = |text, seal| ModelPart::Part(PartKind::Thinking(Thinking { text, seal }).into());
        let said = match said {
            Said::Thought(text) if signature.is_empty() => return parts.push(thinking(text, None)),
            Said::Thought(text) => return parts.push(thinking(text, seal(Proof::Signature(signature)))),
            Said::Text(text) if text.is_empty() => {
                return parts.push(thinking(text, seal(Proof::Signature(signature))));
            }
            Said::Text(text) => ModelPart::Part(Part::text(text)),
            Said::Call(call) => ModelPart::Call(call),
            Said::Unknown(json) => ModelPart::Part(Part::from(PartKind::Unknown {
                dialect: Dialect::GeminiContents,
                member: "parts".to_owned(),
                json,
            })),
        };
        if !signature.is_empty() {
            parts.push(thinking(String::new(), seal(Proof::Following(signature))));
        }
        parts.push(said);
    }
}
