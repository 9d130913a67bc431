//! How far a connection is with the request that it answers, which the HTTP library does not tell.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::answering::Answering;
use crate::agent::AnswerFate;

/// How long after an answer was written a connection that breaks may still have cut it off. Not a setting: a reset follows
/// the bytes that the client did not read by the time that they take to it, and idle connections break for other reasons.
const READ_WITHIN: Duration = Duration::from_secs(2);

/// How far a connection is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Whether its request has been read to the end.
    read: AtomicBool,
    /// Whether its answer has been taken to the end by the library, or was given up.
    answered: AtomicBool,
    /// Whether all that the library wanted to write has been written.
    flushed: AtomicBool,
    /// A body that is not written by the library.
    streamed: Mutex<Option<Answering>>,
    /// The answer that is being written, or was written last, where it is kept whether it reached its client.
    answer: Mutex<Option<Last>>,
}

/// An answer.
#[derive(Debug)]
struct Last {
    fate: AnswerFate,
    /// Since when all of it is written.
    written: Option<Instant>,
}

impl Progress {
    /// The library gets the connection, to which a request is coming.
    pub(super) fn resume(&self) {
        self.answered.store(false, Relaxed);
    }

    /// A request has come.
    pub(super) fn begin(self: &Arc<Self>, request: hyper::Request<Incoming>) -> hyper::Request<Arriving> {
        self.answered.store(false, Relaxed);
        // A client that asks again has read the answer before.
        *self.answer.lock() = None;
        self.read.store(request.body().is_end_stream(), Relaxed);
        request.map(|body| Arriving { body, progress: self.clone() })
    }

    /// Whether the request that came last has been read to the end.
    pub(super) fn has_read(&self) -> bool {
        self.read.load(Relaxed)
    }

    /// The answer has been taken to the end.
    pub(super) fn end(&self) {
        self.answered.store(true, Relaxed);
        if let Some(last) = &mut *self.answer.lock() {
            last.written = Some(Instant::now());
        }
    }

    /// An answer is about to be written of which is kept whether it reached its client.
    pub(super) fn keep_fate(&self, fate: AnswerFate) {
        *self.answer.lock() = Some(Last { fate, written: None });
    }

    /// Whether it is kept of the answer whether it reached its client.
    pub(super) fn keeps_fate(&self) -> bool {
        self.answer.lock().is_some()
    }

    /// The connection broke. That cut an answer off if not all of it was written, or if it was only just: a client that
    /// closes a connection before it has read all of it resets it.
    pub(super) fn cut(&self) {
        if let Some(Last { fate, written }) = self.answer.lock().take()
            && written.is_none_or(|written| written.elapsed() < READ_WITHIN)
        {
            fate.cut();
        }
    }

    /// Something is being written, or nothing is left to write.
    pub(super) fn set_flushed(&self, flushed: bool) {
        self.flushed.store(flushed, Relaxed);
    }

    /// Keeps a body from the library.
    pub(super) fn keep(&self, body: Answering) {
        self.flushed.store(false, Relaxed);
        *self.streamed.lock() = Some(body);
    }

    /// Whether a body was kept and the library has written its head.
    pub(super) fn is_kept(&self) -> bool {
        self.flushed.load(Relaxed) && self.streamed.lock().is_some()
    }

    /// The body that was kept.
    pub(super) fn take(&self) -> Option<Answering> {
        self.streamed.lock().take()
    }

    /// Whether the library has nothing to do before the next request.
    pub(super) fn is_idle(&self) -> bool {
        self.answered.load(Relaxed) && self.flushed.load(Relaxed) && self.read.load(Relaxed)
    }
}

/// A request's body.
#[derive(Debug)]
pub(super) struct Arriving {
    body: Incoming,
    progress: Arc<Progress>,
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.progress.read.store(true, Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
