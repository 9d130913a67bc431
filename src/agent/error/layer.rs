//! Why a layer of a session could not be read or changed.

use super::LookupError;
use crate::store::Unavailable;
use crate::types::SessionId;

/// Why a layer of a session could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The session has no such layer.
    #[error("session {session} has no layer {name:?}")]
    NotFound {
        /// The session.
        session: SessionId,
        /// What the caller names.
        name: String,
    },
    /// The layer is not as the caller knows it.
    #[error("the layer {name:?} is now of version {now}; read it again before you change it")]
    Changed {
        /// The layer.
        name: String,
        /// Its version; 0 if there is none.
        now: u64,
    },
    /// The session's layers would be too many.
    #[error("a session may have at most {0} layers")]
    TooMany(usize),
    /// The session's layers would be too long.
    #[error("the layers of a session may have {0} bytes together")]
    TooLong(usize),
    /// The session could not be read or changed.
    #[error(transparent)]
    Lookup(#[from] LookupError),
}

impl From<Unavailable> for LayerError {
    fn from(error: Unavailable) -> Self {
        Self::Lookup(error.into())
    }
}
