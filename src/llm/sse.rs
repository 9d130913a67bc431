//! Server-sent events, as the HTML standard writes them: bytes in, each event's data out.
//!
//! Pure and bounded. An event that lies within one chunk is handed out as a slice of that chunk; only
//! what a chunk cuts in two, and data of several lines, is copied. Event names, ids and retry hints
//! are skipped: no upstream says anything with them that its data does not say. Lines that belong to no event are skipped
//! too, unless a dialect has a use for them.

use memchr::{memchr, memchr2};

/// Longest line, in bytes, unless the dialect has longer events.
pub const MAX_LINE: usize = 1 << 20;
/// Most data of one event, in bytes, unless the dialect has longer ones.
pub const MAX_EVENT: usize = 256 << 10;
/// Most of the JSON that is kept of lines outside of events, in bytes.
const MAX_STRAY: usize = 64 << 10;
/// What stands in a line beside the data: the name of its field.
const FIELD: usize = 16;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Why a stream cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line passed the bound of so many bytes.
    #[error("a line of more than {}", in_units(*.0))]
    LineTooLong(usize),
    /// An event's data passed the bound of so many bytes.
    #[error("an event of more than {}", in_units(*.0))]
    EventTooLong(usize),
}

/// A bound in words.
fn in_units(bytes: usize) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

/// Reads one stream of events.
#[derive(Debug)]
pub struct Parser {
    max_line: usize,
    max_event: usize,
    /// The line that the last chunk left unended.
    line: Vec<u8>,
    /// The data so far of an event that could not stay a slice of its chunk.
    data: Vec<u8>,
    /// Whether the event being read has data, if only an empty line of it.
    has_data: bool,
    /// Whether the last chunk ended in a carriage return, whose line feed may still come.
    after_return: bool,
    /// Whether the first line, which may bear a byte order mark, was read.
    begun: bool,
    /// The JSON that stands outside of events; `None` where that is skipped.
    stray: Option<Vec<u8>>,
}

impl Default for Parser {
    fn default() -> Self {
        Self::bounded(MAX_LINE, MAX_EVENT)
    }
}

impl Parser {
    /// For a dialect whose events may have this many bytes of data.
    #[must_use]
    pub fn with_longest_event(max_event: usize) -> Self {
        Self::bounded(MAX_LINE.max(max_event + FIELD), max_event)
    }

    fn bounded(max_line: usize, max_event: usize) -> Self {
        let (line, data) = (Vec::new(), Vec::new());
        Self { max_line, max_event, line, data, has_data: false, after_return: false, begun: false, stray: None }
    }

    /// The same parser, which keeps JSON that stands outside of events.
    #[must_use]
    pub fn keeping_stray_json(self) -> Self {
        Self { stray: Some(Vec::new()), ..self }
    }

    /// The JSON so far that stands outside of events, if there is some; it may not be whole.
    pub fn stray_json(&self) -> Option<Vec<u8>> {
        let stray = self.stray.as_ref().filter(|stray| !stray.is_empty() || begins_json(&self.line))?;
        (stray.len() + self.line.len() <= MAX_STRAY).then(|| [&stray[..], &self.line].concat())
    }

