//! The event stream of a Loopgate server: bytes in, events with their ids out. Pure.
//!
//! Other than a model's turn, an event of a run is as large as the run's report or its text, so the bound is a large one.

/// Most bytes of one event. It bounds what a server that is none of ours makes the command keep.
const MAX_EVENT: usize = 64 << 20;

/// Reads one stream.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// What came after the last whole line.
    rest: Vec<u8>,
    /// How much of it is known to hold no end of a line.
    searched: usize,
    id: Option<u64>,
    data: Option<String>,
}

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its number.
    pub(super) id: Option<u64>,
    /// Its JSON, or `[DONE]`.
    pub(super) data: String,
}

/// An event passed the bound.
#[derive(Debug, thiserror::Error)]
#[error("the server sends an event of more than 64 MiB")]
pub(super) struct TooLarge;

impl Frames {
    /// Takes more of the stream.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        if self.rest.len() + bytes.len() + self.data.as_ref().map_or(0, String::len) > MAX_EVENT {
            return Err(TooLarge);
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }

    /// The next whole event.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let (mut from, mut found) = (0, None);
        while let Some(end) = memchr::memchr(b'\n', &self.rest[from.max(self.searched)..]) {
            let end = from.max(self.searched) + end;
            let line = String::from_utf8_lossy(&self.rest[from..end]);
            let line = line.trim_end_matches('\r');
            from = end + 1;
            if line.is_empty() {
                let id = self.id.take();
                found = self.data.take().map(|data| Frame { id, data });
                if found.is_some() {
                    break;
                }
            } else if let Some(id) = value(line, "id") {
                self.id = id.parse().ok();
            } else if let Some(data) = value(line, "data") {
                match &mut self.data {
                    Some(before) => *before = format!("{before}\n{data}"),
                    None => self.data = Some(data.to_owned()),
                }
            }
        }
        self.rest.drain(..from);
        self.searched = if found.is_some() { 0 } else { self.rest.len() };
        found
    }
}

/// The value of a line that sets this field.
fn value<'a>(line: &'a str, field: &str) -> Option<&'a str> {
    let value = line.strip_prefix(field)?.strip_prefix(':')?;
    Some(value.strip_prefix(' ').unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_wherever_the_stream_is_cut() {
        let stream = ": hello\n\nid: 1\nevent: run.started\ndata: {\"a\":\ndata: \"é\"}\n\nretry: 250\n\ndata: x\r\n\r\nid: 3\ndata: y\n\ndata: cut";
        let expected = [(Some(1), "{\"a\":\n\"é\"}"), (None, "x"), (Some(3), "y")];
        for cut in 0..=stream.len() {
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            for piece in [&stream.as_bytes()[..cut], &stream.as_bytes()[cut..]] {
                frames.push(piece).unwrap();
                seen.extend(std::iter::from_fn(|| frames.next()));
            }
            let seen: Vec<_> = seen.iter().map(|frame| (frame.id, frame.data.as_str())).collect();
            assert_eq!(seen, expected, "{cut}");
        }
        let mut frames = Frames::default();
        frames.push(&vec![b'x'; MAX_EVENT]).unwrap();
        assert!(frames.next().is_none() && frames.push(b"x").is_err());
    }
}
