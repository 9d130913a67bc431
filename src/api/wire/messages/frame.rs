//! The frames of a stream, each named as its type.

use bytes::{BufMut, BytesMut};
use serde::Serialize;

use crate::api::wire::{write_json, write_json_line};

/// A frame.
#[derive(Serialize)]
struct Frame<'a, B> {
    r#type: &'a str,
    #[serde(flatten)]
    body: B,
}

/// Appends a frame with these members.
pub fn write<B: Serialize>(kind: &str, body: B, out: &mut BytesMut) {
    begin(kind, out);
    write_json_line(&Frame { r#type: kind, body }, out);
    out.put_slice(b"\n\n");
}

/// Appends a frame that has its type among its members.
pub fn write_whole<B: Serialize>(kind: &str, body: &B, out: &mut BytesMut) {
    begin(kind, out);
    write_json_line(body, out);
    out.put_slice(b"\n\n");
}

fn begin(kind: &str, out: &mut BytesMut) {
    out.put_slice(b"event: ");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\ndata: ");
}

/// What the deltas of a block begin with.
#[derive(Debug)]
pub struct DeltaHead(String);

impl DeltaHead {
    /// Those of the block of this index: `kind` is the delta's, and `member` what holds its text.
    pub fn new(index: u32, kind: &str, member: &str) -> Self {
        let name = "content_block_delta";
        Self(format!(
            "event: {name}\ndata: {{\"type\":\"{name}\",\"index\":{index},\"delta\":{{\"type\":\"{kind}\",\"{member}\":"
        ))
    }

    /// Appends a frame with a piece of text.
    pub fn write(&self, text: &str, out: &mut BytesMut) {
        out.put_slice(self.0.as_bytes());
        write_json(text, out);
        out.put_slice(b"}}\n\n");
    }
}
