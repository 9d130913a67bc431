//! The agent endpoint's stream: text as OpenAI chunks, all else as named events, one frame each, numbered as in the log.

use bytes::{BufMut, BytesMut};

use crate::api::wire::agent::events::native;
use crate::api::wire::chunk::{ChunkTemplate, Said};
use crate::api::wire::{Encoder, RunNames, write_id, write_json_line};
use crate::types::Record;

/// Writes native events.
#[derive(Debug)]
pub struct AgentEvents {
    names: RunNames,
    chunk: ChunkTemplate,
    with_report: bool,
}

impl AgentEvents {
    /// An encoder for one run.
    pub fn new(names: RunNames, with_report: bool) -> Self {
        let chunk = ChunkTemplate::new(&names, false);
        Self { names, chunk, with_report }
    }
}

impl Encoder for AgentEvents {
    const READERS_COME_BACK: bool = true;

    fn encode(&mut self, record: &Record, out: &mut BytesMut) {
        write_id(record.seq, out);
        if let Some((step, said)) = Said::of(&record.event) {
            out.put_slice(b"data: ");
            self.chunk.write_text(said, Some(step), out);
            out.put_slice(b"\n\n");
            return;
        }
        if self.names.follow(&record.event) {
            self.chunk = ChunkTemplate::new(&self.names, false);
        }
        let Some(event) = native(record, &self.names, self.with_report) else { return };
        out.put_slice(b"event: ");
        out.put_slice(event.name().as_bytes());
        out.put_slice(b"\ndata: ");
        write_json_line(&event, out);
        out.put_slice(b"\n\n");
    }
}
