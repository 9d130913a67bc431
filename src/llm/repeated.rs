//! Chunks that differ from the one before in their text alone.
//!
//! A model says one token after the other, and the chunk around each is the same: some 250 bytes, of which five matter.
//! What surrounded the last piece of text is kept. A chunk with the same surroundings need not be parsed: only the
//! string between them can differ, and the number of the event. The string ends where the string of the last one ended,
//! because it has nothing in it that could end it or stand for something else.

use memchr::memchr2;

/// Longest chunk whose surroundings are kept, in bytes: they stay for a whole answer.
const MAX_CHUNK: usize = 2 << 10;
/// What stands before the number of an event. Within a string its quotation marks would be escaped.
const NUMBER: &str = "\"sequence_number\":";
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
    before: Side,
    after: Side,
    is_thinking: bool,
}

/// What stands on one side of a piece. Some dialects number their events, so a number may differ in it.
#[derive(Debug, Default)]
struct Side {
    /// All of it, or what stands before the number.
    head: Vec<u8>,
    /// What stands after the number, if there is one.
    tail: Option<Vec<u8>>,
}

impl Surroundings {
    /// What a chunk with these surroundings says; `None` of any other, and of one whose text must be parsed.
    pub fn piece_of<'a>(&self, json: &'a [u8]) -> Option<OnlyPiece<'a>> {
        if self.before.head.is_empty() {
            return None;
        }
        let rest = self.before.strip(json)?;
        let (text, after) = rest.split_at(memchr2(b'"', b'\\', rest)?);
        let is_plain = !text.iter().any(|byte| CONTROLS.contains(byte));
        if !is_plain || !self.after.strip(after)?.is_empty() {
            return None;
        }
        Some(OnlyPiece { said: str::from_utf8(text).ok()?, is_thinking: self.is_thinking })
    }

    /// Keeps what surrounds the text of a chunk that was parsed from `json`, if the chunk is this `piece` alone.
    pub fn keep(&mut self, json: &str, piece: Option<OnlyPiece<'_>>) {
        let Some(OnlyPiece { said, is_thinking }) = piece.filter(|_| json.len() <= MAX_CHUNK) else { return };
        // A string without escapes is a part of what it was parsed from.
        let begin = said.as_ptr().addr().wrapping_sub(json.as_ptr().addr());
        if let Some((before, rest)) = json.split_at_checked(begin)
            && let Some(after) = rest.get(said.len()..)
        {
            self.before.keep(before);
            self.after.keep(after);
            self.is_thinking = is_thinking;
        }
    }
}

impl Side {
    /// What follows this side at the beginning of `json`.
    fn strip<'a>(&self, json: &'a [u8]) -> Option<&'a [u8]> {
        let rest = json.strip_prefix(&*self.head)?;
        let Some(tail) = &self.tail else { return Some(rest) };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        rest[digits..].strip_prefix(&**tail).filter(|_| digits > 0)
    }

    fn keep(&mut self, side: &str) {
        let (head, tail) = split_at_number(side).map_or((side, None), |(head, tail)| (head, Some(tail)));
        replace(&mut self.head, head);
        match tail {
            Some(tail) => replace(self.tail.get_or_insert_default(), tail),
            None => self.tail = None,
        }
    }
}

/// What stands before and after the number of an event, if it has one.
fn split_at_number(side: &str) -> Option<(&str, &str)> {
    let (_, rest) = side.split_once(NUMBER)?;
    let number = rest.trim_start();
    let tail = number.trim_start_matches(|c: char| c.is_ascii_digit());
    let head = &side[..side.len() - number.len()];
    (tail.len() < number.len()).then_some((head, tail))
}

fn replace(kept: &mut Vec<u8>, by: &str) {
    kept.clear();
    kept.extend_from_slice(by.as_bytes());
}
