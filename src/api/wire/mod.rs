//! The dialects on the wire: what requests look like, and how events are written, a file each.
//!
//! Encoders are deterministic folds over events and know neither HTTP nor async: to resume a stream is
//! to encode again and skip.

pub mod address;
pub mod agent_events;
pub mod agent_object;
pub mod message;
pub mod openai_chat;
pub mod request;
pub mod run;
pub mod session;
pub mod strict;
pub mod tool;

#[cfg(test)]
mod tests;

use bytes::BytesMut;

use crate::agent::Head;
use crate::types::{Record, RunId, SessionId};

/// What every frame of a run's stream may need to name.
#[derive(Debug, Clone)]
pub struct RunNames {
    /// The run.
    pub id: RunId,
    /// Its session.
    pub session: Option<SessionId>,
    /// The model or agent as the caller named it.
    pub model: String,
    /// When it was accepted, Unix milliseconds.
    pub created_ms: u64,
}

impl From<&Head> for RunNames {
    fn from(head: &Head) -> Self {
        Self {
            id: head.id.clone(),
            session: head.session.clone(),
            model: head.model.clone(),
            created_ms: head.created_ms,
        }
    }
}

/// Writes a run's public events as server-sent events of one dialect.
pub trait Encoder: Send + 'static {
    /// Whether readers of this dialect come back by themselves where a stream breaks off, and lose nothing.
    const READERS_COME_BACK: bool;

    /// Appends the frames of one event, often one, sometimes none.
    fn encode(&mut self, record: &Record, out: &mut BytesMut);
}

/// The last frame of every stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// Appends `value` as JSON.
pub(crate) fn write_json<T: serde::Serialize + ?Sized>(value: &T, out: &mut BytesMut) {
    use bytes::BufMut;
    serde_json::to_writer(out.writer(), value).expect("wire types hold only strings, numbers and valid raw JSON");
}
