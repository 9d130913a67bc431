//! A reader of event streams that forgives nothing.

use std::fmt::Write;

use reqwest::Response;
use serde_json::Value;

use super::within;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Its number, on streams that number their events.
    pub(crate) id: Option<u64>,
    /// Its name; OpenAI's chunks have none.
    pub(crate) event: Option<String>,
    /// Its one line of data.
    pub(crate) data: String,
}

impl Frame {
    /// The data as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error} in {:?}", self.data))
    }

    /// The event's name, or `""`.
    pub(crate) fn name(&self) -> &str {
        self.event.as_deref().unwrap_or_default()
    }

    /// The text that a chunk adds to the answer.
    pub(crate) fn text(&self) -> Option<String> {
        let is_chunk = self.event.is_none() && self.data != "[DONE]";
        is_chunk.then(|| self.json()["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).flatten()
    }
}

/// All text of these chunks.
pub(crate) fn text_of(frames: &[Frame]) -> String {
    frames.iter().filter_map(Frame::text).collect()
}

/// The names of the events in their order; text chunks are `text`, and neighbours count once.
pub(crate) fn outline(frames: &[Frame]) -> String {
    let mut outline = String::new();
    let mut last = "";
    for frame in frames.iter().filter(|frame| frame.data != "[DONE]") {
        let name = frame.event.as_deref().unwrap_or("text");
        if name != last || name != "text" {
            write!(outline, "{}{name}", if outline.is_empty() { "" } else { " " }).expect("a string takes it");
        }
        last = name;
    }
    outline
}

/// How a stream went on.
#[derive(Debug)]
enum Next {
    Frame(Frame),
    End,
    Broken,
}

/// Reads a response's events, and fails the test when its framing is not exactly what is promised.
#[derive(Debug)]
pub(crate) struct SseReader {
    response: Response,
    buffer: Vec<u8>,
    last_id: Option<u64>,
    /// Whether events may have no frame, so that their numbers are left out.
    leaves_out: bool,
    done: bool,
    /// Comment lines so far.
    pub(crate) comments: usize,
}

impl SseReader {
    /// Reads this response, which must be an event stream that nobody on the way buffers or keeps.
    pub(crate) fn new(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        let header =
            |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = header("content-type");
        assert!(kind == "text/event-stream" || kind == "text/event-stream; charset=utf-8", "{kind}");
        assert_eq!(header("cache-control"), "no-cache");
        assert_eq!(header("x-accel-buffering"), "no");
        Self { response, buffer: Vec::new(), last_id: None, leaves_out: false, done: false, comments: 0 }
    }

    /// The same for a stream of nothing but OpenAI's chunks.
    pub(crate) fn of_chunks(response: Response) -> Self {
        Self { leaves_out: true, ..Self::new(response) }
    }

    /// The next event; `None` after `[DONE]`. A stream that ends without it fails the test.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        match self.advance().await {
            Next::Frame(frame) => Some(frame),
            Next::End => None,
            Next::Broken => panic!("the stream broke off after event {:?}", self.last_id),
        }
    }

    /// All events up to and including the first for which `is_last` holds.
    pub(crate) async fn until(&mut self, mut is_last: impl FnMut(&Frame) -> bool) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await;
            frames.push(frame.unwrap_or_else(|| panic!("the stream ended early: {frames:?}")));
            if frames.last().is_some_and(&mut is_last) {
                return frames;
            }
        }
    }

    /// All events to the end, `[DONE]` included.
    pub(crate) async fn rest(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// All events until the connection breaks, which it must.
    pub(crate) async fn until_broken(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            match self.advance().await {
                Next::Frame(frame) => frames.push(frame),
                Next::End => panic!("the stream ended as if nothing had happened: {frames:?}"),
                Next::Broken => return frames,
            }
        }
    }

    async fn advance(&mut self) -> Next {
        loop {
            while let Some(length) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..length + 2).collect();
                let block = String::from_utf8(block).expect("a stream is UTF-8");
                if let Some(frame) = self.parse(block.trim_end_matches('\n')) {
                    return Next::Frame(frame);
                }
            }
            match within("the next event", self.response.chunk()).await {
                Ok(Some(bytes)) => {
                    assert!(!self.done, "bytes follow [DONE]: {bytes:?}");
                    self.buffer.extend_from_slice(&bytes);
                }
                Ok(None) if self.done && self.buffer.is_empty() => return Next::End,
                Ok(None) | Err(_) => return Next::Broken,
            }
        }
    }

    /// Reads the lines between two empty ones: comments, or one event.
    fn parse(&mut self, block: &str) -> Option<Frame> {
        assert!(!self.done, "an event follows [DONE]: {block:?}");
        assert!(!block.contains('\r'), "a line ends in CR: {block:?}");
        let (mut id, mut event, mut data) = (None, None, None);
        for line in block.lines() {
            if line.starts_with(':') {
                self.comments += 1;
                continue;
            }
            let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("no `name: value`: {line:?}"));
            let place = match name {
                "id" => &mut id,
                "event" => &mut event,
                "data" => &mut data,
                _ => panic!("an unknown field: {line:?}"),
            };
            assert!(place.replace(value.to_owned()).is_none(), "a field stands twice: {block:?}");
        }
        if data.is_none() {
            assert!(id.is_none() && event.is_none(), "an event without data: {block:?}");
            return None;
        }
        let data = data.unwrap_or_default();
        let id = id.map(|id| id.parse().unwrap_or_else(|_| panic!("an id that is no number: {block:?}")));
        if data == "[DONE]" {
            assert!(event.is_none(), "[DONE] has a name: {block:?}");
            self.done = true;
        }
        if let (Some(last), Some(id)) = (self.last_id, id) {
            let follows = if self.leaves_out { id > last } else { id == last + 1 };
            assert!(follows, "the ids have a gap or a repetition: {id} after {last}");
        }
        self.last_id = id.or(self.last_id);
        let frame = Frame { id, event, data };
        if let Some(event) = &frame.event {
            let data = frame.json();
            assert_eq!(data["type"], **event, "the event's name and type differ");
            assert_eq!(data["seq"].as_u64(), frame.id, "the event's id and number differ");
        }
        Some(frame)
    }
}
