//! Events into deltas and, at the end, a turn.
//!
//! Pure. A turn exists only once a stop reason has come, so the half-written calls of a stream that broke off never run.
//! After it nothing but the usage counts.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::blocks::is_empty_object;
use super::draft::Draft;
use super::event::{Block, BlockDelta, WireMessage, WireUsage};
use super::stop_reason;
use crate::llm::http::fault::{Fault, MAX_CALLS, MAX_TURN};
use crate::llm::repeated::OnlyPiece;
use crate::llm::turn_calls::{Calls, is_whole_object};
use crate::llm::{Delta, ModelTurn};
use crate::types::Usage;

/// Most characters of an unknown stop reason that are shown.
const MAX_SHOWN_REASON: usize = 40;
/// What a block takes beside what it says, in bytes.
const BLOCK_SIZE: usize = 128;

/// The turn so far.
#[derive(Debug)]
pub(super) struct Assembler {
    author: Arc<str>,
    /// The blocks in the order in which they began.
    blocks: Vec<Draft>,
    /// Where the block of each index is that began last. An upstream may begin very many, and add to any.
    places: HashMap<u64, usize>,
    calls: usize,
    usage: Option<WireUsage>,
    stop_reason: Option<String>,
    /// What of [`MAX_TURN`] is used.
    size: usize,
}

impl Assembler {
    /// A turn of the model that signs as `author`, of which nothing has come yet.
    pub(super) fn new(author: Arc<str>) -> Self {
        Self { author, blocks: Vec::new(), places: HashMap::new(), calls: 0, usage: None, stop_reason: None, size: 0 }
    }

    /// Whether the model said that it is done. Its usage may still follow.
    pub(super) fn is_finished(&self) -> bool {
        self.stop_reason.is_some()
    }

    /// Whether the turn calls tools.
    pub(super) fn has_calls(&self) -> bool {
        self.calls > 0
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
        let block: Block<'_> = serde_json::from_str(json.get()).map_err(|_| Fault::NotAnEvent)?;
        let draft = Draft::begin(json, &block, self.calls);
        if draft.arguments().is_some() {
            if self.calls == MAX_CALLS {
                return Err(Fault::TooManyCalls);
            }
            self.calls += 1;
        }
        self.grow(BLOCK_SIZE + draft.size())?;
        self.places.insert(index, self.blocks.len());
        self.blocks.push(draft);
        self.say_text(index, block.text.0, deltas)?;
        self.say_thinking(index, block.thinking.0, deltas)?;
        match block.input.filter(|input| !is_empty_object(input) && input.get() != "null") {
            Some(input) => self.say_input(index, input.get().into(), deltas),
            None => Ok(()),
        }
    }

    /// Adds to a block. Kinds of deltas that are not known, such as citations, add nothing.
    pub(super) fn push_delta(
        &mut self,
        index: u64,
        delta: BlockDelta<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, Fault> {
        let before = self.size;
        match &*delta.r#type.0 {
            "text_delta" => self.say_text(index, delta.text.0, deltas)?,
            "thinking_delta" => self.say_thinking(index, delta.thinking.0, deltas)?,
            "input_json_delta" => self.say_input(index, delta.partial_json.0, deltas)?,
            "signature_delta" => self.sign(index, &delta.signature.0)?,
            _ => {}
        }
        Ok(self.size > before)
    }

