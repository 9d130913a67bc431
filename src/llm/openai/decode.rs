//! The bytes of an answer into deltas and a turn.
//!
//! Pure: knows nothing of connections and time.

use super::assemble::Assembler;
use super::chunk::{CallIndex, Chunk};
use super::content_list;
use crate::llm::http::decode::{Decode, LAST_EVENT, Progress, read_events};
use crate::llm::http::failure::Report;
use crate::llm::http::fault::Fault;
use crate::llm::repeated::Surroundings;
use crate::llm::sse::Parser;
use crate::llm::{Delta, ModelTurn};
use crate::types::Usage;

/// Reads one streamed answer.
#[derive(Debug, Default)]
pub struct Decoder {
    events: Parser,
    repeated: Repeated,
    assembler: Assembler,
}

/// What is the same in most chunks of an answer.
#[derive(Debug, Default)]
struct Repeated {
    /// What surrounded the last piece of text or reasoning.
    said: Surroundings,
    /// What surrounded the last piece of a call's arguments.
    arguments: Surroundings<CallIndex>,
}

impl Repeated {
    /// Keeps what surrounds the piece that a chunk is, if it is one alone.
    fn keep(&mut self, text: &str, chunk: &Chunk<'_>) {
        self.said.keep(text, chunk.only_piece());
        self.arguments.keep(text, chunk.only_arguments());
    }
}

impl Decoder {
    /// For an answer of the model that signs as `author`, where its server wants its reasoning back.
    pub fn new(author: Option<String>) -> Self {
        Self { assembler: Assembler::new(author), ..Self::default() }
    }
}

impl Decode for Decoder {
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<Progress, Fault> {
        let Self { events, repeated, assembler } = self;
        read_events(events, bytes, |event| match event {
            LAST_EVENT => Ok(Progress::Done),
            json => read_chunk(json, repeated, assembler, deltas).map(Progress::of),
        })
    }

    /// Reads a whole `chat.completion`.
    fn feed_whole(&mut self, json: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault> {
        push_parsed(json, &mut Repeated::default(), &mut self.assembler, deltas)?;
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

/// Adds what a chunk says, without parsing it where that is not needed. Returns whether it said anything.
fn read_chunk(
    json: &[u8],
    repeated: &mut Repeated,
    assembler: &mut Assembler,
    deltas: &mut Vec<Delta>,
) -> Result<bool, Fault> {
    if let Some(piece) = repeated.said.piece_of(json) {
        return assembler.push_piece(piece, deltas);
    }
    if let Some(piece) = repeated.arguments.piece_of(json) {
        return assembler.push_arguments(piece, deltas);
    }
    push_parsed(json, repeated, assembler, deltas)
}

fn push_parsed(
    json: &[u8],
    repeated: &mut Repeated,
    assembler: &mut Assembler,
    deltas: &mut Vec<Delta>,
) -> Result<bool, Fault> {
    match parse(json) {
        Ok((text, chunk)) => {
            repeated.keep(text, &chunk);
            assembler.push(chunk, deltas)
        }
        Err(Fault::NotAChunk) => {
            let rewritten = content_list::as_strings(json).ok_or(Fault::NotAChunk)?;
            assembler.push(parse(rewritten.as_bytes())?.1, deltas)
        }
        Err(fault) => Err(fault),
    }
}

/// A chunk, and the text that it was parsed from.
fn parse(json: &[u8]) -> Result<(&str, Chunk<'_>), Fault> {
    // Checked as a whole, which is faster than string by string.
    let text = str::from_utf8(json).map_err(|_| Fault::NotAChunk)?;
    let chunk: Chunk<'_> = serde_json::from_str(text).map_err(|_| Fault::NotAChunk)?;
    if chunk.error.is_some() || chunk.object.0 == "error" {
        Err(Fault::Reported(Report::read(json)))
    } else {
        Ok((text, chunk))
    }
}

#[cfg(test)]
mod tests;
