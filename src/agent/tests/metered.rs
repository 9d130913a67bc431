//! A store in memory that counts what it is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::store::Store;
use crate::store::layer::StoreLayer;
use crate::store::memory::MemoryStore;

/// The memory store behind counters.
#[derive(Debug, Default)]
pub(super) struct Metered {
    inner: MemoryStore,
    calls: AtomicUsize,
    bytes: AtomicUsize,
    largest: AtomicUsize,
}

impl Metered {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Calls and bytes, to and fro, since this was asked last.
    pub(super) fn cost(&self) -> (usize, usize) {
        (self.calls.swap(0, Relaxed), self.bytes.swap(0, Relaxed))
    }

    /// The most bytes of one call.
    pub(super) fn largest(&self) -> usize {
        self.largest.load(Relaxed)
    }
}

impl StoreLayer for Metered {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn answered(&self, bytes: usize) {
        self.calls.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.largest.fetch_max(bytes, Relaxed);
    }
}
