//! Chunks that differ from the one before in their text alone.
//!
//! A model says one token after the other, and the chunk around each is the same: some 250 bytes, of which five matter.
//! What surrounded the last piece of text is kept. A chunk with the same surroundings need not be parsed, but for the
//! string between them: only it can differ, and what is known to change from chunk to chunk and to say nothing.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use memchr::{memchr, memchr2};

/// Longest chunk whose surroundings are kept, in bytes: they stay for a whole answer.
const MAX_CHUNK: usize = 2 << 10;
/// The ends of names of members whose values differ from chunk to chunk and say nothing that the answer is made of: the number
/// of an event, the filling by which OpenAI hides how long a token is, and how many tokens there are so far at Google. Within
/// a string their quotation marks would be escaped.
const CHANGING: [(&str, Gap); 3] =
    [("\"sequence_number\":", Gap::Number), ("\"obfuscation\":", Gap::Filling), ("okenCount\":", Gap::Number)];
static FINDERS: LazyLock<[Finder<'static>; 3]> = LazyLock::new(|| CHANGING.map(|(name, _)| Finder::new(name)));
/// What may not stand in a string as it is.
const CONTROLS: std::ops::Range<u8> = 0..b' ';

/// The text or the reasoning of a chunk that holds nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnlyPiece<'a, Place = ()> {
    /// What it says; borrowed from the chunk where it stands there so.
    pub said: Cow<'a, str>,
    /// Whether that is reasoning.
    pub is_thinking: bool,
    /// Which part of the answer it adds to, where that depends on the chunk.
    pub place: Place,
}

impl<'a> OnlyPiece<'a> {
    /// The same as a piece of this part of the answer.
    pub fn at<Place>(self, place: Place) -> OnlyPiece<'a, Place> {
        OnlyPiece { said: self.said, is_thinking: self.is_thinking, place }
    }
}

/// What surrounded the last piece of text: all of a chunk that said nothing else.
#[derive(Debug, Default)]
pub struct Surroundings<Place = ()> {
    before: Side,
    after: Side,
    is_thinking: bool,
    place: Place,
}

/// What stands on one side of a piece.
#[derive(Debug, Default)]
struct Side {
    /// All of it but for what differs.
    fixed: Vec<u8>,
    /// Where in it something stands that differs, and what.
    gaps: Vec<(usize, Gap)>,
}

/// A value that differs from chunk to chunk.
#[derive(Debug, Clone, Copy)]
enum Gap {
    /// A whole number.
    Number,
    /// A string of letters and the like.
    Filling,
}

impl<Place: Copy> Surroundings<Place> {
    /// What a chunk with these surroundings says; `None` of any other, and of one whose text must be parsed.
    pub fn piece_of<'a>(&self, json: &'a [u8]) -> Option<OnlyPiece<'a, Place>> {
        if self.before.fixed.is_empty() {
            return None;
        }
        let rest = self.before.strip(json)?;
        let (text, after) = rest.split_at(end_of_string(rest)?);
        if !self.after.strip(after)?.is_empty() {
            return None;
        }
        Some(OnlyPiece { said: unescaped(json, text)?, is_thinking: self.is_thinking, place: self.place })
    }

    /// Keeps what surrounds the text of a chunk that was parsed from `json`, if the chunk is this `piece` alone.
    pub fn keep(&mut self, json: &str, piece: Option<OnlyPiece<'_, Place>>) {
        let Some(OnlyPiece { said: Cow::Borrowed(said), is_thinking, place }) =
            piece.filter(|_| json.len() <= MAX_CHUNK)
        else {
            return;
        };
        let begin = said.as_ptr().addr().wrapping_sub(json.as_ptr().addr());
        if let Some((before, rest)) = json.split_at_checked(begin)
            && let Some(after) = rest.get(said.len()..)
        {
            self.before.keep(before);
            self.after.keep(after);
            self.is_thinking = is_thinking;
            self.place = place;
        }
    }
}

/// Where the string ends that `json` is in.
fn end_of_string(json: &[u8]) -> Option<usize> {
    let mut end = memchr2(b'"', b'\\', json)?;
    while json[end] == b'\\' {
        let next = end + 2;
        end = next + memchr2(b'"', b'\\', json.get(next..)?)?;
    }
    Some(end)
}

/// What a string says whose inside, a part of `json`, is this; `None` if it is no string.
fn unescaped<'a>(json: &'a [u8], text: &'a [u8]) -> Option<Cow<'a, str>> {
    if memchr(b'\\', text).is_none() {
        let is_plain = !text.iter().any(|byte| CONTROLS.contains(byte));
        return str::from_utf8(text).ok().filter(|_| is_plain).map(Cow::Borrowed);
    }
    // With its quotation marks.
    let begin = text.as_ptr().addr() - json.as_ptr().addr();
    let string = json.get(begin.checked_sub(1)?..=begin + text.len())?;
    serde_json::from_slice(string).ok().map(Cow::Owned)
}

impl Side {
    /// What follows this side at the beginning of `json`.
    fn strip<'a>(&self, json: &'a [u8]) -> Option<&'a [u8]> {
        let (mut rest, mut begin) = (json, 0);
        for (end, gap) in &self.gaps {
            rest = gap.strip(rest.strip_prefix(&self.fixed[begin..*end])?)?;
            begin = *end;
        }
        rest.strip_prefix(&self.fixed[begin..])
    }

    fn keep(&mut self, side: &str) {
        self.fixed.clear();
        self.gaps.clear();
        let mut rest = side;
        while let Some((gap, before, after)) = first_gap(rest) {
            self.fixed.extend_from_slice(before.as_bytes());
            self.gaps.push((self.fixed.len(), gap));
            rest = after;
        }
        self.fixed.extend_from_slice(rest.as_bytes());
    }
}

impl Gap {
    /// What follows a value of this kind at the beginning of `json`.
    fn strip(self, json: &[u8]) -> Option<&[u8]> {
        let fits = |byte: &u8| match self {
            Self::Number => byte.is_ascii_digit(),
            Self::Filling => byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'),
        };
        let length = json.iter().take_while(|byte| fits(byte)).count();
        let is_whole = match self {
            Self::Number => length == 1 || (length > 1 && json[0] != b'0'),
            Self::Filling => true,
        };
        is_whole.then(|| &json[length..])
    }
}

/// The first value on a side that may differ, with what stands before and after it.
fn first_gap(side: &str) -> Option<(Gap, &str, &str)> {
    let found = FINDERS.iter().map(|finder| finder.find(side.as_bytes()));
    let ends = found.zip(&CHANGING).filter_map(|(at, (name, gap))| Some((at? + name.len(), *gap)));
    let (end, gap) = ends.min_by_key(|(end, _)| *end)?;
    let value = side[end..].trim_start();
    let value = match gap {
        Gap::Number => value,
        Gap::Filling => value.strip_prefix('"')?,
    };
    let after = gap.strip(value.as_bytes())?.len();
    let (before, after) = (&side[..side.len() - value.len()], &side[side.len() - after..]);
    Some((gap, before, after))
}
