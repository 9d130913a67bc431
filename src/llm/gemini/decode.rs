//! The bytes of an answer into deltas and a turn.
//!
//! Pure: knows nothing of connections and time. A stream ends with its connection: the API has no last event, though relays
//! add that of OpenAI's dialect. An error in the middle of a stream stands outside of events, as plain JSON.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::assemble::Assembler;
use super::chunk::{API, Chunk};
use crate::llm::http::decode::{Decode, Progress};
use crate::llm::http::failure::Report;
use crate::llm::http::fault::{Fault, MAX_TURN};
use crate::llm::sse::Parser;
use crate::llm::{Delta, ModelTurn};
use crate::types::Usage;

/// Most data of one event: a call or a picture comes whole in one, and escapes may double its text.
const MAX_EVENT: usize = 2 * MAX_TURN;

/// Reads one streamed answer.
#[derive(Debug)]
pub(super) struct Decoder {
    events: Parser,
    assembler: Assembler,
}

impl Decoder {
    /// For an answer of the model that signs as `author`, which may have `many_calls`.
    pub(super) fn new(author: Arc<str>, many_calls: bool) -> Self {
        let events = Parser::with_longest_event(MAX_EVENT).keeping_stray_json();
        Self { events, assembler: Assembler::new(author, many_calls) }
    }

    /// The error that stands outside of events, once it is whole.
    fn stray_error(&self) -> Option<Report> {
        let json = self.events.stray_json().filter(|json| json.trim_ascii_end().ends_with(b"}"))?;
        let error: Value = serde_json::from_slice(&json).ok()?;
        error.get("error").filter(|error| !error.is_null()).map(|_| Report::read(&json))
    }
}

impl Decode for Decoder {
    fn feed(&mut self, mut bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<Progress, Fault> {
        let mut progress = Progress::Silent;
        while let Some(event) = self.events.next_event(&mut bytes)? {
            match event.trim_ascii() {
                b"" => {}
                b"[DONE]" => return Ok(Progress::Done),
                json => {
                    if read(json, &mut self.assembler, deltas)? {
                        progress = Progress::Spoke;
                    }
                }
            }
        }
        self.stray_error().map_or(Ok(progress), |report| Err(Fault::Reported(report)))
    }

    /// Reads a whole answer: one object, or the list of all chunks that the API gives to those who ask for no events.
    fn feed_whole(&mut self, json: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        let text = str::from_utf8(json).map_err(|_| Fault::NotAnEvent(API))?;
        match serde_json::from_str::<Vec<&RawValue>>(text) {
            Ok(chunks) => {
                for chunk in chunks {
                    read(chunk.get().as_bytes(), &mut self.assembler, deltas)?;
                }
            }
            Err(_) => {
                read(json, &mut self.assembler, deltas)?;
            }
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.assembler.is_finished()
    }

    fn has_calls(&self) -> bool {
        self.assembler.has_calls()
    }

    fn usage(&self) -> Option<Usage> {
        self.assembler.usage()
    }

    fn finish(self) -> Result<ModelTurn, Fault> {
        self.assembler.finish()
    }
}

/// Adds a chunk. Returns whether it said anything.
fn read(json: &[u8], assembler: &mut Assembler, deltas: &mut Vec<Delta>) -> Result<bool, Fault> {
    let text = str::from_utf8(json).map_err(|_| Fault::NotAnEvent(API))?;
    let chunk: Chunk<'_> = serde_json::from_str(text).map_err(|_| Fault::NotAnEvent(API))?;
    if chunk.error.is_some() { Err(Fault::Reported(Report::read(json))) } else { assembler.push(chunk, deltas) }
}

#[cfg(test)]
mod tests;
