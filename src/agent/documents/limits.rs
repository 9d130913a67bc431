//! How much the operator lets memories have.

use crate::agent::documents::Limits;
use crate::config::MemoryConfig;

/// The limits of each memory.
#[must_use]
pub fn memory_limits(config: &MemoryConfig) -> Limits {
    Limits { document: config.max_document, documents: config.max_documents, bytes: config.quota }
}