    /// The next whole event's data, taking what it read off `rest`; `None` once `rest` is used up.
    ///
    /// What remains unended waits for the next chunk. After an error the parser must not be used.
    pub fn next_event<'s, 'c: 's>(&'s mut self, rest: &mut &'c [u8]) -> Result<Option<&'s [u8]>, SseError> {
        if !self.has_data {
            self.data.clear();
        }
        let mut slice: Option<&'c [u8]> = None;
        while let Some(line) = self.next_line(rest)? {
            let content = match line {
                Line::InChunk(line) => content(line),
                Line::Carried => content(&self.line),
            };
            match content {
                Content::Data(value) => {
                    let before = slice.map_or(self.data.len(), <[u8]>::len) + usize::from(self.has_data);
                    if before + value.len() > self.max_event {
                        return Err(SseError::EventTooLong(self.max_event));
                    }
                    match line {
                        Line::InChunk(line) if !self.has_data => slice = Some(&line[line.len() - value.len()..]),
                        Line::InChunk(_) | Line::Carried => {
                            self.data.extend_from_slice(slice.take().unwrap_or_default());
                            if self.has_data {
                                self.data.push(b'\n');
                            }
                            self.data.extend_from_slice(value);
                        }
                    }
                    self.has_data = true;
                }
                Content::Blank if self.has_data => {
                    self.has_data = false;
                    return Ok(Some(slice.unwrap_or(&self.data)));
                }
                Content::Stray => {
                    if let Some(stray) = &mut self.stray {
                        let line = if let Line::InChunk(line) = line { line } else { &self.line };
                        keep_stray(stray, line);
                    }
                }
                Content::Blank | Content::Skipped => {}
            }
            if matches!(line, Line::Carried) {
                self.line.clear();
            }
        }
        self.data.extend_from_slice(slice.unwrap_or_default());
        Ok(None)
    }

    /// The next ended line, without its end; what is left of an unended one is carried over.
    fn next_line<'c>(&mut self, rest: &mut &'c [u8]) -> Result<Option<Line<'c>>, SseError> {
        if self.after_return && !rest.is_empty() {
            self.after_return = false;
            *rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        let end = memchr2(b'\r', b'\n', rest);
        let piece = &rest[..end.unwrap_or(rest.len())];
        if self.line.len() + piece.len() > self.max_line {
            return Err(SseError::LineTooLong(self.max_line));
        }
        let Some(end) = end else {
            self.line.extend_from_slice(piece);
            *rest = &[];
            return Ok(None);
        };
        *rest = match &rest[end..] {
            [b'\r', b'\n', after @ ..] => after,
            [b'\r'] => {
                self.after_return = true;
                &[]
            }
            ended => &ended[1..],
        };
        let line = if self.line.is_empty() {
            Line::InChunk(piece)
        } else {
            self.line.extend_from_slice(piece);
            Line::Carried
        };
        Ok(Some(if self.begun { line } else { self.without_mark(line) }))
    }

    /// The stream's first line without a byte order mark.
    fn without_mark<'c>(&mut self, line: Line<'c>) -> Line<'c> {
        self.begun = true;
        match line {
            Line::InChunk(line) => Line::InChunk(line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)),
            Line::Carried => {
                if self.line.starts_with(BYTE_ORDER_MARK) {
                    self.line.drain(..BYTE_ORDER_MARK.len());
                }
                Line::Carried
            }
        }
    }
}

/// Where an ended line is.
#[derive(Clone, Copy)]
enum Line<'c> {
    InChunk(&'c [u8]),
    /// In the parser, because it began in an earlier chunk.
    Carried,
}

/// What a line is to the event it belongs to.
enum Content<'l> {
    Blank,
    Data(&'l [u8]),
    /// A comment, or a field that says nothing.
    Skipped,
    /// No line of an event.
    Stray,
}

fn content(line: &[u8]) -> Content<'_> {
    // Most lines by far: without looking where the name of the field ends.
    if let Some(value) = line.strip_prefix(b"data:") {
        return Content::Data(value.strip_prefix(b" ").unwrap_or(value));
    }
    let (field, value) = match memchr(b':', line) {
        Some(colon) => (&line[..colon], &line[colon + 1..]),
        None if line.is_empty() => return Content::Blank,
        None => (line, &[][..]),
    };
    match field {
        // Without a colon.
        b"data" => Content::Data(value),
        b"" | b"event" | b"id" | b"retry" => Content::Skipped,
        _ => Content::Stray,
    }
}

/// Keeps a line that is or continues an object or a list.
fn keep_stray(stray: &mut Vec<u8>, line: &[u8]) {
    if (!stray.is_empty() || begins_json(line)) && stray.len() + line.len() < MAX_STRAY {
        stray.extend_from_slice(line);
        stray.push(b'\n');
    }
}

fn begins_json(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start().first(), Some(b'{' | b'['))
}

#[cfg(test)]
mod tests;
