//! A document as it was read.

use crate::agent::ledger::collection::StoredText;
use crate::agent::ledger::document::decode;
use crate::store::{Document, Unavailable};

/// A document, and the number of its changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// What it says.
    pub text: StoredText,
    /// Grows with every change.
    pub version: u64,
}

/// The document of this name that the store has so.
pub(super) fn named(name: &str, document: &Document) -> Result<Named, Unavailable> {
    Ok(Named { name: name.to_owned(), text: decode(&document.value)?, version: document.version })
}
