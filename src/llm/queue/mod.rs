//! A bound on the calls that are under way at one upstream. Further calls wait for their turn, which is fair between tenants.
//!
//! | file | holds |
//! | --- | --- |
//! | `fair` | the queue, which is fair between tenants (pure) |
//! | `slots` | room for so many calls at once |
//!
//! A call that waits has sent nothing, and its request is not encoded yet. It waits until the deadline of its request at
//! most. A call holds its slot until its stream is dropped, and a pause between two attempts holds none.

mod fair;
mod slots;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_stream::stream;
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, timeout_at};

pub use self::slots::Slots;
use self::slots::{Entry, Slot};
use super::offered::OfferedModel;
use super::{Delta, DeltaStream, Model, ModelError, ModelErrorKind, ModelRequest, Unsupported};
use crate::types::Message;
use crate::types::sampling::Sampling;
use crate::types::tool::WrittenCalls;

/// A model around another one, which is asked by so many calls at once as there are slots.
#[derive(Debug)]
pub struct Queued {
    upstream: Arc<str>,
    inner: Arc<dyn Model>,
    slots: Arc<Slots>,
}

impl Queued {
    /// Asks `inner`, the model of the upstream of this name, where there is a slot.
    #[must_use]
    pub fn new(upstream: &str, inner: Arc<dyn Model>, slots: Arc<Slots>) -> Self {
        Self { upstream: upstream.into(), inner, slots }
    }
}

impl Model for Queued {
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        self.inner.list_models()
    }

    fn stream(&self, request: ModelRequest) -> DeltaStream {
        let waiting = match self.slots.enter(&request.tenant) {
            Entry::Slot(slot) => return Box::pin(Holding { deltas: self.inner.stream(request), _slot: slot }),
            Entry::Waiting(waiting) => waiting,
        };
        let (upstream, inner) = (self.upstream.clone(), self.inner.clone());
        Box::pin(stream! {
            let since = Instant::now();
            yield Ok(Delta::Queued);
            let Ok(slot) = timeout_at(request.deadline, waiting.turn()).await else {
                let message = format!("upstream {upstream} had no room for another call until the time for it was up");
                yield Err(ModelError::new(ModelErrorKind::Timeout, message));
                return;
            };
            yield Ok(Delta::Dequeued { waited: since.elapsed() });
            let mut deltas = Holding { deltas: inner.stream(request), _slot: slot };
            while let Some(delta) = deltas.next().await {
                yield delta;
            }
        })
    }

    fn has_elsewhere(&self) -> bool {
        self.inner.has_elsewhere()
    }

    fn written_calls(&self) -> WrittenCalls {
        self.inner.written_calls()
    }

    fn may_answer_in_one_piece(&self) -> bool {
        self.inner.may_answer_in_one_piece()
    }

    fn refuses(&self, sampling: &Sampling, messages: &[Message]) -> Option<Unsupported> {
        self.inner.refuses(sampling, messages)
    }

    fn refuses_part(&self, message: &Message) -> Option<(usize, String)> {
        self.inner.refuses_part(message)
    }

    fn unsent<'s>(&self, model: &str, sampling: &'s Sampling) -> Vec<&'s str> {
        self.inner.unsent(model, sampling)
    }
}

/// An answer that holds a slot. Its connection is closed before the slot is free.
struct Holding {
    deltas: DeltaStream,
    _slot: Slot,
}

impl Stream for Holding {
    type Item = Result<Delta, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.deltas.poll_next_unpin(context)
    }
}
