//! Answers that tell how far a call is while they arrive: server-sent events, and lines of JSON.
//!
//! An event named `progress`, or a line that is an object with the only member `progress`, is a report of how far the call is. All
//! other events and lines together are the answer.

use memchr::memchr;
use serde_json::{Map, Value};

use crate::types::ToolProgress;

/// How such an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// Server-sent events.
    Events,
    /// Lines of JSON.
    Lines,
}

impl Framing {
    /// That of a media type, if it is one of these.
    pub(super) fn of(kind: &str) -> Option<Self> {
        match kind {
            "text/event-stream" => Some(Self::Events),
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-jsonlines" => {
                Some(Self::Lines)
            }
            _ => None,
        }
    }
}

/// An answer while it arrives.
#[derive(Debug)]
pub(super) struct Streamed {
    framing: Framing,
    /// The line that is not whole yet.
    line: Vec<u8>,
    event: Vec<u8>,
    data: Vec<u8>,
    /// What is not progress.
    answer: Vec<u8>,
    most: usize,
    was_cut: bool,
}

impl Streamed {
    /// Keeps no more than so many bytes of the answer.
    pub(super) fn new(framing: Framing, most: usize) -> Self {
        let empty = Vec::new;
        Self { framing, line: empty(), event: empty(), data: empty(), answer: empty(), most, was_cut: false }
    }

    /// Takes what arrived. Returns the newest report in it: older ones are out of date.
    pub(super) fn take(&mut self, mut arrived: &[u8]) -> Option<ToolProgress> {
        let mut newest = None;
        while let Some(end) = memchr(b'\n', arrived) {
            self.extend_line(&arrived[..end]);
            arrived = &arrived[end + 1..];
            let line = std::mem::take(&mut self.line);
            newest = self.end_line(line.strip_suffix(b"\r").unwrap_or(&line)).or(newest);
        }
        self.extend_line(arrived);
        newest
    }

    /// Whether there was more than is kept.
    pub(super) fn was_cut(&self) -> bool {
        self.was_cut
    }

    /// The answer, without what only told how far it was.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let line = std::mem::take(&mut self.line);
        self.end_line(line.strip_suffix(b"\r").unwrap_or(&line));
        self.end_line(b"");
        self.answer
    }

    fn extend_line(&mut self, bytes: &[u8]) {
        let room = self.most.saturating_sub(self.line.len() + self.data.len());
        self.was_cut |= bytes.len() > room;
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self, line: &[u8]) -> Option<ToolProgress> {
        if self.framing == Framing::Lines {
            let members = serde_json::from_slice::<Map<String, Value>>(line).ok().filter(|members| members.len() == 1);
            let report = members.and_then(|mut members| members.remove("progress"));
            if report.is_none() && !line.is_empty() {
                self.add(line);
            }
            return report.as_ref().map(report_of);
        }
        if line.is_empty() {
            return self.end_event();
        }
        let (name, value) = match memchr(b':', line) {
            Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
            None => (line, &b""[..]),
        };
        match name {
            b"event" => self.event = value.to_vec(),
            b"data" => {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<ToolProgress> {
        let (event, data) = (std::mem::take(&mut self.event), std::mem::take(&mut self.data));
        if event == b"progress" {
            let text = || Value::String(String::from_utf8_lossy(&data).into_owned());
            return Some(report_of(&serde_json::from_slice(&data).unwrap_or_else(|_| text())));
        }
        // How streams of models say that they are at their end.
        if !data.is_empty() && data != b"[DONE]" {
            self.add(&data);
        }
        None
    }

    fn add(&mut self, piece: &[u8]) {
        if self.answer.len() >= self.most {
            self.was_cut = true;
            return;
        }
        if !self.answer.is_empty() {
            self.answer.push(b'\n');
        }
        let room = self.most.saturating_sub(self.answer.len());
        self.was_cut |= piece.len() > room;
        self.answer.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

/// A report: an object that says how much is done of how much, or a text.
fn report_of(value: &Value) -> ToolProgress {
    let number = |name: &str| value.get(name).and_then(Value::as_f64);
    let message = value.get("message").and_then(Value::as_str).or(value.as_str());
    ToolProgress {
        done: number("done").or_else(|| number("progress")).or(value.as_f64()),
        total: number("total"),
        message: message.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streamed(framing: Framing, text: &str, at_once: usize) -> (String, Vec<ToolProgress>) {
        let mut streamed = Streamed::new(framing, 1_000);
        let reports = text.as_bytes().chunks(at_once).filter_map(|chunk| streamed.take(chunk)).collect();
        (String::from_utf8(streamed.finish()).unwrap(), reports)
    }

    #[test]
    fn reports_are_told_from_the_answer_wherever_they_are_cut() {
        let report = |done: f64, total, message: &str| ToolProgress {
            done: Some(done),
            total,
            message: Some(message.to_owned()).filter(|text| !text.is_empty()),
        };
        let events = ": hello\r\nevent: progress\r\ndata: {\"done\":1,\"total\":4,\"message\":\"a\"}\r\n\r\ndata: one\ndata: two\n\n\
                      event: result\ndata: three\n\nevent: progress\ndata:looking\n\ndata: [DONE]\n\ndata: last";
        let lines = "{\"progress\":{\"progress\":1,\"total\":4}}\n{\"a\":1}\n\n{\"progress\":2,\"b\":3}\r\n{\"progress\":0.5}\nend";
        for at_once in 1..12 {
            let (answer, reports) = streamed(Framing::Events, events, at_once);
            assert_eq!(answer, "one\ntwo\nthree\nlast", "{at_once}");
            let looking = ToolProgress { message: Some("looking".into()), ..ToolProgress::default() };
            assert_eq!(reports, [report(1.0, Some(4.0), "a"), looking], "{at_once}");
            let (answer, reports) = streamed(Framing::Lines, lines, at_once);
            assert_eq!(answer, "{\"a\":1}\n{\"progress\":2,\"b\":3}\nend", "{at_once}");
            assert_eq!(reports, [report(1.0, Some(4.0), ""), report(0.5, None, "")], "{at_once}");
        }
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        for (framing, again) in
            [(Framing::Events, "data: 12345\n\n"), (Framing::Lines, "12345\n"), (Framing::Events, "x")]
        {
            let mut streamed = Streamed::new(framing, 100);
            for _ in 0..200 {
                assert_eq!(streamed.take(again.as_bytes()), None);
            }
            assert!(streamed.was_cut(), "{again:?}");
            assert!(streamed.finish().len() <= 101, "{again:?}");
        }
    }
}
