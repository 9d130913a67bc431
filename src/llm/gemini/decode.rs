//! The bytes of an answer into deltas and a turn.
//!
//! Pure: knows nothing of connections and time. A stream ends with its connection: the API has no last event, though relays
//! add that of OpenAI's dialect. An error in the middle of a stream stands outside of events, as plain JSON.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::assemble::Assembler;
use super::chunk::{API, Chunk, Counted, WireUsage};
use crate::llm::http::decode::{Decode, LAST_EVENT, Progress, read_events};
use crate::llm::http::failure::Report;
use crate::llm::http::fault::{Fault, MAX_TURN};
use crate::llm::repeated::Surroundings;
use crate::llm::sse::Parser;
use crate::llm::{Delta, ModelTurn};
use crate::types::Usage;

/// Most data of one event: a call or a picture comes whole in one, and escapes may double its text.
const MAX_EVENT: usize = 2 * MAX_TURN;

/// Reads one streamed answer.
#[derive(Debug)]
pub struct Decoder {
    events: Parser,
    reader: Reader,
}

/// Reads chunk by chunk.
#[derive(Debug)]
struct Reader {
    surroundings: Surroundings,
    /// The last chunk that was not parsed, if none was parsed after it. Its usage is still to be read: it is that of all tokens so
    /// far, so of such chunks the last one tells it, and the next one that is parsed if that tells any.
    uncounted: Vec<u8>,
    assembler: Assembler,
}

impl Decoder {
    /// For an answer of the model that signs as `author`, which may have `many_calls`.
    #[must_use]
    pub fn new(author: Arc<str>, many_calls: bool) -> Self {
        let events = Parser::with_longest_event(MAX_EVENT).keeping_stray_json();
        let assembler = Assembler::new(author, many_calls);
        Self { events, reader: Reader { surroundings: Surroundings::default(), uncounted: Vec::new(), assembler } }
    }

    /// The error that stands outside of events, once it is whole.
    fn stray_error(&self) -> Option<Report> {
        let json = self.events.stray_json().filter(|json| json.trim_ascii_end().ends_with(b"}"))?;
        let error: Value = serde_json::from_slice(&json).ok()?;
        error.get("error").filter(|error| !error.is_null()).map(|_| Report::read(&json))
    }
}

impl Decode for Decoder {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<Progress, Fault> {
        let Self { events, reader } = self;
        let progress = read_events(events, bytes, |event| match event {
            LAST_EVENT => Ok(Progress::Done),
            json => reader.read(json, deltas).map(Progress::of),
        })?;
        match self.stray_error().filter(|_| progress != Progress::Done) {
            Some(report) => Err(Fault::Reported(report)),
            None => Ok(progress),
        }
    }

    /// Reads a whole answer: one object, or the list of all chunks that the API gives to those who ask for no events.
    fn feed_whole(&mut self, json: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let text = str::from_utf8(json).map_err(|_| Fault::NotAnEvent(API))?;
        match serde_json::from_str::<Vec<&RawValue>>(text) {
            Ok(chunks) => chunks.iter().try_for_each(|chunk| self.reader.read_parsed(chunk.get(), deltas).map(|_| ())),
            Err(_) => self.reader.read_parsed(text, deltas).map(|_| ()),
        }
    }

    fn is_finished(&self) -> bool {
        self.reader.assembler.is_finished()
    }

    fn has_calls(&self) -> bool {
        self.reader.assembler.has_calls()
    }

    fn usage(&self) -> Option<Usage> {
        self.reader.assembler.usage(self.reader.unread_usage())
    }

    fn finish(mut self) -> Result<ModelTurn, Fault> {
        self.reader.count();
        self.reader.assembler.finish()
    }
}

impl Reader {
    /// Adds a chunk, without parsing it where that is not needed. Returns whether it said anything.
    fn read(&mut self, json: &[u8], deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
        if let Some(piece) = self.surroundings.piece_of(json) {
            self.uncounted.clear();
            self.uncounted.extend_from_slice(json);
            return self.assembler.push_piece(piece, deltas);
        }
        self.read_parsed(str::from_utf8(json).map_err(|_| Fault::NotAnEvent(API))?, deltas)
    }

    fn read_parsed(&mut self, json: &str, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
        let chunk: Chunk<'_> = serde_json::from_str(json).map_err(|_| Fault::NotAnEvent(API))?;
        if chunk.usage_metadata.is_none() {
            self.count();
        }
        self.uncounted.clear();
        if chunk.error.is_some() {
            return Err(Fault::Reported(Report::read(json.as_bytes())));
        }
        self.surroundings.keep(json, chunk.only_piece());
        self.assembler.push(chunk, deltas)
    }

    /// Takes over what the last chunk counts that was not parsed.
    fn count(&mut self) {
        if let Some(usage) = self.unread_usage() {
            self.assembler.count(&usage);
        }
    }

    fn unread_usage(&self) -> Option<WireUsage> {
        let chunk: Option<Counted> = serde_json::from_slice(&self.uncounted).ok();
        chunk?.usage_metadata
    }
}

#[cfg(test)]
mod tests;
