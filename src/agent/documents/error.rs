//! Why a document is not read or changed.

use crate::agent::documents::name::NAME;
use crate::agent::error::StorageError;
use crate::store::Unavailable;

/// Why a document is not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// No document can have this name.
    #[error("must be {NAME}")]
    BadName,
    /// There is no such document.
    #[error("there is no document {0:?}")]
    NotFound(String),
    /// It has changed meanwhile.
    #[error("the document {name:?} is at version {actual}, and the change is one of another version; read it again")]
    Changed {
        /// The document.
        name: String,
        /// Where it stands; 0 if it is not there.
        actual: u64,
    },
    /// The document would be too long.
    #[error("the document would have {bytes} bytes; {most} are the most")]
    TooLong {
        /// How long it would be.
        bytes: u64,
        /// How long it may be.
        most: u64,
    },
    /// There are too many documents.
    #[error("there are {most} documents, which are the most; delete one, or write to one that is there")]
    TooMany {
        /// How many there may be.
        most: u32,
    },
    /// All of them together are too long.
    #[error("all documents together would have {bytes} bytes; {most} are the most; shorten or delete some")]
    Full {
        /// How many bytes there would be.
        bytes: u64,
        /// How many there may be.
        most: u64,
    },
    /// Others change the same documents, again and again.
    #[error("the documents are being changed by others; try again")]
    Busy,
    /// The tenant may not store more.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] Unavailable),
}
