//! JSON objects, written member by member.

use serde::Serialize;

use crate::types::conversation::{Dialect, Extra};
use crate::types::json::Members;

/// A JSON object that is being written, and what of it was not known when it was read.
#[derive(Debug)]
pub struct Object<'o> {
    out: &'o mut Vec<u8>,
    rest: Members,
    is_empty: bool,
}

impl<'o> Object<'o> {
    /// Begins an object.
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        Self::with(out, Members::default())
    }

    /// Begins an object that had these unknown members when it was read in `dialect`.
    pub fn open(out: &'o mut Vec<u8>, dialect: Dialect, extra: &Extra) -> Self {
        Self::with(out, Members(extra.members(dialect).to_vec()))
    }

    fn with(out: &'o mut Vec<u8>, rest: Members) -> Self {
        out.push(b'{');
        Self { out, rest, is_empty: true }
    }

    /// A member whose value `write` writes.
    pub fn raw(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        write_text(name, self.out);
        self.out.push(b':');
        write(self.out);
    }

    /// A member that is a string.
    pub fn text(&mut self, name: &str, text: &str) {
        self.raw(name, |out| write_text(text, out));
    }

    /// A member whose value is JSON already.
    pub fn json(&mut self, name: &str, json: &str) {
        self.raw(name, |out| out.extend_from_slice(json.as_bytes()));
    }

    /// A member of plain data.
    pub fn value<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.raw(name, |out| serde_json::to_writer(out, value).expect("plain data encodes, and a vector takes it"));
    }

    /// An object within this one. What was left of it when it was read goes back into it.
    pub fn nested(&mut self, name: &str, write: impl FnOnce(&mut Object<'_>)) {
        let left = self.rest.read::<Members>(name).unwrap_or_default();
        self.raw(name, |out| {
            let mut object = Object::with(out, left);
            write(&mut object);
            object.close();
        });
    }

    /// Ends the object with what was not known of it.
    pub fn close(mut self) {
        for (name, json) in std::mem::take(&mut self.rest).0 {
            self.raw(&name, |out| out.extend_from_slice(json.get().as_bytes()));
        }
        self.out.push(b'}');
    }
}

/// Writes a string.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a string always encodes, and a vector takes it");
}
