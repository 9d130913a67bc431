//! One block of a turn while it is written.

use serde_json::value::{RawValue, to_raw_value};

use super::event::Block;
use crate::llm::{ModelCall, ModelPart};
use crate::types::conversation::{Dialect, Part, PartKind, Proof, Seal, Thinking};
use crate::types::json::{Members, RawValueEq};

/// A block.
#[derive(Debug)]
pub(super) enum Draft {
    Text(String),
    Thinking {
        text: String,
        signature: String,
    },
    /// Thinking that the vendor shows nobody.
    Redacted(String),
    /// The turn's call of this number, counted from 0.
    Call {
        number: usize,
        name: String,
        arguments: String,
    },
    /// A block of a kind that is not known, and the input that followed it.
    Unknown {
        json: Box<RawValue>,
        input: String,
    },
}

impl Draft {
    /// A block that begins so, as far as it is not written in deltas. A call gets this number.
    pub(super) fn begin(json: &RawValue, block: &Block<'_>, number: usize) -> Self {
        match &*block.r#type.0 {
            "text" => Self::Text(String::new()),
            "thinking" => Self::Thinking { text: String::new(), signature: block.signature.0.to_string() },
            "redacted_thinking" => Self::Redacted(block.data.0.to_string()),
            "tool_use" => Self::Call { number, name: block.name.0.to_string(), arguments: String::new() },
            _ => Self::Unknown { json: json.to_owned(), input: String::new() },
        }
    }

    /// How many bytes it took from the block that it began with.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Text(text) | Self::Redacted(text) => text.len(),
            Self::Thinking { text, signature } => text.len() + signature.len(),
            Self::Call { name, arguments, .. } => name.len() + arguments.len(),
            Self::Unknown { json, input } => json.get().len() + input.len(),
        }
    }

    /// The arguments of a call, if the block is one.
    pub(super) fn arguments(&self) -> Option<&str> {
        if let Self::Call { arguments, .. } = self { Some(arguments) } else { None }
    }

    /// The part that it is; `None` if it says nothing.
    pub(super) fn into_part(self, author: &str) -> Option<ModelPart> {
        let kind = match self {
            Self::Text(text) if text.is_empty() => return None,
            Self::Text(text) => PartKind::Text(text),
            Self::Thinking { text, signature } if text.is_empty() && signature.is_empty() => return None,
            Self::Thinking { text, signature } => {
                let seal = (!signature.is_empty()).then(|| Box::new(seal(author, Proof::Signature(signature))));
                PartKind::Thinking(Thinking { text, seal })
            }
            Self::Redacted(data) => PartKind::Thinking(Thinking {
                text: String::new(),
                seal: Some(Box::new(seal(author, Proof::Encrypted(data)))),
            }),
            Self::Call { name, arguments, .. } => {
                let arguments = if arguments.trim().is_empty() { "{}".to_owned() } else { arguments };
                return Some(ModelPart::Call(ModelCall { name, arguments }));
            }
            Self::Unknown { json, input } => PartKind::Unknown {
                dialect: Dialect::AnthropicMessages,
                member: "content".to_owned(),
                json: with_input(RawValueEq(json), input),
            },
        };
        Some(ModelPart::Part(Part::from(kind)))
    }
}

fn seal(author: &str, proof: Proof) -> Seal {
    Seal { author: author.to_owned(), id: None, proof }
}

/// The block with the input that followed it, if that is JSON.
fn with_input(json: RawValueEq, input: String) -> RawValueEq {
    let Ok(input) = RawValue::from_string(input) else { return json };
    let Ok(mut members) = serde_json::from_str::<Members>(json.get()) else { return json };
    let place = members.0.iter_mut().find(|(name, _)| name == "input");
    match place {
        Some((_, empty)) => *empty = RawValueEq(input),
        None => members.0.push(("input".to_owned(), RawValueEq(input))),
    }
    to_raw_value(&members).map_or(json, RawValueEq)
}
