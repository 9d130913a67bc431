//! What a dialect must do with an answer: bytes into deltas and a turn.

use super::fault::Fault;
use crate::llm::sse::Parser;
use crate::llm::{Delta, ModelTurn};
use crate::types::Usage;

/// What says in OpenAI's dialects, and at relays to Gemini, that nothing follows.
pub const LAST_EVENT: &[u8] = b"[DONE]";

/// How far an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing new was said: comments, empty chunks or less than a whole event.
    Silent,
    /// Something was said; more may follow.
    Spoke,
    /// The dialect's last event: nothing follows.
    Done,
}

impl Progress {
    /// Of an event that said something, or not.
    #[must_use]
    pub fn of(spoke: bool) -> Self {
        if spoke { Self::Spoke } else { Self::Silent }
    }
}

/// Reads one answer. Pure: knows nothing of connections and time.
pub trait Decode: Send + 'static {
    /// Reads the next bytes of a stream and adds what they say to `deltas`.
    ///
    /// After a fault only the deltas before it are there, and the decoder must not be used further,
    /// but to [`finish`](Self::finish) if [`is_finished`](Self::is_finished).
    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<Progress, Fault>;

    /// Reads a whole answer, from a server that does not stream.
    fn feed_whole(&mut self, json: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Fault>;

    /// Whether the model said that it is done, so that what is missing cannot harm.
    fn is_finished(&self) -> bool;

    /// Whether the turn calls tools.
    fn has_calls(&self) -> bool;

    /// What the upstream says so far that its answer took, where the dialect has answers that are told to their end and cannot
    /// be used.
    fn usage(&self) -> Option<Usage> {
        None
    }

    /// The turn, once nothing more follows.
    fn finish(self) -> Result<ModelTurn, Fault>;
}

/// Hands each event to `read` that is whole with these bytes, up to the last one of its stream.
pub fn read_events(
    events: &mut Parser,
    mut bytes: &[u8],
    mut read: impl FnMut(&[u8]) -> Result<Progress, Fault>,
) -> Result<Progress, Fault> {
    let mut progress = Progress::Silent;
    while let Some(event) = events.next_event(&mut bytes)? {
        let read = match event.trim_ascii() {
            b"" => Progress::Silent,
            json => read(json)?,
        };
        match read {
            Progress::Done => return Ok(Progress::Done),
            Progress::Spoke => progress = Progress::Spoke,
            Progress::Silent => {}
        }
    }
    Ok(progress)
}
