//! Records as entries of a run's log.

use std::sync::Arc;

use bytes::Bytes;

use crate::types::json::compact;
use crate::types::{Event, Record};

/// Numbers an event after `seq`, which it may take one further, and encodes it for the log.
pub fn encode(seq: &mut u64, at_ms: u64, event: Event) -> (Arc<Record>, Bytes) {
    *seq += u64::from(event.is_public());
    let record = Record { seq: *seq, at_ms, event };
    let entry = entry(&record);
    (Arc::new(record), entry)
}

/// The entry of a record.
pub fn entry(record: &Record) -> Bytes {
    compact(record).expect("events hold only strings, numbers and valid raw JSON")
}

/// How many bytes a record takes in the log.
pub fn size(record: &Record) -> usize {
    serde_json::to_vec(record).map_or(0, |entry| entry.len())
}

/// Decodes an entry of a run's log.
pub fn decode(entry: &[u8]) -> Result<Record, serde_json::Error> {
    match std::str::from_utf8(entry) {
        // To look at the whole costs less than to look at each of its names and texts.
        Ok(text) => serde_json::from_str(text),
        // It says where.
        Err(_) => serde_json::from_slice(entry),
    }
}
