//! What the writer shares with the callers of the store.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use redb::{Database, ReadTransaction, ReadableDatabase, WriteTransaction};

use super::disk::Failure;
use crate::store::rate::Buckets;
use crate::store::watch::Topics;
use crate::types::clock::now_ms;

/// What the writer shares with the callers of the store.
#[derive(Debug)]
pub(super) struct Shared {
    /// `None` once the store was closed.
    database: RwLock<Option<Database>>,
    /// What readers see once a write has failed: the state before the commit that is under way.
    before: RwLock<Option<ReadTransaction>>,
    pub(super) topics: Topics,
    pub(super) buckets: Buckets,
    pub(super) clock: Clock,
    pub(super) failure: Failure,
}

impl Shared {
    pub(super) fn new(database: Database, failure: Failure) -> Self {
        let database = RwLock::new(Some(database));
        let before = RwLock::default();
        Self {
            database,
            before,
            topics: Topics::default(),
            buckets: Buckets::default(),
            clock: Clock::default(),
            failure,
        }
    }

    pub(super) fn database(&self) -> RwLockReadGuard<'_, Option<Database>> {
        self.database.read()
    }

    /// Begins to read the newest state, or the one before the commit that failed.
    pub(super) fn read<T>(
        &self,
        database: &Database,
        read: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        let newest = database.begin_read()?;
        // Begun before the failure was noted, it does not see what failed.
        if self.failure.get().is_none() {
            return read(&newest);
        }
        match &*self.before.read() {
            Some(before) => read(before),
            None => read(&newest),
        }
    }

    /// All that is there now, which later changes leave as it is. `None` once the store was closed, or cannot be written.
    pub(super) fn snapshot(&self) -> Result<Option<ReadTransaction>, redb::Error> {
        let snapshot = self.database().as_ref().map(ReadableDatabase::begin_read).transpose()?;
        // Begun before a failure was noted, it does not see what failed.
        Ok(snapshot.filter(|_| self.failure.get().is_none()))
    }

    /// Commits. Should that fail, readers go on to see what there was before.
    pub(super) fn commit(&self, txn: WriteTransaction) -> Result<(), redb::Error> {
        let before = match &*self.database() {
            Some(database) => Some(database.begin_read()?),
            None => None,
        };
        *self.before.write() = before;
        txn.commit()?;
        if self.failure.get().is_none() {
            *self.before.write() = None;
        }
        Ok(())
    }

    pub(super) fn take_database(&self) -> Option<Database> {
        *self.before.write() = None;
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
