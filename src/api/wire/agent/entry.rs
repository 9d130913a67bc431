//! An event as it stands in a list.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::wire::agent::events::NativeEvent;
use crate::api::wire::openai_chat::described::ChatChunk;

/// An event as it stands in a list or on a stream: named, or a chunk of text.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum EventEntry<'a> {
    /// Anything but text.
    Named(Box<NativeEvent<'a>>),
    /// Text; in lists with the event's number.
    Text(ChatChunk),
}
