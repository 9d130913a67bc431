//! How long changes stay in the journal alone, and what the store keeps in memory.

use std::time::Duration;

/// Settings that tests change.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// How long a change may stay in the journal before redb syncs it: as long a change that was not synced may be
    /// lost with the power.
    pub(super) sync_after: Duration,
    /// How long the journal may grow, in bytes. redb syncs once half of it is used, so that there is room for the
    /// next batch. A start after a kill applies no more than this.
    pub(super) journal_bytes: u64,
    /// How much of the file redb keeps in memory, in bytes.
    pub(super) cache_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { sync_after: Duration::from_secs(1), journal_bytes: 4 << 20, cache_bytes: 64 << 20 }
    }
}
