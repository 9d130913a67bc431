//! The members of an event, or of a whole response, that matter here.
//!
//! Text is borrowed from the bytes in which it arrived. Unknown members are skipped; a member of a wrong type is an error.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::few::Few;
use crate::llm::text::Text;
use crate::types::Usage;

/// What the dialect is called in a sentence.
pub(super) const API: &str = "OpenAI's Responses";

/// One event of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event<'a> {
    #[serde(borrow)]
    pub(super) r#type: Text<'a>,
    /// Which item it belongs to, by number and by name.
    pub(super) output_index: Option<u64>,
    #[serde(borrow)]
    pub(super) item_id: Text<'a>,
    /// Which part of its content.
    pub(super) content_index: Option<u64>,
    /// Which part of a summary.
    pub(super) summary_index: Option<u64>,
    #[serde(borrow)]
    pub(super) delta: Text<'a>,
    #[serde(borrow)]
    pub(super) item: Option<Box<Item<'a>>>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// An item that the model writes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Item<'a> {
    #[serde(borrow)]
    pub(super) r#type: Text<'a>,
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) call_id: Text<'a>,
    /// Which part a message plays in the answer.
    #[serde(borrow)]
    pub(super) phase: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) arguments: Text<'a>,
    #[serde(borrow)]
    pub(super) content: Few<Piece<'a>>,
    #[serde(borrow)]
    pub(super) summary: Few<Piece<'a>>,
    #[serde(borrow)]
    pub(super) encrypted_content: Text<'a>,
}

/// What an item is known by.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named<'a> {
    #[serde(borrow)]
    pub(super) r#type: Text<'a>,
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) call_id: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Text<'a>,
}

/// A piece of the content of an item, or of its summary.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Piece<'a> {
    #[serde(borrow)]
    pub(super) text: Text<'a>,
    #[serde(borrow)]
    pub(super) refusal: Text<'a>,
}

/// A response, as it is after its last event, or a whole one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireResponse<'a> {
    #[serde(borrow)]
    pub(super) object: Text<'a>,
    #[serde(borrow)]
    pub(super) status: Text<'a>,
    #[serde(borrow)]
    pub(super) output: Few<&'a RawValue>,
    #[serde(borrow)]
    pub(super) incomplete_details: Option<IncompleteDetails<'a>>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    /// Read apart: an answer whose usage is no usage is an answer all the same.
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

impl WireResponse<'_> {
    /// The tokens, if they are told in a way that can be read.
    pub(super) fn usage(&self) -> Option<Usage> {
        let wire: Option<WireUsage> = serde_json::from_str(self.usage?.get()).ok()?;
        wire.map(Usage::from)
    }
}

/// Why a response is not complete.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IncompleteDetails<'a> {
    #[serde(borrow)]
    pub(super) reason: Text<'a>,
}

/// The tokens of a response.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    input_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let input = wire.input_tokens_details.unwrap_or_default();
        Self {
            prompt_tokens: wire.input_tokens.unwrap_or(0),
            completion_tokens: wire.output_tokens.unwrap_or(0),
            cached_tokens: input.cached_tokens.unwrap_or(0),
            cache_write_tokens: input.cache_write_tokens.unwrap_or(0),
            reasoning_tokens: wire.output_tokens_details.and_then(|details| details.reasoning_tokens).unwrap_or(0),
            estimated: false,
        }
    }
}
