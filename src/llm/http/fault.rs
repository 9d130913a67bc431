//! Faults of an upstream's answer, and the bounds of its size.

use super::failure::Report;
use crate::llm::Spent;
use crate::llm::sse::SseError;

/// Most text, reasoning, names and arguments of one turn together, in bytes.
pub const MAX_TURN: usize = 8 << 20;
/// Most calls of one turn.
pub const MAX_CALLS: usize = 64;

/// What is wrong with an answer, worded to follow the upstream's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The stream of events itself is unreadable.
    #[error("sent {0}")]
    Unreadable(#[from] SseError),
    /// An event is not a chunk.
    #[error("sent something that is not a chat completion")]
    NotAChunk,
    /// An event is not one of the API of this name.
    #[error("sent something that is not an event of {0}")]
    NotAnEvent(&'static str),
    /// It sent an error in place of a chunk.
    #[error("{0}")]
    Reported(Report),
    /// The turn passed [`MAX_TURN`].
    #[error("said more than 8 MiB in one turn")]
    TooLong,
    /// The turn passed [`MAX_CALLS`].
    #[error("called more than 64 tools in one turn")]
    TooManyCalls,
    /// The turn has more items than any model writes.
    #[error("wrote more than 1,024 items in one turn")]
    TooManyItems,
    /// The turn has calls, and ended with a word that does not say what is to become of them.
    #[error("ended its turn with the finish reason {0:?}, which is not known, so that its tool calls are not made")]
    UnknownEnd(String),
    /// The model wrote a call that the upstream itself could not read.
    #[error("could not use the tool call that its model wrote: {0}")]
    UnusableCall(String),
    /// The turn has audio and nothing that could be passed on.
    #[error("answered in audio alone, which is not supported")]
    OnlyAudio,
    /// The end came without a finish reason.
    #[error("ended its answer before it was finished")]
    Truncated,
}

impl Fault {
    /// What an answer with this fault may have cost.
    pub fn spent(&self) -> Spent {
        if let Self::Reported(report) = self { report.spent_within() } else { Spent::Unknown }
    }
}
