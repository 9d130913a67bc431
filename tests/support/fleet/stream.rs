//! Reads server-sent events as the standard says, a few bytes at a time, and judges nothing.

use serde::{Deserialize, Serialize};

/// An event with data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// Its own id.
    pub(crate) id: Option<u64>,
    /// Its name, or `""`.
    pub(crate) name: String,
    /// Its data.
    pub(crate) data: String,
}

/// What has been read of an event stream.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    rest: Vec<u8>,
    id: Option<u64>,
    name: String,
    data: Option<String>,
    /// How long to wait before a reconnection, once the server has said so; milliseconds.
    pub(crate) retry_ms: Option<u64>,
}

impl Decoder {
    /// Takes in the next bytes and returns the events that they complete.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            events.extend(self.line(line.trim_end_matches(['\r', '\n'])));
        }
        events
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let (id, name, data) = (self.id.take(), std::mem::take(&mut self.name), self.data.take());
            return data.map(|data| Event { id, name, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = value.parse().ok(),
            "event" => value.clone_into(&mut self.name),
            "retry" => self.retry_ms = value.parse().ok().or(self.retry_ms),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // Comments have no name before their colon; unknown fields mean nothing.
            _ => {}
        }
        None
    }
}

#[test]
fn events_are_read_however_they_are_cut() {
    let text = ": hi\nretry: 250\n\nid: 1\nevent: a\ndata: x\n\nid: 2\r\ndata:y\r\ndata: z\r\n\r\nevent: no data\n\ndata: [DONE]\n\n";
    let event = |id, name: &str, data: &str| Event { id, name: name.to_owned(), data: data.to_owned() };
    let expected = [event(Some(1), "a", "x"), event(Some(2), "", "y\nz"), event(None, "", "[DONE]")];
    for size in 1..text.len() {
        let mut decoder = Decoder::default();
        let events: Vec<_> = text.as_bytes().chunks(size).flat_map(|bytes| decoder.read(bytes)).collect();
        assert_eq!(events, expected);
        assert_eq!(decoder.retry_ms, Some(250));
    }
}
