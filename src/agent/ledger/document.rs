//! Documents as the store holds them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::store::Unavailable;
use crate::types::json::compact;

/// Encodes a document.
pub fn encode<T: Serialize>(document: &T) -> Bytes {
    compact(document).expect("documents hold only strings, numbers and valid raw JSON")
}

/// Decodes a document.
pub fn decode<T: for<'de> Deserialize<'de>>(value: &[u8]) -> Result<T, Unavailable> {
    serde_json::from_slice(value).map_err(|error| Unavailable(format!("a document is damaged: {error}")))
}
