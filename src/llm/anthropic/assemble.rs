//! Events into deltas and, at the end, a turn.
//!
//! Pure. A turn exists only once a stop reason has come, so the half-written calls of a stream that broke off never run.
//! After it nothing but the usage counts.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::blocks::is_empty_object;
use super::event::{API, Piece, WireMessage, WireUsage};
use super::stop_reason;
use crate::llm::drafts::{Draft, Drafts, Said};
use crate::llm::http::fault::Fault;
use crate::llm::repeated::OnlyPiece;
use crate::llm::{Delta, ModelTurn};
use crate::types::Usage;
use crate::types::conversation::{Dialect, Extra, Proof};

/// The turn so far.
#[derive(Debug)]
pub(super) struct Assembler {
    author: Arc<str>,
    drafts: Drafts,
    /// Where the blocks are, by their indexes.
    places: HashMap<u64, usize>,
    usage: Option<WireUsage>,
    stop_reason: Option<String>,
}

impl Assembler {
    /// A turn of the model that signs as `author`, of which nothing has come yet.
    pub(super) fn new(author: Arc<str>) -> Self {
        Self { author, drafts: Drafts::default(), places: HashMap::new(), usage: None, stop_reason: None }
    }

    /// Whether the model said that it is done. Its usage may still follow.
    pub(super) fn is_finished(&self) -> bool {
        self.stop_reason.is_some()
    }

    /// Whether the turn calls tools.
    pub(super) fn has_calls(&self) -> bool {
        self.drafts.calls() > 0
    }

    /// Takes over what an event tells of the usage.
    pub(super) fn count(&mut self, usage: Option<&WireUsage>) {
        if let Some(usage) = usage {
            self.usage.get_or_insert_default().update(usage);
        }
    }

    /// Adds a whole message.
    pub(super) fn push_message(&mut self, message: &WireMessage<'_>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        self.count(message.usage.as_deref());
        for (index, block) in (0..).zip(&message.content) {
            self.begin_block(index, block, deltas)?;
        }
        self.stop(&message.stop_reason.0)?;
        Ok(())
    }

    /// Begins a block, of which most of what it says may follow.
    pub(super) fn begin_block(&mut self, index: u64, json: &RawValue, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let block: Piece<'_> = serde_json::from_str(json.get()).map_err(|_| Fault::NotAnEvent(API))?;
        let place = match begun(json, &block) {
            Some(draft) => self.drafts.begin(draft)?,
            None => self.drafts.begin_call(block.name.0.into_owned())?,
        };
        self.places.insert(index, place);
        self.drafts.say(place, Said::Text, block.text.0, deltas)?;
        self.drafts.say(place, Said::Thinking, block.thinking.0, deltas)?;
        match block.input.filter(|input| !is_empty_object(input) && input.get() != "null") {
            Some(input) => self.drafts.say(place, Said::Arguments, input.get().into(), deltas),
            None => Ok(()),
        }
    }

    /// Adds to a block. Kinds of deltas that are not known, such as citations, add nothing.
    pub(super) fn push_delta(&mut self, index: u64, delta: Piece<'_>, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
        let (what, said) = match &*delta.r#type.0 {
            "text_delta" => (Said::Text, delta.text.0),
            "thinking_delta" => (Said::Thinking, delta.thinking.0),
            "input_json_delta" => (Said::Arguments, delta.partial_json.0),
            "signature_delta" => return self.sign(index, &delta.signature.0),
            _ => return Ok(false),
        };
        if said.is_empty() {
            return Ok(false);
        }
        let place = self.place(index).ok_or(Fault::NotAnEvent(API))?;
        self.drafts.say(place, what, said, deltas)?;
        Ok(true)
    }

    /// Adds to the part of the turn at its place what an event says that says nothing else, as
    /// [`push_delta`](Self::push_delta) would.
    pub(super) fn push_piece(
        &mut self,
        OnlyPiece { said, is_thinking, place }: OnlyPiece<'_, usize>,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, Fault> {
        let what = if is_thinking { Said::Thinking } else { Said::Text };
        let has_said = !said.is_empty();
        self.drafts.say(place, what, said, deltas)?;
        Ok(has_said)
    }

    /// Ends the turn for this reason, if it is one.
    pub(super) fn stop(&mut self, reason: &str) -> Result<bool, Fault> {
        if reason.is_empty() || self.is_finished() {
            return Ok(false);
        }
        self.drafts.grow(reason.len())?;
        self.stop_reason = Some(reason.to_owned());
        Ok(true)
    }

    /// The turn, once the stream has ended. A refusal takes all calls back.
    pub(super) fn finish(self) -> Result<ModelTurn, Fault> {
        let reason = self.stop_reason.ok_or(Fault::Truncated)?;
        let (end, kept) = stop_reason::read(&reason);
        let parts = self.drafts.finish(&self.author, kept, &reason)?;
        Ok(ModelTurn { parts, usage: self.usage.as_ref().map(Usage::from), end })
    }

    /// Where in the turn the block of this index is that began last.
    pub(super) fn place(&self, index: u64) -> Option<usize> {
        self.places.get(&index).copied()
    }

    fn sign(&mut self, index: u64, piece: &str) -> Result<bool, Fault> {
        self.drafts.grow(piece.len())?;
        let place = self.place(index).ok_or(Fault::NotAnEvent(API))?;
        if let Some(Draft::Thinking { proof: Proof::Signature(signature), .. }) = self.drafts.at(place) {
            signature.push_str(piece);
        }
        Ok(!piece.is_empty())
    }
}

/// A block that begins so, as far as it is not written in deltas; `None` for a call.
fn begun(json: &RawValue, block: &Piece<'_>) -> Option<Draft> {
    let thinking = |proof| Draft::Thinking { text: String::new(), id: None, proof };
    Some(match &*block.r#type.0 {
        "text" => Draft::Text(String::new(), Extra::default()),
        "thinking" => thinking(Proof::Signature(block.signature.0.to_string())),
        // Thinking that the vendor sends only encrypted.
        "redacted_thinking" => thinking(Proof::Encrypted(block.data.0.to_string())),
        "tool_use" => return None,
        _ => Draft::Unknown { dialect: Dialect::AnthropicMessages, json: json.to_owned(), input: String::new() },
    })
}
