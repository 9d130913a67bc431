//! Why a store could not be opened, whichever it is.

use std::path::PathBuf;

use super::redis::Refusal;

/// Why a store could not be opened. Never holds a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Another store, here or in another process, has the directory.
    #[error("the store in {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The files cannot be created, read or written, or hold something else.
    #[error("cannot open the store in {}: {reason}", dir.display())]
    Failed {
        /// Where the files lie.
        dir: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// Redis cannot be used as it is.
    #[error("cannot keep runs in Redis: {0}")]
    Redis(#[from] Refusal),
}
