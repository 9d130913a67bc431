//! The bytes of an answer into deltas and a turn.
//!
//! Pure: knows nothing of connections and time.

use std::borrow::Cow;
use std::sync::Arc;

use super::assemble::Assembler;
use super::event::{API, Event, WireMessage};
use crate::llm::http::decode::{Decode, Progress, read_events};
use crate::llm::http::failure::Report;
use crate::llm::http::fault::Fault;
use crate::llm::named_event::parse;
use crate::llm::repeated::{OnlyPiece, Surroundings};
use crate::llm::sse::Parser;
use crate::llm::{Delta, ModelTurn};

/// The kinds of events that say something.
const KNOWN: [&str; 6] =
    ["message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "error"];

/// Reads one streamed answer.
#[derive(Debug)]
pub struct Decoder {
    events: Parser,
    reader: Reader,
}

/// Reads event by event.
#[derive(Debug)]
struct Reader {
    /// Of the last piece, whose place is where in the turn it adds to.
    surroundings: Surroundings<usize>,
    assembler: Assembler,
}

impl Decoder {
    /// For an answer of the model that signs as `author`.
    #[must_use]
    pub fn new(author: Arc<str>) -> Self {
        let reader = Reader { surroundings: Surroundings::default(), assembler: Assembler::new(author) };
        Self { events: Parser::default(), reader }
    }
}

impl Decode for Decoder {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<Progress, Fault> {
        let Self { events, reader } = self;
        read_events(events, bytes, |json| reader.read(json, deltas))
    }

    /// Reads a whole message.
    fn feed_whole(&mut self, json: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let text = str::from_utf8(json).map_err(|_| Fault::NotAnEvent(API))?;
        let message: WireMessage<'_> = serde_json::from_str(text).map_err(|_| Fault::NotAnEvent(API))?;
        match &*message.r#type.0 {
            "error" => Err(Fault::Reported(Report::read(json))),
            "message" => self.reader.assembler.push_message(&message, deltas),
            _ => Err(Fault::NotAnEvent(API)),
        }
    }

    fn is_finished(&self) -> bool {
        self.reader.assembler.is_finished()
    }

    fn has_calls(&self) -> bool {
        self.reader.assembler.has_calls()
    }

    fn finish(self) -> Result<ModelTurn, Fault> {
        self.reader.assembler.finish()
    }
}

impl Reader {
    /// Reads an event, without parsing it where that is not needed.
    fn read(&mut self, json: &[u8], deltas: &mut Vec<Delta>) -> Result<Progress, Fault> {
        if let Some(piece) = self.surroundings.piece_of(json)
            && !self.assembler.is_finished()
        {
            return self.assembler.push_piece(piece, deltas).map(Progress::of);
        }
        let (text, event) = parse::<Event<'_>>(json, API, |kind| KNOWN.contains(&kind))?;
        if event.content_block.is_some() {
            // A block that has the number of an earlier one goes on in its place.
            self.surroundings = Surroundings::default();
        }
        if let Some(piece) = only_piece(&event)
            && let Some(place) = event.index.and_then(|index| self.assembler.place(index))
        {
            self.surroundings.keep(text, Some(piece.at(place)));
        }
        read_event(json, event, &mut self.assembler, deltas)
    }
}

/// Adds what an event says. Kinds of events that are not known say nothing.
fn read_event(
    json: &[u8],
    event: Event<'_>,
    assembler: &mut Assembler,
    deltas: &mut Vec<Delta>,
) -> Result<Progress, Fault> {
    match &*event.r#type.0 {
        "error" => return Err(Fault::Reported(Report::read(json))),
        "message_stop" => return Ok(Progress::Done),
        _ => {}
    }
    assembler.count(event.usage.as_deref());
    if let Some(message) = &event.message {
        assembler.count(message.usage.as_deref());
    }
    if assembler.is_finished() {
        return Ok(Progress::Silent);
    }
    match (&*event.r#type.0, event.index, event.delta) {
        ("content_block_start", Some(index), _) => {
            assembler.begin_block(index, event.content_block.ok_or(Fault::NotAnEvent(API))?, deltas)?;
            Ok(Progress::Spoke)
        }
        ("content_block_delta", Some(index), Some(delta)) => {
            assembler.push_delta(index, delta, deltas).map(Progress::of)
        }
        ("message_delta", _, Some(delta)) => assembler.stop(&delta.stop_reason.0).map(Progress::of),
        ("content_block_start" | "content_block_delta", ..) => Err(Fault::NotAnEvent(API)),
        _ => Ok(Progress::Silent),
    }
}

/// What an event adds, if that is one piece of text or thinking, without escapes, and all that it says.
fn only_piece<'a>(event: &Event<'a>) -> Option<OnlyPiece<'a>> {
    let delta = event.delta.as_ref().filter(|_| event.r#type.0 == "content_block_delta" && event.usage.is_none())?;
    let (said, is_thinking) = match &*delta.r#type.0 {
        "text_delta" => (&delta.text.0, false),
        "thinking_delta" => (&delta.thinking.0, true),
        _ => return None,
    };
    match *said {
        Cow::Borrowed(said) if !said.is_empty() => Some(OnlyPiece { said: said.into(), is_thinking, place: () }),
        Cow::Borrowed(_) | Cow::Owned(_) => None,
    }
}

#[cfg(test)]
mod tests;
