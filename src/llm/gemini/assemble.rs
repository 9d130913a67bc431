//! Chunks into deltas and, at the end, a turn.
//!
//! Pure. A turn exists only once a finish reason has come, or the word that the request was blocked, so the calls of a
//! stream that broke off never run. Calls come whole. Some servers write a reason before the end, with every chunk or before
//! the model has begun; more of the answer takes such a reason back.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::chunk::{API, Candidate, Chunk, FunctionCall, WirePart, WireUsage};
use super::finish_reason;
use super::piece::{Piece, Said};
use super::tool_name;
use crate::llm::http::fault::{Fault, MAX_CALLS, MAX_TURN};
use crate::llm::repeated::OnlyPiece;
use crate::llm::text::{add, with_room};
use crate::llm::turn_calls::Calls;
use crate::llm::{Delta, ModelCall, ModelTurn};
use crate::types::{TurnEnd, Usage};

/// Most characters of a finish reason and its message that are shown.
const MAX_SHOWN: usize = 200;
/// What a part takes beside what it says, in bytes.
const PIECE_SIZE: usize = 128;

/// The turn so far.
#[derive(Debug)]
pub(super) struct Assembler {
    author: Arc<str>,
    /// Whether the turn may have several calls.
    many_calls: bool,
    pieces: Vec<Piece>,
    calls: usize,
    usage: Option<WireUsage>,
    finish_reason: Option<String>,
    finish_message: String,
    /// Whether the upstream told with the finish reason, or after it, how long the answer is.
    is_counted: bool,
    /// Whether more followed on a finish reason, so that only the end of the stream is the end.
    is_reason_early: bool,
    /// Whether the upstream answers nothing to such a request.
    is_blocked: bool,
    /// What of [`MAX_TURN`] is used.
    size: usize,
}

impl Assembler {
    /// A turn of the model that signs as `author`, of which nothing has come yet. Unless it may have `many_calls`, it
    /// ends with its first one: the API cannot be told so.
    pub(super) fn new(author: Arc<str>, many_calls: bool) -> Self {
        Self {
            author,
            many_calls,
            pieces: Vec::new(),
            calls: 0,
            usage: None,
            finish_reason: None,
            finish_message: String::new(),
            is_counted: false,
            is_reason_early: false,
            is_blocked: false,
            size: 0,
        }
    }

    /// Whether the model said that it is done, or will not answer. Its usage may still follow. As long as the upstream has not
    /// counted the answer, a reason may be one that came too early.
    pub(super) fn is_finished(&self) -> bool {
        let Some(reason) = &self.finish_reason else { return self.is_blocked };
        self.is_blocked || finish_reason::withholds(reason) || self.is_counted && !self.is_reason_early
    }

    /// Whether the turn calls tools.
    pub(super) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// What the upstream says so far that the turn took, with what is still to be [counted](Self::count).
    pub(super) fn usage(&self, uncounted: Option<WireUsage>) -> Option<Usage> {
        let mut usage = self.usage.or(uncounted)?;
        usage.update(&uncounted.unwrap_or_default());
        Some(Usage::from(&usage))
    }

    /// Takes over what a chunk tells of the usage.
    pub(super) fn count(&mut self, usage: &WireUsage) {
        self.usage.get_or_insert_default().update(usage);
    }

    /// Adds a chunk to the turn and what it says to `deltas`. Returns whether it said anything.
    pub(super) fn push(&mut self, chunk: Chunk<'_>, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
        if let Some(usage) = &chunk.usage_metadata {
            self.count(usage);
        }
        let before = self.size;
        let counts = chunk.usage_metadata.is_some_and(|usage| usage.counts_answer());
        let is_reason = |reason: &str| !matches!(reason, "" | "BLOCK_REASON_UNSPECIFIED");
        let is_blocked = chunk.prompt_feedback.is_some_and(|feedback| is_reason(&feedback.block_reason.0));
        self.is_blocked |= is_blocked;
        for candidate in chunk.candidates.into_iter().flatten() {
            if candidate.index.is_none_or(|index| index == 0) {
                self.push_candidate(candidate, deltas)?;
            }
        }
        self.is_counted |= counts && self.finish_reason.is_some();
        Ok(is_blocked || self.size > before)
    }

    /// Adds what a chunk says that says nothing else, as [`push`](Self::push) would.
    pub(super) fn push_piece(
        &mut self,
        OnlyPiece { said, is_thinking, place: () }: OnlyPiece<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, Fault> {
        if said.is_empty() {
            return Ok(false);
        }
        self.push_text(said, is_thinking, "".into(), deltas)?;
        self.take_reason_back();
        Ok(true)
    }

    fn push_candidate(&mut self, candidate: Candidate<'_>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let before = self.size;
        for json in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
            self.push_part(json, deltas)?;
        }
        if self.size > before {
            self.take_reason_back();
        }
        let reason = candidate.finish_reason.0;
        let is_reason = !matches!(&*reason, "" | "FINISH_REASON_UNSPECIFIED");
        // A stream that was cut short may still end as usual.
        let is_worse = |known: &str| finish_reason::withholds(known) || reason == "STOP";
        if is_reason && !self.finish_reason.as_deref().is_some_and(is_worse) {
            self.grow(reason.len())?;
            self.finish_reason = Some(reason.into_owned());
            self.finish_message = candidate.finish_message.0.chars().take(MAX_SHOWN).collect();
        }
        Ok(())
    }

