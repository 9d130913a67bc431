//! Reads server-sent events as the standard says, a few bytes at a time. It goes on whatever it reads, and
//! notes what Loopgate never sends, for a reader that is strict.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event with data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Frame {
    /// Its number, on streams that number their events.
    pub(crate) id: Option<u64>,
    /// Its name, or `""`; OpenAI's chunks have none.
    pub(crate) name: String,
    /// Its data.
    pub(crate) data: String,
}

impl Frame {
    /// Whether it is `[DONE]`, the end of a stream.
    pub(crate) fn is_done(&self) -> bool {
        self.data == "[DONE]"
    }

    /// The data as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error} in {:?}", self.data))
    }

    /// The text that a chunk adds to the answer.
    pub(crate) fn text(&self) -> Option<String> {
        let is_chunk = self.name.is_empty() && !self.is_done();
        is_chunk.then(|| self.json()["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).flatten()
    }
}

/// What has been read of an event stream.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    rest: Vec<u8>,
    id: Option<u64>,
    name: Option<String>,
    data: Option<String>,
    is_done: bool,
    /// How long to wait before a reconnection, once the server has said so; milliseconds.
    pub(crate) retry_ms: Option<u64>,
    /// Comment lines so far.
    pub(crate) comments: usize,
    /// What the standard allows or passes over, and Loopgate does not send.
    pub(crate) oddities: Vec<String>,
}

impl Decoder {
    /// Takes in the next bytes and returns the events that they complete.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Vec<Frame> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line[..end]);
            self.note(std::str::from_utf8(&line).is_err(), "a line is not UTF-8", &text);
            self.note(text.ends_with('\r'), "a line ends in CR", &text);
            events.extend(self.line(text.trim_end_matches('\r')));
        }
        events
    }

    /// Whether nothing has begun that is not complete.
    pub(crate) fn is_between_events(&self) -> bool {
        self.rest.is_empty() && self.id.is_none() && self.name.is_none() && self.data.is_none()
    }

    fn note(&mut self, is_odd: bool, what: &str, line: &str) {
        if is_odd {
            self.oddities.push(format!("{what}: {line:?}"));
        }
    }

    fn line(&mut self, line: &str) -> Option<Frame> {
        self.note(self.is_done && !line.is_empty(), "a line follows [DONE]", line);
        if line.is_empty() {
            let (id, name, data) = (self.id.take(), self.name.take(), self.data.take());
            self.note(data.is_none() && (id.is_some() || name.is_some()), "an event without data", line);
            let frame = Frame { id, name: name.unwrap_or_default(), data: data? };
            self.is_done |= frame.is_done();
            return Some(frame);
        }
        if line.starts_with(':') {
            self.comments += 1;
            return None;
        }
        self.note(!line.contains(": "), "no `name: value`", line);
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => {
                self.note(self.id.is_some(), "a field stands twice", line);
                self.id = value.parse().ok();
                self.note(self.id.is_none(), "an id that is no number", line);
            }
            "event" => {
                self.note(self.name.is_some(), "a field stands twice", line);
                self.name = Some(value.to_owned());
            }
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                    self.note(true, "a field stands twice", line);
                }
                None => self.data = Some(value.to_owned()),
            },
            _ => {
                if field == "retry" {
                    self.retry_ms = value.parse().ok().or(self.retry_ms);
                }
                self.note(field != "retry", "an unknown field", line);
            }
        }
        None
    }
}

#[test]
fn events_are_read_however_they_are_cut() {
    let text = ": hi\nretry: 250\n\nid: 1\nevent: a\ndata: x\n\nid: 2\r\ndata:y\r\ndata: z\r\n\r\nevent: no data\n\ndata: [DONE]\n\n";
    let event = |id, name: &str, data: &str| Frame { id, name: name.to_owned(), data: data.to_owned() };
    let expected = [event(Some(1), "a", "x"), event(Some(2), "", "y\nz"), event(None, "", "[DONE]")];
    for size in 1..text.len() {
        let mut decoder = Decoder::default();
        let events: Vec<_> = text.as_bytes().chunks(size).flat_map(|bytes| decoder.read(bytes)).collect();
        assert_eq!(events, expected);
        assert_eq!((decoder.retry_ms, decoder.comments), (Some(250), 1));
        assert!(decoder.is_between_events());
    }
}
