//! Why a session is not forked, or not made.

use crate::agent::error::LookupError;
use crate::store::Unavailable;

/// Why a session was not forked.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The session has fewer messages.
    #[error("the session has {count} messages, not {at}")]
    BeyondEnd {
        /// What the caller named.
        at: u64,
        /// How many there are.
        count: u64,
    },
    /// A message's tool calls would be without all of their results.
    #[error("after message {at}, tool calls are still without their results; fork at {before} or {after}")]
    SplitsCalls {
        /// What the caller named.
        at: u64,
        /// How many messages there are before the calls.
        before: u64,
        /// How many with their results.
        after: u64,
    },
    /// The source could not be read or the new session not be written.
    #[error(transparent)]
    Lookup(#[from] LookupError),
}

/// Why a session was not made, whatever it was to be made of.
pub trait NotMade: From<LookupError> {
    /// What is wrong, unless it is with what the session was to be made of.
    fn lookup(&self) -> Option<&LookupError>;
}

impl NotMade for LookupError {
    fn lookup(&self) -> Option<&LookupError> {
        Some(self)
    }
}

impl NotMade for ForkError {
    fn lookup(&self) -> Option<&LookupError> {
        match self {
            Self::Lookup(error) => Some(error),
            Self::BeyondEnd { .. } | Self::SplitsCalls { .. } => None,
        }
    }
}

impl From<Unavailable> for ForkError {
    fn from(error: Unavailable) -> Self {
        Self::Lookup(error.into())
    }
}