    /// Forgets a reason that was not that of the end, unless it withholds the answer.
    fn take_reason_back(&mut self) {
        if self.finish_reason.take_if(|reason| !finish_reason::withholds(reason)).is_some() {
            self.finish_message.clear();
            (self.is_counted, self.is_reason_early) = (false, true);
        }
    }

    fn push_part(&mut self, json: &RawValue, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let part: WirePart<'_> = serde_json::from_str(json.get()).map_err(|_| Fault::NotAnEvent(API))?;
        let signature = part.thought_signature.0;
        let is_thought = part.thought == Some(true);
        match (part.function_call, part.text) {
            (Some(call), _) => self.push_call(&call, signature, deltas),
            (None, Some(text)) => self.push_text(text.0, is_thought, signature, deltas),
            (None, None) => match Said::unknown(json) {
                Some(said) => self.add(Piece { said, signature: signature.into_owned() }),
                None => self.push_text("".into(), is_thought, signature, deltas),
            },
        }
    }

    /// Text without a signature goes on where the text before it has none. A signature is that of one part as it came.
    fn push_text(
        &mut self,
        said: Cow<'_, str>,
        is_thought: bool,
        signature: Cow<'_, str>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        if said.is_empty() && signature.is_empty() {
            return Ok(());
        }
        let last = self.pieces.last_mut().filter(|last| last.signature.is_empty() && signature.is_empty());
        match (last.map(|last| &mut last.said), is_thought) {
            (Some(Said::Text(text)), false) | (Some(Said::Thought(text)), true) => {
                add(text, &said);
                self.grow(said.len())?;
            }
            (_, is_thought) => {
                let said = with_room(Cow::Borrowed(&said));
                let said = if is_thought { Said::Thought(said) } else { Said::Text(said) };
                self.add(Piece { said, signature: signature.into_owned() })?;
            }
        }
        if said.is_empty() {
            return Ok(());
        }
        match (deltas.last_mut(), is_thought) {
            (Some(Delta::Text(last)), false) | (Some(Delta::Thinking(last)), true) => last.push_str(&said),
            (_, true) => deltas.push(Delta::Thinking(with_room(said))),
            (_, false) => deltas.push(Delta::Text(with_room(said))),
        }
        Ok(())
    }

    fn push_call(
        &mut self,
        call: &FunctionCall<'_>,
        signature: Cow<'_, str>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        if self.calls > 0 && !self.many_calls {
            return Ok(());
        }
        if self.calls == MAX_CALLS {
            return Err(Fault::TooManyCalls);
        }
        let arguments = call.args.map(RawValue::get).filter(|args| *args != "null").unwrap_or("{}").to_owned();
        deltas.push(Delta::CallArguments { index: self.calls, delta: arguments.clone() });
        self.calls += 1;
        let call = ModelCall { name: tool_name::received(&call.name.0).to_owned(), arguments };
        self.add(Piece { said: Said::Call(call), signature: signature.into_owned() })
    }

    /// The turn, once the stream has ended. A refusal takes all calls back.
    pub(super) fn finish(self) -> Result<ModelTurn, Fault> {
        let (has_calls, usage) = (self.calls > 0, self.usage(None));
        let (end, kept) = match self.finish_reason {
            None if self.is_blocked => (TurnEnd::ContentFilter, Calls::None),
            None => return Err(Fault::Truncated),
            Some(reason) if finish_reason::is_unusable_call(&reason) => {
                let message = [reason, self.finish_message].join(" ");
                return Err(Fault::UnusableCall(message.trim_end().to_owned()));
            }
            Some(reason) => {
                let shown = reason.chars().take(MAX_SHOWN).collect();
                match finish_reason::read(reason, has_calls) {
                    (_, Calls::Unknown) if has_calls => return Err(Fault::UnknownEnd(shown)),
                    read => read,
                }
            }
        };
        let mut parts = Vec::with_capacity(self.pieces.len());
        for piece in self.pieces {
            if kept != Calls::None || !matches!(piece.said, Said::Call(_)) {
                piece.write(&self.author, &mut parts);
            }
        }
        Ok(ModelTurn { parts, usage, end })
    }

    fn add(&mut self, piece: Piece) -> Result<(), Fault> {
        self.grow(PIECE_SIZE + piece.said.size() + piece.signature.len())?;
        self.pieces.push(piece);
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        self.size += bytes;
        if self.size > MAX_TURN { Err(Fault::TooLong) } else { Ok(()) }
    }
}
