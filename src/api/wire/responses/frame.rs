//! The frames of a stream, which are numbered.

use bytes::{BufMut, BytesMut};
use serde::Serialize;

use crate::api::wire::{write_json, write_json_line};

/// Numbers the frames of a response, and writes those that its reader lacks.
#[derive(Debug)]
pub struct Frames {
    /// The number of the next one.
    next: u64,
    /// The first that is written; `None` for none of them.
    from: Option<u64>,
}

/// A frame.
#[derive(Serialize)]
struct Frame<'a, B> {
    r#type: &'a str,
    sequence_number: u64,
    #[serde(flatten)]
    body: B,
}

impl Frames {
    /// Those from this number on; `None` for a reader of the object alone.
    pub fn new(from: Option<u64>) -> Self {
        Self { next: 0, from }
    }

    /// Begins again, for another response.
    pub fn restart(&mut self) {
        self.next = 0;
    }

    /// How many frames there are so far.
    pub fn count(&self) -> u64 {
        self.next
    }

    /// Counts a frame; its number, if it is to be written.
    fn take(&mut self) -> Option<u64> {
        let number = self.next;
        self.next += 1;
        self.from.filter(|from| number >= *from).map(|_| number)
    }

    /// Appends a frame with these members; `body` is not asked where nobody reads it.
    pub fn write<B: Serialize>(&mut self, kind: &str, body: impl FnOnce() -> B, out: &mut BytesMut) {
        let Some(sequence_number) = self.take() else { return };
        begin(kind, out);
        write_json_line(&Frame { r#type: kind, sequence_number, body: body() }, out);
        out.put_slice(b"\n\n");
    }

    /// Appends a frame with a piece of text between members that are written already.
    pub fn write_delta(&mut self, template: &DeltaTemplate, text: &str, out: &mut BytesMut) {
        let Some(number) = self.take() else { return };
        out.put_slice(template.head.as_bytes());
        write_json(&number, out);
        out.put_slice(template.middle.as_bytes());
        write_json(text, out);
        out.put_slice(template.tail.as_bytes());
    }

    /// Appends a frame that is not of the response and takes no number: it bears that of the last one.
    pub fn write_beside<B: Serialize>(&self, kind: &str, body: B, out: &mut BytesMut) {
        begin(kind, out);
        write_json_line(&Frame { r#type: kind, sequence_number: self.next.saturating_sub(1), body }, out);
        out.put_slice(b"\n\n");
    }
}

fn begin(kind: &str, out: &mut BytesMut) {
    out.put_slice(b"event: ");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\ndata: ");
}

/// The parts of an item's deltas that are the same in all of them.
#[derive(Debug)]
pub struct DeltaTemplate {
    head: String,
    middle: String,
    tail: &'static str,
}

impl DeltaTemplate {
    /// Those of an item: `place` is which of its parts is meant, and `tail` what follows the text.
    pub fn new(kind: &str, item: &str, output_index: u32, place: &str, tail: &'static str) -> Self {
        let head = format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":");
        let middle = format!(",\"item_id\":\"{item}\",\"output_index\":{output_index},\"{place}\":0,\"delta\":");
        Self { head, middle, tail }
    }
}
