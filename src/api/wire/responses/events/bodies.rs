//! What frames have beside their type and number.

use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Serialize)]
pub(super) struct WithResponse<'a> {
    /// A `ResponseObject`.
    pub(super) response: &'a RawValue,
}

#[derive(Serialize)]
pub(super) struct WithItem<T> {
    pub(super) output_index: u32,
    pub(super) item: T,
}

/// A frame about an item.
#[derive(Serialize)]
pub(super) struct About<'a, T> {
    pub(super) item_id: &'a str,
    pub(super) output_index: u32,
    #[serde(flatten)]
    pub(super) more: T,
}

/// Nothing more.
#[derive(Serialize)]
pub(super) struct Nothing {}
