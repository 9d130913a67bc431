//! Names of operations, by which the scripts recognise an operation that they carried out before.
//!
//! Redis keeps the names in lists, one for each partition, process and stretch of time. So keeping a name costs a
//! single append, and a list expires as a whole once no attempt at its operations can arrive any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::keys::KeySpace;

/// For how long a process adds names to the same list.
const STRETCH: Duration = Duration::from_secs(8);

/// How long a list is kept: its stretch, and then much longer than an operation is retried.
const KEPT: Duration = Duration::from_secs(20);

/// Names the operations of this process.
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
    /// The list that contains the name once the operation was carried out.
    pub(super) done: String,
    /// The list that contains the name once the operation was repeated.
    pub(super) repeated: String,
}

impl Operations {
    /// Names for the process of this name.
    pub(super) fn new(whose: Arc<str>) -> Self {
        Self { whose, began: Instant::now(), last: AtomicU64::new(0) }
    }

    /// The name of this process.
    pub(super) fn whose(&self) -> Bytes {
        Bytes::copy_from_slice(self.whose.as_bytes())
    }

    /// A name for the next operation.
    pub(super) fn next(&self, space: &KeySpace) -> Operation {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let stretch = self.began.elapsed().as_secs() / STRETCH.as_secs();
        let whose = format!("{}:{stretch}", self.whose);
        Operation {
            done: space.operations(&whose),
            repeated: space.repeats(&whose),
            name: Bytes::from(format!(",{number};")),
        }
    }

    /// How long a list is kept, in milliseconds.
    pub(super) fn remembered() -> Bytes {
        Bytes::from(KEPT.as_millis().to_string())
    }
}
