//! Chunks into deltas and, at the end, a turn.
//!
//! Pure. Pieces of a call find each other by id; a new id begins a new call even on a used index, and
//! without an id the index decides, then the order. A turn exists only once a finish reason has come,
//! so the half-written calls of a stream that broke off never run. After it nothing but the usage counts.

use std::borrow::Cow;

use super::chunk::{CallIndex, CallPiece, Chunk, MessageDelta};
use super::finish_reason;
use crate::llm::drafts::say_arguments;
use crate::llm::http::fault::{Fault, MAX_CALLS, MAX_TURN};
use crate::llm::repeated::OnlyPiece;
use crate::llm::text::{Text, with_room};
use crate::llm::turn_calls::{Calls, is_whole_object};
use crate::llm::{Delta, ModelCall, ModelPart, ModelTurn};
use crate::types::Usage;
use crate::types::conversation::{Part, PartKind, Proof, Seal, Thinking};

/// Most characters of an unknown finish reason that are shown.
const MAX_SHOWN_REASON: usize = 40;

/// The turn so far.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    /// The model, as it signs, where its server wants its reasoning back.
    author: Option<String>,
    pieces: Vec<Piece>,
    calls: Vec<Draft>,
    usage: Option<Usage>,
    finish_reason: Option<String>,
    /// Whether some of the answer is audio, which nothing here can pass on.
    has_audio: bool,
    /// What of [`MAX_TURN`] is used.
    size: usize,
}

/// Something of the turn, in the order in which it began.
#[derive(Debug)]
enum Piece {
    Text(String),
    Refusal(String),
    Thinking(String),
    /// The next call.
    Call,
}

/// A call that is being written.
#[derive(Debug, Default)]
struct Draft {
    id: String,
    index: CallIndex,
    name: String,
    arguments: String,
    /// How many pieces the arguments came in.
    pieces: u32,
}

impl Assembler {
    /// A turn of the model that signs as `author`, where it does, of which nothing has come yet.
    pub(super) fn new(author: Option<String>) -> Self {
        Self { author, ..Self::default() }
    }

    /// Adds a chunk to the turn and what it says to `deltas`, joined to the last one where that is of
    /// the same kind. Returns whether it said anything.
    pub(super) fn push(&mut self, chunk: Chunk<'_>, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
        let mut spoke = false;
        if let Some(usage) = chunk.usage {
            self.usage = Some(Usage::from(&*usage));
        }
        if self.is_finished() {
            return Ok(false);
        }
        for choice in chunk.choices {
            if choice.index.is_some_and(|index| index != 0) {
                continue;
            }
            if let Some(said) = choice.delta {
                spoke |= self.read_message(said, deltas)?;
            }
            if let Some(said) = choice.message {
                spoke |= self.read_message(*said, deltas)?;
            }
            let reason = choice.finish_reason.0;
            if !reason.is_empty() && self.finish_reason.is_none() {
                self.grow(reason.len())?;
                self.finish_reason = Some(reason.into_owned());
                spoke = true;
            }
        }
        Ok(spoke)
    }

