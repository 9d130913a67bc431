//! Copies all tables of one moment into a new database file.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{Database, Key, ReadTransaction, ReadableTable, TableDefinition, Value, WriteTransaction};

use super::start::DATABASE;
use super::tables::{COUNTER_EXPIRIES, COUNTERS, DOCUMENTS, ENTRIES, EXPIRIES, LOGS, META, REMOVED};

/// How much of the new file is kept in memory.
const CACHE_BYTES: usize = 8 << 20;

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    #[error("{0}")]
    Database(#[from] redb::Error),
    #[error("{0}")]
    Files(#[from] std::io::Error),
    #[error("the store cannot be read")]
    Unreadable,
    #[error("the store is closed")]
    Stopped,
    #[error("another server keeps its copies there")]
    Taken,
}

/// What goes on while a copy is made: it ends early if the store closes.
pub(super) struct Copying<'a> {
    pub(super) from: &'a ReadTransaction,
    pub(super) stopped: &'a AtomicBool,
}

impl Copying<'_> {
    /// Copies everything into a directory that is there and empty, and syncs it. Returns the size of the file.
    ///
    /// The copy needs no journal: redb reads what it has not synced yet as well.
    pub(super) fn copy_into(&self, directory: &Path) -> Result<u64, CopyError> {
        let path = directory.join(DATABASE);
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(&path).map_err(redb::Error::from)?;
        let txn = database.begin_write().map_err(redb::Error::from)?;
        self.copy(&txn, DOCUMENTS)?;
        self.copy(&txn, LOGS)?;
        self.copy(&txn, ENTRIES)?;
        self.copy(&txn, COUNTERS)?;
        self.copy(&txn, COUNTER_EXPIRIES)?;
        self.copy(&txn, EXPIRIES)?;
        self.copy(&txn, REMOVED)?;
        self.copy(&txn, META)?;
        txn.commit().map_err(redb::Error::from)?;
        database.close().map_err(redb::Error::from)?;
        File::open(directory)?.sync_all()?;
        Ok(std::fs::metadata(path)?.len())
    }

    fn copy<K: Key + 'static, V: Value + 'static>(
        &self,
        txn: &WriteTransaction,
        table: TableDefinition<'_, K, V>,
    ) -> Result<(), CopyError> {
        let from = self.from.open_table(table).map_err(redb::Error::from)?;
        let mut to = txn.open_table(table).map_err(redb::Error::from)?;
        for row in from.iter().map_err(redb::Error::from)? {
            if self.stopped.load(Ordering::Relaxed) {
                return Err(CopyError::Stopped);
            }
            let (key, value) = row.map_err(redb::Error::from)?;
            to.insert(key.value(), value.value()).map_err(redb::Error::from)?;
        }
        Ok(())
    }
}
