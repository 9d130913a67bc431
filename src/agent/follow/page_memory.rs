//! The memory that is counted for what a reader has read of a log and its client has not taken yet.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Where a reader takes memory for one page before it reads the page.
#[derive(Debug)]
pub struct PageMemory {
    places: Vec<Arc<Semaphore>>,
    units: u32,
    held: Vec<OwnedSemaphorePermit>,
}

impl PageMemory {
    /// So many units in each of these places, in this order.
    #[must_use]
    pub fn new(places: Vec<Arc<Semaphore>>, units: u32) -> Self {
        Self { places, units, held: Vec::new() }
    }

    /// Waits for memory for a page.
    pub(super) async fn take(&mut self) {
        if self.is_taken() {
            return;
        }
        let mut taken = Vec::with_capacity(self.places.len());
        for place in &self.places {
            // It is never closed.
            taken.extend(place.clone().acquire_many_owned(self.units).await);
        }
        self.held = taken;
    }

    /// Whether there is memory for a page.
    pub(super) fn is_taken(&self) -> bool {
        !self.held.is_empty()
    }

    /// The page has gone out.
    pub(super) fn give_back(&mut self) {
        self.held.clear();
    }
}
