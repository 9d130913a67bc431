//! Chunks that differ from the one before in their text alone.
//!
//! A model says one token after the other, and the chunk around each is the same: some 250 bytes, of which five matter.
//! What surrounded the last piece of text is kept. A chunk with the same surroundings need not be parsed: only the
//! string between them can differ, and it ends where the string of the last one ended, because it has nothing in it
//! that could end it or stand for something else.

use memchr::memchr2;

/// Longest chunk whose surroundings are kept, in bytes: they stay for a whole answer.
const MAX_CHUNK: usize = 2 << 10;
/// What may not stand in a string as it is.
const CONTROLS: std::ops::Range<u8> = 0..b' ';

/// The text or the reasoning of a chunk that holds nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnlyPiece<'a> {
    /// What it says, as it stands in the chunk.
    pub said: &'a str,
    /// Whether that is reasoning.
    pub is_thinking: bool,
}

/// What surrounded the last piece of text: all of a chunk that said nothing else.
#[derive(Debug, Default)]
pub struct Surroundings {
    before: Vec<u8>,
    after: Vec<u8>,
    is_thinking: bool,
}

impl Surroundings {
    /// What a chunk with these surroundings says; `None` of any other, and of one whose text must be parsed.
    pub fn piece_of<'a>(&self, json: &'a [u8]) -> Option<OnlyPiece<'a>> {
        if self.before.is_empty() {
            return None;
        }
        let text = json.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let is_plain = memchr2(b'"', b'\\', text).is_none() && !text.iter().any(|byte| CONTROLS.contains(byte));
        let said = str::from_utf8(text).ok().filter(|_| is_plain)?;
        Some(OnlyPiece { said, is_thinking: self.is_thinking })
    }

    /// Keeps what surrounds the text of a chunk that was parsed from `json`, if the chunk is this `piece` alone.
    pub fn keep(&mut self, json: &str, piece: Option<OnlyPiece<'_>>) {
        let Some(OnlyPiece { said, is_thinking }) = piece.filter(|_| json.len() <= MAX_CHUNK) else { return };
        // A string without escapes is a part of what it was parsed from.
        let begin = said.as_ptr().addr().wrapping_sub(json.as_ptr().addr());
        if let Some((before, rest)) = json.split_at_checked(begin)
            && let Some(after) = rest.get(said.len()..)
        {
            replace(&mut self.before, before);
            replace(&mut self.after, after);
            self.is_thinking = is_thinking;
        }
    }
}

fn replace(kept: &mut Vec<u8>, by: &str) {
    kept.clear();
    kept.extend_from_slice(by.as_bytes());
}
