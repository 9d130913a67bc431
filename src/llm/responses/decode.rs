//! The bytes of an answer into deltas and a turn.
//!
//! Pure: knows nothing of connections and time.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::assemble::Assembler;
use super::event::{API, Event, WireResponse};
use crate::llm::drafts::Said;
use crate::llm::http::decode::{Decode, Progress};
use crate::llm::http::failure::Report;
use crate::llm::http::fault::{Fault, MAX_TURN};
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
pub(super) struct Decoder {
    events: Parser,
    reader: Reader,
}

/// Reads event by event.
#[derive(Debug)]
struct Reader {
    surroundings: Surroundings,
    /// Where in the turn the kept surroundings add to.
    place: usize,
    assembler: Assembler,
}

impl Decoder {
    /// For an answer of the model that signs as `author`.
    pub(super) fn new(author: Arc<str>) -> Self {
        let (surroundings, assembler) = (Surroundings::default(), Assembler::new(author));
        Self { events: Parser::with_longest_event(MAX_EVENT), reader: Reader { surroundings, place: 0, assembler } }
    }
}

impl Decode for Decoder {
    fn feed(&mut self, mut bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<Progress, Fault> {
        let mut progress = Progress::Silent;
        while let Some(event) = self.events.next_event(&mut bytes)? {
            let read = match event.trim_ascii() {
                b"" => Progress::Silent,
                b"[DONE]" => Progress::Done,
                json => self.reader.read(json, deltas)?,
            };
            match read {
                Progress::Done => return Ok(Progress::Done),
                Progress::Spoke => progress = Progress::Spoke,
                Progress::Silent => {}
            }
        }
        Ok(progress)
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
        if let Some(OnlyPiece { said, is_thinking }) = self.surroundings.piece_of(json) {
            let what = if is_thinking { Said::Thinking } else { Said::Text };
            return self.assembler.push_piece(self.place, what, said, deltas).map(spoke);
        }
        let (text, event) = parse(json)?;
        if event.item.is_some() {
            // Where items have neither number nor name, the same surroundings mean another item from here on.
            self.surroundings = Surroundings::default();
        }
        let piece = only_piece(&event);
        let read = read_event(json, event, &mut self.assembler, deltas)?;
        if let (Some(place), Some(_)) = (self.assembler.place(), piece) {
            self.surroundings.keep(text, piece);
            self.place = place;
        }
        Ok(read)
    }
}

fn spoke(spoke: bool) -> Progress {
    if spoke { Progress::Spoke } else { Progress::Silent }
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

/// Whether it is an event of a kind that says nothing here, whose members may then be anything.
fn is_unknown(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        r#type: String,
    }
    let is_known = |kind: &str| KNOWN.contains(&kind) || said_by(kind).is_some();
    serde_json::from_str(text).is_ok_and(|Kind { r#type }| !is_known(&r#type))
}

/// Adds what an event says. Most kinds of events repeat what others say.
fn read_event(
    json: &[u8],
    event: Event<'_>,
    assembler: &mut Assembler,
    deltas: &mut Vec<Delta>,
) -> Result<Progress, Fault> {
    if let Some(what) = said_by(&event.r#type.0) {
        return assembler.push_delta(what, event, deltas).map(spoke);
    }
    let index = event.output_index;
    match (&*event.r#type.0, event.item, event.response) {
        ("response.output_item.added", Some(item), _) => assembler.begin_item(index, &item, deltas).map(spoke),
        ("response.output_item.done", Some(item), _) => assembler.end_item(index, &item, deltas).map(spoke),
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
        Cow::Borrowed(said) if !said.is_empty() => Some(OnlyPiece { said, is_thinking }),
        Cow::Borrowed(_) | Cow::Owned(_) => None,
    }
}

#[cfg(test)]
mod tests;
