//! An event as it stands in a list.

use bytes::BytesMut;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::wire::agent::events::{NativeEvent, native};
use crate::api::wire::chunk::{ChunkTemplate, Said};
use crate::api::wire::openai_chat::described::ChatChunk;
use crate::api::wire::{RunNames, write_json_line};
use crate::types::Record;

/// An event as it stands in a list or on a stream: named, or a chunk of text.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum EventEntry<'a> {
    /// Anything but text.
    Named(Box<NativeEvent<'a>>),
    /// Text; in lists with the event's number.
    Text(ChatChunk),
}

/// Writes a public event as one JSON object: text as the chunk it streams as, with its number.
pub fn write_entry(record: &Record, names: &RunNames, out: &mut BytesMut) {
    if let Some((step, said)) = Said::of(&record.event) {
        ChunkTemplate::new(names, false).write_entry(said, step, record.seq, out);
    } else {
        write_json_line(&native(record, names, true), out);
    }
}
