//! How far a connection is with the request that it answers, which the HTTP library does not tell.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;

use super::answering::Answering;

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
}

impl Progress {
    /// The library gets the connection, to which a request is coming.
    pub(super) fn resume(&self) {
        self.answered.store(false, Relaxed);
    }

    /// A request has come.
    pub(super) fn begin(self: &Arc<Self>, request: hyper::Request<Incoming>) -> hyper::Request<Arriving> {
        self.answered.store(false, Relaxed);
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
