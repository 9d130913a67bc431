//! A reader of event streams that forgives nothing, over the one decoder that all tests read streams with.

mod decoder;

use std::collections::VecDeque;
use std::fmt::Write;

use reqwest::Response;

use super::within;

pub(crate) use decoder::{Decoder, Frame};

/// What is read of a stream up to these words, or to its end.
pub(crate) async fn read_to(response: &mut Response, words: &str) -> String {
    let mut text = String::new();
    let reading = async {
        while let Ok(Some(piece)) = response.chunk().await {
            text += std::str::from_utf8(&piece).expect("frames are written whole");
            if text.contains(words) {
                break;
            }
        }
    };
    within(words, reading).await;
    text
}

/// All text of these chunks.
pub(crate) fn text_of(frames: &[Frame]) -> String {
    frames.iter().filter_map(Frame::text).collect()
}

/// The names of the events in their order; text chunks are `text`, and neighbours count once.
pub(crate) fn outline(frames: &[Frame]) -> String {
    let mut outline = String::new();
    let mut last = "";
    for frame in frames.iter().filter(|frame| !frame.is_done()) {
        let name = if frame.name.is_empty() { "text" } else { &frame.name };
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
    decoder: Decoder,
    /// Events that are read and not yet returned.
    ready: VecDeque<Frame>,
    last_id: Option<u64>,
    /// Whether events may have no frame, so that their numbers are left out.
    leaves_out: bool,
    is_done: bool,
    /// Whether it broke before its body came to its end.
    is_cut: bool,
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
        let (decoder, ready) = (Decoder::default(), VecDeque::new());
        Self { response, decoder, ready, last_id: None, leaves_out: false, is_done: false, is_cut: false }
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

    /// All events until the connection breaks, which it must within the body: a body that came to its end would look whole.
    pub(crate) async fn until_cut(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Next::Frame(frame) = self.advance().await {
            frames.push(frame);
        }
        assert!(self.is_cut, "the body came to its end: {frames:?}");
        frames
    }

    async fn advance(&mut self) -> Next {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                self.judge(&frame);
                return Next::Frame(frame);
            }
            match within("the next event", self.response.chunk()).await {
                Ok(Some(bytes)) => {
                    self.ready.extend(self.decoder.read(&bytes));
                    assert!(self.decoder.oddities.is_empty(), "{:?}", self.decoder.oddities);
                    assert!(self.decoder.retry_ms.is_none(), "an unknown field: retry");
                    assert!(!self.is_done, "bytes follow [DONE]: {bytes:?}");
                }
                Ok(None) if self.is_done && self.decoder.is_between_events() => return Next::End,
                Ok(None) => return Next::Broken,
                Err(_) => {
                    self.is_cut = true;
                    return Next::Broken;
                }
            }
        }
    }

    fn judge(&mut self, frame: &Frame) {
        assert!(!self.is_done, "an event follows [DONE]: {frame:?}");
        if frame.is_done() {
            assert!(frame.name.is_empty(), "[DONE] has a name: {frame:?}");
            self.is_done = true;
        }
        if let (Some(last), Some(id)) = (self.last_id, frame.id) {
            let follows = if self.leaves_out { id > last } else { id == last + 1 };
            assert!(follows, "the ids have a gap or a repetition: {id} after {last}");
        }
        self.last_id = frame.id.or(self.last_id);
        if !frame.name.is_empty() {
            let data = frame.json();
            assert_eq!(data["type"], *frame.name, "the event's name and type differ");
            assert_eq!(data["seq"].as_u64(), frame.id, "the event's id and number differ");
        }
    }
}
