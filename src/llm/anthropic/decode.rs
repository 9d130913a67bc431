//! The bytes of an answer into deltas and a turn.
//!
//! Pure: knows nothing of connections and time.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;

use super::assemble::Assembler;
use super::event::{API, Event, WireMessage};
use crate::llm::http::decode::{Decode, Progress};
use crate::llm::http::failure::Report;
use crate::llm::http::fault::Fault;
use crate::llm::repeated::{OnlyPiece, Surroundings};
use crate::llm::sse::Parser;
use crate::llm::{Delta, ModelTurn};

/// The kinds of events that say something.
const KNOWN: [&str; 6] =
    ["message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "error"];

/// Reads one streamed answer.
#[derive(Debug)]
pub(super) struct Decoder {
    events: Parser,
    surroundings: Surroundings,
    /// The block that the kept surroundings name.
    block: u64,
    assembler: Assembler,
}

impl Decoder {
    /// For an answer of the model that signs as `author`.
    pub(super) fn new(author: Arc<str>) -> Self {
        let assembler = Assembler::new(author);
        Self { events: Parser::default(), surroundings: Surroundings::default(), block: 0, assembler }
    }
}

impl Decode for Decoder {
    fn feed(&mut self, mut bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<Progress, Fault> {
        let Self { events, surroundings, block, assembler } = self;
        let mut progress = Progress::Silent;
        while let Some(event) = events.next_event(&mut bytes)? {
            let json = event.trim_ascii();
            if json.is_empty() {
                continue;
            }
            let piece = surroundings.piece_of(json).filter(|_| !assembler.is_finished());
            let read = match piece {
                Some(piece) if assembler.push_piece(*block, piece, deltas)? => Progress::Spoke,
                Some(_) => Progress::Silent,
                None => {
                    let (text, event) = parse(json)?;
                    if let (Some(index), piece @ Some(_)) = (event.index, only_piece(&event)) {
                        surroundings.keep(text, piece);
                        *block = index;
                    }
                    read_event(json, event, assembler, deltas)?
                }
            };
            match read {
                Progress::Done => return Ok(Progress::Done),
                Progress::Spoke => progress = Progress::Spoke,
                Progress::Silent => {}
            }
        }
        Ok(progress)
    }

    /// Reads a whole message.
    fn feed_whole(&mut self, json: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let text = str::from_utf8(json).map_err(|_| Fault::NotAnEvent(API))?;
        let message: WireMessage<'_> = serde_json::from_str(text).map_err(|_| Fault::NotAnEvent(API))?;
        match &*message.r#type.0 {
            "error" => Err(Fault::Reported(Report::read(json))),
            "message" => self.assembler.push_message(&message, deltas),
            _ => Err(Fault::NotAnEvent(API)),
        }
    }

    fn is_finished(&self) -> bool {
        self.assembler.is_finished()
    }

    fn has_calls(&self) -> bool {
        self.assembler.has_calls()
    }

    fn finish(self) -> Result<ModelTurn, Fault> {
        self.assembler.finish()
    }
}

/// An event, and the text that it was parsed from.
fn parse(json: &[u8]) -> Result<(&str, Event<'_>), Fault> {
    let text = str::from_utf8(json).map_err(|_| Fault::NotAnEvent(API))?;
    match serde_json::from_str(text) {
        Ok(event) => Ok((text, event)),
        Err(_) if is_unknown(text) => Ok((text, Event::default())),
        Err(_) => Err(Fault::NotAnEvent(API)),
    }
}

/// Whether it is an event of a kind that is not known, whose members may then be anything.
fn is_unknown(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        r#type: String,
    }
    serde_json::from_str(text).is_ok_and(|Kind { r#type }| !KNOWN.contains(&r#type.as_str()))
}

/// Adds what an event says. Kinds of events that are not known say nothing.
fn read_event(
    json: &[u8],
    event: Event<'_>,
    assembler: &mut Assembler,
    deltas: &mut Vec<Delta>,
) -> Result<Progress, Fault> {
    let spoke = |spoke: bool| if spoke { Progress::Spoke } else { Progress::Silent };
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
        ("content_block_delta", Some(index), Some(delta)) => assembler.push_delta(index, delta, deltas).map(spoke),
        ("message_delta", _, Some(delta)) => assembler.stop(&delta.stop_reason.0).map(spoke),
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
        Cow::Borrowed(said) if !said.is_empty() => Some(OnlyPiece { said, is_thinking }),
        Cow::Borrowed(_) | Cow::Owned(_) => None,
    }
}

#[cfg(test)]
mod tests;
