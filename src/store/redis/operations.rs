//! Names of operations, by which a server tells that it did one before.
//!
//! They are kept for each partition under the name of this process and of a stretch of its time, so that
//! keeping one costs a single append, and what is kept goes as a whole once no attempt can come any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::keys::Place;

/// How long names go to the same list.
const STRETCH: Duration = Duration::from_secs(8);

/// How long a list is kept: its stretch, and much longer than an operation is tried.
const KEPT: Duration = Duration::from_secs(20);

/// Names operations of this process.
#[derive(Debug)]
pub(super) struct Operations {
    whose: Arc<str>,
    began: Instant,
    last: AtomicU64,
}

/// An operation's name.
#[derive(Debug)]
pub(super) struct Operation {
    /// The name.
    pub(super) name: Bytes,
    /// The list that has it once it was done.
    pub(super) done: String,
    /// The list that has it once it was asked for again.
    pub(super) repeated: String,
}

impl Operations {
    /// Names under a name of their own.
    pub(super) fn new(whose: Arc<str>) -> Self {
        Self { whose, began: Instant::now(), last: AtomicU64::new(0) }
    }

    /// The name of this process.
    pub(super) fn whose(&self) -> Bytes {
        Bytes::copy_from_slice(self.whose.as_bytes())
    }

    /// A name for the next operation.
    pub(super) fn next(&self, place: &Place) -> Operation {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let stretch = self.began.elapsed().as_secs() / STRETCH.as_secs();
        let whose = format!("{}:{stretch}", self.whose);
        Operation {
            done: place.operations(&whose),
            repeated: place.repeats(&whose),
            name: Bytes::from(format!(",{number};")),
        }
    }

    /// How long a list is kept, in milliseconds.
    pub(super) fn remembered() -> Bytes {
        Bytes::from(KEPT.as_millis().to_string())
    }
}
