//! Opens the files and brings back what was acknowledged.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use redb::{Database, DatabaseError, StorageBackend};

use super::disk::{Disk, Failure};
use super::journal::Journal;
use super::record::Record;
use super::settings::Settings;
use super::shared::Shared;
use super::tables::{FORMAT, Meta, Tables};
use super::writer::{Writer, ceiling_above};
use crate::store::OpenError;
use crate::store::lease::{Leases, Now};

/// The name of redb's file.
pub(super) const DATABASE: &str = "store.redb";

/// The name of the journal.
pub(super) const JOURNAL: &str = "store.journal";

/// Opens the store in a directory, which is created if need be. `backend` wraps the database file.
pub(super) fn open<B: StorageBackend>(
    dir: &Path,
    settings: Settings,
    backend: impl FnOnce(File) -> Result<B, DatabaseError>,
) -> Result<Writer, OpenError> {
    let failure = Failure::default();
    let result = open_files(dir, &settings, backend, failure.clone());
    let (database, mut journal, records) = result.map_err(|error| {
        let in_use = matches!(error, redb::Error::DatabaseAlreadyOpen);
        if in_use { OpenError::InUse(dir.into()) } else { failed(dir, &error) }
    })?;
    let replayed = replay(&database, records).map_err(|error| failed(dir, &error))?;
    if let Some(reason) = failure.get() {
        return Err(failed(dir, &reason));
    }
    let Some(Replayed { sequence, leases, fence_ceiling }) = replayed else {
        return Err(failed(dir, &"it was written by another version of this program"));
    };
    journal.clear();
    Ok(Writer {
        shared: Arc::new(Shared::new(database, failure)),
        settings,
        journal,
        leases,
        fence_ceiling,
        sequence,
        unsynced_since: None,
        purge_left: true,
    })
}

fn open_files<B: StorageBackend>(
    dir: &Path,
    settings: &Settings,
    backend: impl FnOnce(File) -> Result<B, DatabaseError>,
    failure: Failure,
) -> Result<(Database, Journal, Vec<Record>), redb::Error> {
    fs::create_dir_all(dir)?;
    let path = dir.join(DATABASE);
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
    let database = Database::builder()
        .set_cache_size(settings.cache_bytes)
        .set_repair_callback(|repair| {
            tracing::info!(progress = repair.progress(), "repairing the store's file after an unclean stop");
        })
        .create_with_backend(Disk::new(backend(file)?, failure))?;
    // Not before the lock on the database is held: the journal belongs to the process that holds this lock.
    let (journal, records) = Journal::open(&dir.join(JOURNAL))?;
    sync_names(dir)?;
    Ok((database, journal, records))
}

/// Makes the names of new files survive a loss of power.
fn sync_names(dir: &Path) -> std::io::Result<()> {
    if cfg!(unix) {
        File::open(dir)?.sync_all()?;
        // The directory above may be closed to us; then it was not us who made this one.
        let above = dir.canonicalize()?.parent().map(File::open);
        if let Some(Ok(above)) = above {
            above.sync_all()?;
        }
    }
    Ok(())
}

/// Where the writer continues.
struct Replayed {
    sequence: u64,
    leases: Leases,
    fence_ceiling: u64,
}

/// Applies the records that redb does not hold yet, in one commit with a sync. `None` if the tables
/// are laid out otherwise.
fn replay(database: &Database, records: Vec<Record>) -> Result<Option<Replayed>, redb::Error> {
    let txn = database.begin_write()?;
    let mut tables = Tables::open(&txn)?;
    match tables.meta(Meta::Format)? {
        0 => tables.set_meta(Meta::Format, FORMAT)?,
        FORMAT => {}
        _ => return Ok(None),
    }
    let mut sequence = tables.meta(Meta::Applied)?;
    for record in records {
        // Records that redb holds stay behind when the journal could not be emptied.
        if record.sequence == sequence + 1 {
            for (partition, writes) in &record.changes {
                tables.apply(partition, writes, record.now)?;
            }
            sequence = record.sequence;
        }
    }
    tables.set_meta(Meta::Applied, sequence)?;
    let leases = Leases::after(tables.meta(Meta::FenceCeiling)?);
    let fence_ceiling = ceiling_above(leases.next_fence(Now::read()));
    tables.set_meta(Meta::FenceCeiling, fence_ceiling)?;
    drop(tables);
    txn.commit()?;
    Ok(Some(Replayed { sequence, leases, fence_ceiling }))
}

fn failed(dir: &Path, reason: &dyn Display) -> OpenError {
    OpenError::Failed { dir: dir.into(), reason: reason.to_string() }
}