    /// Adds what an event says that says nothing else, as [`push_delta`](Self::push_delta) would.
    pub(super) fn push_piece(
        &mut self,
        index: u64,
        OnlyPiece { said, is_thinking }: OnlyPiece<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, Fault> {
        if is_thinking {
            self.say_thinking(index, said.into(), deltas)?;
        } else {
            self.say_text(index, said.into(), deltas)?;
        }
        Ok(!said.is_empty())
    }

    /// Ends the turn for this reason, if it is one.
    pub(super) fn stop(&mut self, reason: &str) -> Result<bool, Fault> {
        if reason.is_empty() || self.is_finished() {
            return Ok(false);
        }
        self.grow(reason.len())?;
        self.stop_reason = Some(reason.to_owned());
        Ok(true)
    }

    /// The turn, once the stream has ended.
    ///
    /// Where the upstream cut the model short, the first call whose arguments are not a whole object is what was being
    /// written by then: it is dropped with all calls after it. A refusal takes all calls back.
    pub(super) fn finish(self) -> Result<ModelTurn, Fault> {
        let reason = self.stop_reason.ok_or(Fault::Truncated)?;
        let shown: String = reason.chars().take(MAX_SHOWN_REASON).collect();
        let (end, kept) = stop_reason::read(reason);
        if kept == Calls::Unknown && self.calls > 0 {
            return Err(Fault::UnknownEnd(shown));
        }
        let is_half = |draft: &Draft| draft.arguments().is_some_and(|arguments| !is_whole_object(arguments));
        let calls = match kept {
            Calls::All | Calls::Unknown => usize::MAX,
            Calls::Whole => {
                let half = self.blocks.iter().filter(|draft| draft.arguments().is_some());
                half.take_while(|draft| !is_half(draft)).count()
            }
            Calls::None => 0,
        };
        let is_kept = |draft: &Draft| !matches!(draft, Draft::Call { number, .. } if *number >= calls);
        let author = &*self.author;
        let drafts = self.blocks.into_iter().filter(is_kept);
        Ok(ModelTurn {
            parts: drafts.filter_map(|draft| draft.into_part(author)).collect(),
            usage: self.usage.as_ref().map(Usage::from),
            end,
        })
    }

    /// The block of this index that began last.
    fn block(&mut self, index: u64) -> Result<&mut Draft, Fault> {
        let place = self.places.get(&index).ok_or(Fault::NotAnEvent)?;
        self.blocks.get_mut(*place).ok_or(Fault::NotAnEvent)
    }

    fn say_text(&mut self, index: u64, said: Cow<'_, str>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        if said.is_empty() {
            return Ok(());
        }
        self.grow(said.len())?;
        if let Draft::Text(text) = self.block(index)? {
            text.push_str(&said);
            match deltas.last_mut() {
                Some(Delta::Text(last)) => last.push_str(&said),
                _ => deltas.push(Delta::Text(said.into_owned())),
            }
        }
        Ok(())
    }

    fn say_thinking(&mut self, index: u64, said: Cow<'_, str>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        if said.is_empty() {
            return Ok(());
        }
        self.grow(said.len())?;
        if let Draft::Thinking { text, .. } = self.block(index)? {
            text.push_str(&said);
            match deltas.last_mut() {
                Some(Delta::Thinking(last)) => last.push_str(&said),
                _ => deltas.push(Delta::Thinking(said.into_owned())),
            }
        }
        Ok(())
    }

    fn say_input(&mut self, index: u64, piece: Cow<'_, str>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        if piece.is_empty() {
            return Ok(());
        }
        self.grow(piece.len())?;
        match self.block(index)? {
            Draft::Call { number, arguments, .. } => {
                arguments.push_str(&piece);
                let number = *number;
                match deltas.last_mut() {
                    Some(Delta::CallArguments { index: last, delta }) if *last == number => delta.push_str(&piece),
                    _ => deltas.push(Delta::CallArguments { index: number, delta: piece.into_owned() }),
                }
            }
            Draft::Unknown { input, .. } => input.push_str(&piece),
            Draft::Text(_) | Draft::Thinking { .. } | Draft::Redacted(_) => {}
        }
        Ok(())
    }

    fn sign(&mut self, index: u64, piece: &str) -> Result<(), Fault> {
        self.grow(piece.len())?;
        if let Draft::Thinking { signature, .. } = self.block(index)? {
            signature.push_str(piece);
        }
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        self.size += bytes;
        if self.size > MAX_TURN { Err(Fault::TooLong) } else { Ok(()) }
    }
}
