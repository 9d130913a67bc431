//! Lines of a pipe, none of them longer than is allowed.
//!
//! What is read of a line is kept while something else is done, so reading can be interrupted at any time.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// How much of the two ends of a line that is too long is kept.
pub(super) const KEPT_END: usize = 256;

/// A line, or what is left of one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// All of it.
    Whole(Vec<u8>),
    /// Its beginning and its end: it was longer than is allowed.
    TooLong(Vec<u8>),
}

/// Reads lines.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    most: usize,
    line: Vec<u8>,
    is_too_long: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R, most: usize) -> Self {
        Self { reader: BufReader::new(reader), most: most.max(2 * KEPT_END), line: Vec::new(), is_too_long: false }
    }

    /// The next line; `None` at the end, and if the pipe breaks.
    pub(super) async fn next(&mut self) -> Option<Line> {
        loop {
            let read = self.reader.fill_buf().await.ok().filter(|read| !read.is_empty())?;
            let end = memchr::memchr(b'\n', read);
            let piece = &read[..end.unwrap_or(read.len())];
            if self.line.len() + piece.len() > self.most {
                self.is_too_long = true;
            }
            self.line.extend_from_slice(piece);
            if self.is_too_long && self.line.len() > 2 * KEPT_END {
                self.line.drain(KEPT_END..self.line.len() - KEPT_END);
            }
            let used = piece.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                let is_too_long = std::mem::take(&mut self.is_too_long);
                return Some(if is_too_long { Line::TooLong(line) } else { Line::Whole(line) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_takes_no_more_memory_and_the_next_is_read() {
        let long = format!("{{\"id\":7,{}\"end\":1}}", "x".repeat(100_000));
        let text = format!("a\n\n{long}\nb\r\nwithout an end");
        let mut lines = Lines::new(text.as_bytes(), 1_000);
        assert_eq!(lines.next().await, Some(Line::Whole(b"a".to_vec())));
        assert_eq!(lines.next().await, Some(Line::Whole(Vec::new())));
        let Some(Line::TooLong(ends)) = lines.next().await else { panic!("it is longer than allowed") };
        assert!(ends.len() <= 2 * KEPT_END && ends.starts_with(b"{\"id\":7,") && ends.ends_with(b"\"end\":1}"));
        assert!(lines.line.capacity() < 10_000);
        assert_eq!(lines.next().await, Some(Line::Whole(b"b\r".to_vec())));
        assert_eq!(lines.next().await, None);
    }
}
