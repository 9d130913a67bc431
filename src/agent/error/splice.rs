//! Why a range of a session's history is not replaced.

use crate::agent::error::{LookupError, StorageError};
use crate::store::Unavailable;

/// Why a range of a session's history is not replaced.
#[derive(Debug, thiserror::Error)]
pub enum SpliceError {
    /// The session has fewer messages.
    #[error("the session has {count} messages, and so none from {from} to {upto}")]
    BeyondEnd {
        /// The number of the first, counted from 1.
        from: u64,
        /// The number of the last.
        upto: u64,
        /// How many there are.
        count: u64,
    },
    /// Nothing is to be removed, nor inserted.
    #[error("nothing is to be removed, and no messages are to be inserted")]
    Nothing,
    /// The session is not as the caller knows it.
    #[error("the session has version {version} and {count} messages by now; read it, and ask again")]
    Changed {
        /// Its version.
        version: u64,
        /// How many messages it has.
        count: u64,
    },
    /// A call would be without its result, or a result without its call.
    #[error(
        "message {place} of the history would be {what}: a call of a tool and all of its results stay together, or go together"
    )]
    SplitsCalls {
        /// Which message of the history that would be, counted from 1.
        place: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The history is too long to be written in one piece.
    #[error("the history has {bytes} bytes, and can be changed while it has {most} at most; fork the session instead")]
    TooLong {
        /// How many bytes it has, or would have.
        bytes: u64,
        /// How many at most.
        most: u64,
    },
    /// The session cannot be read or written.
    #[error(transparent)]
    Lookup(#[from] LookupError),
}

impl From<Unavailable> for SpliceError {
    fn from(error: Unavailable) -> Self {
        Self::Lookup(error.into())
    }
}

impl From<StorageError> for SpliceError {
    fn from(error: StorageError) -> Self {
        Self::Lookup(error.into())
    }
}
