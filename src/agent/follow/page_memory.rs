//! The memory that is counted for what a reader has read of a log and its client has not taken yet.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// A wait for memory in one place. It is never closed.
type Wait = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync>>;

/// Where a reader takes memory for one page before it reads the page.
pub struct PageMemory {
    places: Vec<Arc<Semaphore>>,
    units: u32,
    held: Vec<OwnedSemaphorePermit>,
    /// The wait for the next place. It outlasts a call of [`take`](Self::take) that is dropped, so that the reader keeps
    /// its turn.
    wait: Option<Wait>,
    /// Whether a page was read and goes out.
    has_page: bool,
}

impl PageMemory {
    /// So many units in each of these places, in this order.
    #[must_use]
    pub fn new(places: Vec<Arc<Semaphore>>, units: u32) -> Self {
        Self { places, units, held: Vec::new(), wait: None, has_page: false }
    }

    /// The same for another reader, which has taken nothing yet.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::new(self.places.clone(), self.units)
    }

    /// Waits for memory for a page. A call that is dropped is continued by the next.
    pub(super) async fn take(&mut self) {
        while let Some(place) = self.places.get(self.held.len()) {
            let units = self.units;
            let wait = self.wait.get_or_insert_with(|| Box::pin(place.clone().acquire_many_owned(units)));
            let taken = wait.await;
            self.wait = None;
            let Ok(taken) = taken else { return };
            self.held.push(taken);
        }
    }

    /// Whether there is memory for a page.
    pub(super) fn is_taken(&self) -> bool {
        self.held.len() == self.places.len()
    }

    /// Records were read, which go out next. Few of them need no memory, and then the reader waits for none any more.
    pub(super) fn note_page(&mut self) {
        if self.is_taken() {
            self.has_page = true;
        } else {
            self.give_back();
        }
    }

    /// The page, if there was one, has gone out.
    pub(super) fn give_page_back(&mut self) {
        if self.has_page {
            self.give_back();
        }
    }

    /// There is no page, and none is to be read.
    pub(super) fn give_back(&mut self) {
        (self.has_page, self.wait) = (false, None);
        self.held.clear();
    }
}

impl fmt::Debug for PageMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageMemory").field("held", &self.held.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_reader_that_stops_waiting_for_a_moment_keeps_its_turn() {
        let places = || vec![Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1))];
        let places = places();
        let [mut first, mut second, mut third] = [(); 3].map(|()| PageMemory::new(places.clone(), 1));
        assert!(first.take().now_or_never().is_some() && first.is_taken());
        assert!(second.take().now_or_never().is_none() && third.take().now_or_never().is_none());
        first.note_page();
        first.give_page_back();
        assert!(third.take().now_or_never().is_none(), "the second reader came first");
        assert!(second.take().now_or_never().is_some() && second.is_taken());
        second.give_page_back();
        assert!(third.take().now_or_never().is_none(), "it has read no page yet");
        second.give_back();
        assert!(third.take().now_or_never().is_some());
    }
}
