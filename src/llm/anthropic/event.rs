//! The members of an event, or of a whole message, that matter here.
//!
//! Text is borrowed from the bytes in which it arrived. Unknown members are skipped; a member of a wrong type is an error.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::llm::text::Text;
use crate::types::Usage;

/// What the dialect is called in a sentence.
pub(super) const API: &str = "Anthropic's Messages";

/// One event of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event<'a> {
    #[serde(borrow)]
    pub(super) r#type: Text<'a>,
    /// Which block it belongs to.
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) delta: Option<Piece<'a>>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) message: Option<Box<WireMessage<'a>>>,
    pub(super) usage: Option<Box<WireUsage>>,
}

/// What a block begins with, or what an event adds to a block or to the message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Piece<'a> {
    #[serde(borrow)]
    pub(super) r#type: Text<'a>,
    #[serde(borrow)]
    pub(super) text: Text<'a>,
    #[serde(borrow)]
    pub(super) thinking: Text<'a>,
    #[serde(borrow)]
    pub(super) signature: Text<'a>,
    /// Of redacted thinking.
    #[serde(borrow)]
    pub(super) data: Text<'a>,
    /// Of a call, like its input.
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    /// What an event adds to the input.
    #[serde(borrow)]
    pub(super) partial_json: Text<'a>,
    /// Of the message.
    #[serde(borrow)]
    pub(super) stop_reason: Text<'a>,
}

/// The message that a stream begins with, or a whole one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireMessage<'a> {
    #[serde(borrow)]
    pub(super) r#type: Text<'a>,
    #[serde(borrow)]
    pub(super) content: Vec<&'a RawValue>,
    #[serde(borrow)]
    pub(super) stop_reason: Text<'a>,
    pub(super) usage: Option<Box<WireUsage>>,
}

/// Tokens, as far as an event tells them: each number is that of the whole turn so far.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    /// Input that was neither read from the cache nor written to it.
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
struct OutputDetails {
    thinking_tokens: Option<u64>,
}

impl WireUsage {
    /// Takes over what another event tells: of each kind the most. Gateways send zeros beside the one number they mean.
    pub(super) fn update(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.max(other.input_tokens);
        self.cache_creation_input_tokens = self.cache_creation_input_tokens.max(other.cache_creation_input_tokens);
        self.cache_read_input_tokens = self.cache_read_input_tokens.max(other.cache_read_input_tokens);
        self.output_tokens = self.output_tokens.max(other.output_tokens);
        self.output_tokens_details = self.output_tokens_details.max(other.output_tokens_details);
    }
}

impl From<&WireUsage> for Usage {
    fn from(wire: &WireUsage) -> Self {
        let cached_tokens = wire.cache_read_input_tokens.unwrap_or(0);
        let cache_write_tokens = wire.cache_creation_input_tokens.unwrap_or(0);
        let plain = wire.input_tokens.unwrap_or(0);
        Self {
            prompt_tokens: plain.saturating_add(cached_tokens).saturating_add(cache_write_tokens),
            completion_tokens: wire.output_tokens.unwrap_or(0),
            cached_tokens,
            cache_write_tokens,
            reasoning_tokens: wire.output_tokens_details.and_then(|details| details.thinking_tokens).unwrap_or(0),
            estimated: false,
        }
    }
}
