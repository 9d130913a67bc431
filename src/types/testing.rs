//! For tests: what several parts count alike.

use std::cell::Cell;
use std::hash::{Hash, Hasher};

thread_local! {
    static COMPARISONS: Cell<usize> = const { Cell::new(0) };
}

/// A key that counts how often two of its kind are compared.
#[derive(Debug, Clone, Copy, Eq)]
pub(crate) struct CountedKey(pub(crate) usize);

impl CountedKey {
    /// How often this thread has compared two of them since it last asked.
    pub(crate) fn comparisons() -> usize {
        COMPARISONS.take()
    }
}

impl PartialEq for CountedKey {
    fn eq(&self, other: &Self) -> bool {
        COMPARISONS.set(COMPARISONS.get() + 1);
        self.0 == other.0
    }
}

impl Hash for CountedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
