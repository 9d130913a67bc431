//! What the writer shares with the callers of the store.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use redb::Database;

use super::disk::Failure;
use crate::store::rate::Buckets;
use crate::store::watch::Topics;
use crate::types::clock::now_ms;

/// What the writer shares with the callers of the store.
#[derive(Debug)]
pub(super) struct Shared {
    /// `None` once the store was closed.
    database: RwLock<Option<Database>>,
    pub(super) topics: Topics,
    pub(super) buckets: Buckets,
    pub(super) clock: Clock,
    pub(super) failure: Failure,
}

impl Shared {
    pub(super) fn new(database: Database, failure: Failure) -> Self {
        let database = RwLock::new(Some(database));
        Self { database, topics: Topics::default(), buckets: Buckets::default(), clock: Clock::default(), failure }
    }

    pub(super) fn database(&self) -> RwLockReadGuard<'_, Option<Database>> {
        self.database.read()
    }

    pub(super) fn take_database(&self) -> Option<Database> {
        self.database.write().take()
    }
}

/// The wall clock, by which expiries are stored. It does not go back while the store is open, so what has expired stays
/// expired.
#[derive(Debug, Default)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    /// In ms since the Unix epoch.
    pub(super) fn now(&self) -> u64 {
        let now = now_ms();
        self.0.fetch_max(now, Ordering::Relaxed).max(now)
    }
}
