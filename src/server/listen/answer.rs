//! What the HTTP library gets for the body of a response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::answering::Answering;
use super::progress::Progress;

/// What the HTTP library gets for a body.
#[derive(Debug)]
pub(super) enum Answer {
    /// The body, and what tells the connection's progress of its end.
    Here { body: Answering, _told: Told },
    /// A body that is written in chunks by `streamed`, without the library. It never says anything.
    Elsewhere,
}

/// Tells once it is dropped.
#[derive(Debug)]
pub(super) struct Told(pub(super) Arc<Progress>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut *self {
            Self::Here { body, .. } => Pin::new(body).poll_frame(context),
            Self::Elsewhere => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Here { body, .. } => body.is_end_stream(),
            Self::Elsewhere => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Here { body, .. } => body.size_hint(),
            Self::Elsewhere => SizeHint::default(),
        }
    }
}
