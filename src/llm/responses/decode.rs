//! The bytes of an answer into deltas and a turn.
//!
//! Pure: knows nothing of connections and time.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::assemble::Assembler;
use super::event::{API, Event, WireResponse};
use crate::llm::drafts::Said;
use crate::llm::http::decode::{Decode, LAST_EVENT, Progress, read_events};
use crate::llm::http::failure::Report;
use crate::llm::http::fault::{Fault, MAX_TURN};
use crate::llm::named_event::{kind_ahead, parse};
use crate::llm::repeated::{OnlyPiece, Surroundings};
use crate::llm::sse::Parser;
use crate::llm::{Delta, ModelTurn};

/// Longest event, in bytes: the last one repeats the whole turn, and what was asked.
const MAX_EVENT: usize = 2 * MAX_TURN;
/// The kinds of events that say something, but for those of deltas.
const KNOWN: [&str; 6] = [
    "error",
    "response.completed",
    "response.failed",
    "response.incomplete",
    "response.output_item.added",
    "response.output_item.done",
];

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
        let (surroundings, assembler) = (Surroundings::default(), Assembler::new(author));
        Self { events: Parser::with_longest_event(MAX_EVENT), reader: Reader { surroundings, assembler } }
    }
}

impl Decode for Decoder {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<Progress, Fault> {
        let Self { events, reader } = self;
        read_events(events, bytes, |event| match event {
            LAST_EVENT => Ok(Progress::Done),
            json => reader.read(json, deltas),
        })
    }

    /// Reads a whole response.
    fn feed_whole(&mut self, json: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let not_an_event = |_| Fault::NotAnEvent(API);
        let response: &RawValue = serde_json::from_slice(json).map_err(not_an_event)?;
        let (object, error) = serde_json::from_str(response.get())
            .map(|WireResponse { object, error, .. }| (object, error))
            .map_err(not_an_event)?;
        match (&*object.0, error) {
            ("response", _) => self.reader.assembler.end_response(response, "", deltas),
            (_, Some(_)) => Err(Fault::Reported(Report::read(json))),
            (_, None) => Err(Fault::NotAnEvent(API)),
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
        if let Some(OnlyPiece { said, is_thinking, place }) = self.surroundings.piece_of(json) {
            let what = if is_thinking { Said::Thinking } else { Said::Text };
            return self.assembler.push_piece(place, what, said, deltas).map(Progress::of);
        }
        if kind_ahead(json).is_some_and(|kind| !is_known(kind)) {
            // Most of these repeat what was asked, or what was said: long events, of which nothing is needed.
            return Ok(Progress::Silent);
        }
        let (text, event) = parse::<Event<'_>>(json, API, is_known)?;
        if event.item.is_some() {
            // Where items have neither number nor name, the same surroundings mean another item from here on.
            self.surroundings = Surroundings::default();
        }
        let piece = only_piece(&event);
        let read = read_event(json, event, &mut self.assembler, deltas)?;
        if let (Some(place), Some(piece)) = (self.assembler.place(), piece) {
            self.surroundings.keep(text, Some(piece.at(place)));
        }
        Ok(read)
    }
}

/// What the deltas of this kind of event add to.
fn said_by(kind: &str) -> Option<Said> {
    Some(match kind {
        "response.output_text.delta" => Said::Text,
        "response.refusal.delta" => Said::Refusal,
        "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => Said::Thinking,
        "response.function_call_arguments.delta" => Said::Arguments,
        _ => return None,
    })
}

/// Whether an event of this kind says something here.
fn is_known(kind: &str) -> bool {
    KNOWN.contains(&kind) || said_by(kind).is_some()
}

/// Adds what an event says. Most kinds of events repeat what others say.
fn read_event(
    json: &[u8],
    event: Event<'_>,
    assembler: &mut Assembler,
    deltas: &mut Vec<Delta>,
) -> Result<Progress, Fault> {
    if let Some(what) = said_by(&event.r#type.0) {
        return assembler.push_delta(what, event, deltas).map(Progress::of);
    }
    let index = event.output_index;
    match (&*event.r#type.0, event.item, event.response) {
        ("response.output_item.added", Some(item), _) => assembler.begin_item(index, &item, deltas).map(Progress::of),
        ("response.output_item.done", Some(item), _) => assembler.end_item(index, &item, deltas).map(Progress::of),
        (kind @ ("response.completed" | "response.incomplete" | "response.failed"), _, Some(response)) => {
            assembler.end_response(response, kind.trim_start_matches("response."), deltas)?;
            Ok(Progress::Done)
        }
        ("error", ..) => Err(assembler.failure(json)),
        (kind, ..) if KNOWN.contains(&kind) => Err(Fault::NotAnEvent(API)),
        // Some gateways send an error without saying what it is.
        ("", ..) if event.error.is_some() => Err(assembler.failure(json)),
        _ => Ok(Progress::Silent),
    }
}

/// What an event adds, if that is one piece of text or thinking, without escapes, and all that it says.
fn only_piece<'a>(event: &Event<'a>) -> Option<OnlyPiece<'a>> {
    let is_thinking = match said_by(&event.r#type.0)? {
        Said::Text => false,
        Said::Thinking => true,
        Said::Refusal | Said::Arguments => return None,
    };
    match event.delta.0 {
        Cow::Borrowed(said) if !said.is_empty() => Some(OnlyPiece { said: said.into(), is_thinking, place: () }),
        Cow::Borrowed(_) | Cow::Owned(_) => None,
    }
}

#[cfg(test)]
mod tests;
