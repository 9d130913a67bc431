//! A document as it was read.

use crate::agent::ledger::collection::StoredText;
use crate::agent::ledger::document::decode;
use crate::store::{Document, Unavailable};

/// A document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// What it says.
    pub text: StoredText,
    /// Grows with every change.
    pub version: u64,
}

impl Named {
    /// A document of this name.
    pub(super) fn new(name: &str, text: StoredText) -> Self {
        Self { name: name.to_owned(), version: text.version, text }
    }
}

/// The document of this name that the store has so.
pub(super) fn named(name: &str, document: &Document) -> Result<Named, Unavailable> {
    Ok(Named::new(name, decode(&document.value)?))
}
