//! How often the store syncs, and what it keeps in memory.

use std::time::Duration;

/// Settings that tests change.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// How long a change may stay without a sync.
    pub(super) sync_after: Duration,
    /// How long the journal may grow, in bytes.
    pub(super) journal_bytes: u64,
    /// How much of the file redb keeps in memory, in bytes.
    pub(super) cache_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { sync_after: Duration::from_secs(1), journal_bytes: 1 << 20, cache_bytes: 64 << 20 }
    }
}