    /// Adds what a chunk says that says nothing else, as [`push`](Self::push) would.
    pub(super) fn push_piece(
        &mut self,
        OnlyPiece { said, is_thinking, place: () }: OnlyPiece<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, Fault> {
        if self.is_finished() || said.is_empty() {
            return Ok(false);
        }
        if is_thinking {
            self.say_thinking(said, deltas)?;
        } else {
            self.say_text(&said, false, deltas)?;
        }
        Ok(true)
    }

    /// Adds a piece of a call's arguments, of a chunk that says nothing else, as [`push`](Self::push) would.
    pub(super) fn push_arguments(
        &mut self,
        OnlyPiece { said, place: index, .. }: OnlyPiece<'_, CallIndex>,
        deltas: &mut Vec<Delta>,
    ) -> Result<bool, Fault> {
        if self.is_finished() || said.is_empty() {
            return Ok(false);
        }
        self.add_to_call((Cow::default(), index), "", said, deltas)?;
        Ok(true)
    }

    /// Whether the model said that it is done. Its usage may still follow.
    pub(super) fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// What the upstream says that the turn took.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Whether the turn calls tools.
    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The turn, once the stream has ended.
    ///
    /// Where the upstream cut the model short, the first call whose arguments are not a whole object is
    /// what was being written by then: it is dropped with all after it, which keeps the numbers that
    /// deltas gave the others. Otherwise malformed arguments are the model's own and are kept for it
    /// to be told. Absent arguments are an empty object. A content filter takes all calls back.
    pub(super) fn finish(self) -> Result<ModelTurn, Fault> {
        if self.has_audio && self.pieces.is_empty() {
            return Err(Fault::OnlyAudio);
        }
        let finish_reason = self.finish_reason.ok_or(Fault::Truncated)?;
        let kept = finish_reason::calls_after(&finish_reason);
        if kept == Calls::Unknown && !self.calls.is_empty() {
            return Err(Fault::UnknownEnd(finish_reason.chars().take(MAX_SHOWN_REASON).collect()));
        }
        let calls = self.calls.into_iter().take_while(|draft| match kept {
            Calls::All | Calls::Unknown => true,
            Calls::Whole => is_whole_object(&draft.arguments),
            Calls::None => false,
        });
        let mut calls = calls.map(|Draft { name, arguments, .. }| {
            let arguments = if arguments.trim().is_empty() { "{}".to_owned() } else { arguments };
            ModelPart::Call(ModelCall { name, arguments })
        });
        let seal = || {
            let author = self.author.clone()?;
            Some(Box::new(Seal { author, id: None, proof: Proof::Unsigned }))
        };
        let parts = self.pieces.into_iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(ModelPart::Part(Part::text(text))),
            Piece::Refusal(text) => Some(ModelPart::Part(PartKind::Refusal(text).into())),
            Piece::Thinking(text) => Some(ModelPart::Part(PartKind::Thinking(Thinking { text, seal: seal() }).into())),
            // They began in the order of their numbers.
            Piece::Call => calls.next(),
        });
        Ok(ModelTurn { parts: parts.collect(), usage: self.usage, end: finish_reason::read(finish_reason) })
    }

    fn read_message(&mut self, said: MessageDelta<'_>, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
        let before = self.size;
        let calls = self.calls.len();
        self.has_audio |= said.audio.0;
        let (Text(first), Text(second)) = (said.reasoning_content, said.reasoning);
        self.say_thinking(if first.is_empty() { second } else { first }, deltas)?;
        self.say_text(&said.content.0, false, deltas)?;
        self.say_text(&said.refusal.0, true, deltas)?;
        for piece in said.tool_calls.into_iter().flatten() {
            self.push_call(piece, deltas)?;
        }
        Ok(self.size > before || self.calls.len() > calls || said.audio.0)
    }

    fn say_thinking(&mut self, said: Cow<'_, str>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        if said.is_empty() {
            return Ok(());
        }
        self.grow(said.len())?;
        match self.pieces.last_mut() {
            Some(Piece::Thinking(text)) => text.push_str(&said),
            _ => self.pieces.push(Piece::Thinking(said.to_string())),
        }
        match deltas.last_mut() {
            Some(Delta::Thinking(last)) => last.push_str(&said),
            _ => deltas.push(Delta::Thinking(said.into_owned())),
        }
        Ok(())
    }

    fn say_text(&mut self, said: &str, is_refusal: bool, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        if said.is_empty() {
            return Ok(());
        }
        self.grow(said.len())?;
        match (self.pieces.last_mut(), is_refusal) {
            (Some(Piece::Text(last)), false) | (Some(Piece::Refusal(last)), true) => last.push_str(said),
            (_, false) => self.pieces.push(Piece::Text(with_room(said.into()))),
            (_, true) => self.pieces.push(Piece::Refusal(with_room(said.into()))),
        }
        match (deltas.last_mut(), is_refusal) {
            (Some(Delta::Text(last)), false) | (Some(Delta::Refusal(last)), true) => last.push_str(said),
            (_, false) => deltas.push(Delta::Text(with_room(said.into()))),
            (_, true) => deltas.push(Delta::Refusal(with_room(said.into()))),
        }
        Ok(())
    }

    fn push_call(&mut self, piece: CallPiece<'_>, deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let function = piece.function.unwrap_or_default();
        let arguments = function.arguments().map_err(|_| Fault::NotAChunk)?;
        self.add_to_call((piece.id.0, piece.index), &function.name.0, arguments, deltas)
    }

    /// Adds what was said of a call with this id and index.
    fn add_to_call(
        &mut self,
        (id, index): (Cow<'_, str>, CallIndex),
        name: &str,
        arguments: Cow<'_, str>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Fault> {
        let says_nothing = id.is_empty() && name.is_empty() && arguments.is_empty();
        if says_nothing || self.calls.iter().any(|draft| draft.is_repeated_by(&id, index, name, &arguments)) {
            return Ok(());
        }
        let number = match self.call_of(&id, index, name, &arguments) {
            Some(number) => number,
            None if self.calls.len() == MAX_CALLS => return Err(Fault::TooManyCalls),
            None => {
                self.pieces.push(Piece::Call);
                self.calls.push(Draft::default());
                self.calls.len() - 1
            }
        };
        let mut growth = arguments.len();
        let draft = &mut self.calls[number];
        draft.index = draft.index.or(index);
        if draft.id.is_empty() {
            growth += id.len();
            draft.id = id.into_owned();
        }
        // A name may come in pieces until the arguments begin; some servers repeat it with every piece.
        if draft.arguments.is_empty() && draft.name != name {
            growth += name.len();
            draft.name.push_str(name);
        }
        if !arguments.is_empty() {
            draft.arguments.push_str(&arguments);
            draft.pieces = draft.pieces.saturating_add(1);
            say_arguments(number, arguments, deltas);
        }
        self.grow(growth)
    }

    /// Which call a piece belongs to; `None` for a new one.
    fn call_of(&self, id: &str, index: CallIndex, name: &str, arguments: &str) -> Option<usize> {
        let same_place = |draft: &Draft| index.is_none() || draft.index.is_none() || draft.index == index;
        let latest = self.calls.len().checked_sub(1)?;
        let found = if !id.is_empty() {
            // An id that came before belongs to that call, unless it is a placeholder that several
            // calls bear: then the index decides, and a name begins another call. An id may also come
            // after its call began.
            let find = |fits: &dyn Fn(&Draft) -> bool| self.calls.iter().rposition(fits);
            find(&|draft| draft.id == id && same_place(draft))
                .or_else(|| find(&|draft| draft.id == id && name.is_empty()))
                .or_else(|| find(&|draft| draft.id.is_empty() && index.is_some() && draft.index == index))
        } else if index.is_some() {
            let same_index = self.calls.iter().rposition(|draft| draft.index == index);
            same_index.or_else(|| self.calls[latest].index.is_none().then_some(latest))
        } else {
            name.is_empty().then_some(latest)
        };
        found.filter(|&number| !self.calls[number].is_followed_by(name, arguments))
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        self.size += bytes;
        if self.size > MAX_TURN { Err(Fault::TooLong) } else { Ok(()) }
    }
}

impl Draft {
    /// Whether a piece that names a tool is another whole call, from a server that writes each call in
    /// one piece and gives all of them the same place.
    fn is_followed_by(&self, name: &str, arguments: &str) -> bool {
        !name.is_empty() && self.pieces == 1 && is_whole_object(arguments) && is_whole_object(&self.arguments)
    }

    /// Whether a piece is this whole call once more, which must not run it twice. Without an id the same call at
    /// another index is another call: some models mean that.
    fn is_repeated_by(&self, id: &str, index: CallIndex, name: &str, arguments: &str) -> bool {
        let same_place = if id.is_empty() { self.index == index } else { self.id == id };
        let same = same_place && !name.is_empty() && self.name == name;
        same && self.arguments == arguments && is_whole_object(arguments)
    }
}
