//! What lies where in redb, and how a transaction changes it.
//!
//! | table | key | value |
//! | --- | --- | --- |
//! | `documents` | partition, key | version, expiry, value |
//! | `logs` | partition, log | id, number of the last entry, expiry |
//! | `entries` | id of the log, number | entry |
//! | `counters` | partition, counter | value, never 0 |
//! | `counter_expiries` | partition, counter | expiry, for counters that have one |
//! | `expiries` | expiry, kind, partition, name | nothing |
//! | `removed` | id of a removed log | nothing |
//! | `meta` | name | number |
//!
//! Keys are redb's tuples, whose texts carry their lengths: no partition and name can be mistaken for
//! another pair. An expiry is in ms since the Unix epoch, [`NEVER`] for none. Everything that will
//! expire has one row in `expiries`.
//!
//! A log's entries hang on an id that is never used again, so that removing a log of any length is
//! one row; [`Tables::purge`] removes the entries later, a few at a time.

use std::time::Duration;

use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};

use crate::store::{Key, Partition, Write};

pub(super) const DOCUMENTS: TableDefinition<(&str, &str), (u64, u64, &[u8])> = TableDefinition::new("documents");
pub(super) const LOGS: TableDefinition<(&str, &str), (u64, u64, u64)> = TableDefinition::new("logs");
pub(super) const ENTRIES: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("entries");
pub(super) const COUNTERS: TableDefinition<(&str, &str), i64> = TableDefinition::new("counters");
pub(super) const COUNTER_EXPIRIES: TableDefinition<(&str, &str), u64> = TableDefinition::new("counter_expiries");
pub(super) const EXPIRIES: TableDefinition<(u64, u8, &str, &str), ()> = TableDefinition::new("expiries");
pub(super) const REMOVED: TableDefinition<u64, ()> = TableDefinition::new("removed");
pub(super) const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// The layout above, and that of the journal. A file of another one is refused.
pub(super) const FORMAT: u64 = 2;

/// An expiry that no clock reaches.
pub(super) const NEVER: u64 = u64::MAX;

/// What the kinds in `expiries` stand for.
const DOCUMENT: u8 = 0;
const LOG: u8 = 1;
const COUNTER: u8 = 2;

/// The numbers in `meta`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Meta {
    /// [`FORMAT`].
    Format,
    /// The sequence number of the last record whose changes are in the tables.
    Applied,
    /// No fence above this was given out.
    FenceCeiling,
    /// The greatest id of a log.
    LastLog,
}

impl Meta {
    fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Applied => "applied",
            Self::FenceCeiling => "fence_ceiling",
            Self::LastLog => "last_log",
        }
    }
}

/// All tables, open for writing.
pub(super) struct Tables<'txn> {
    documents: Table<'txn, (&'static str, &'static str), (u64, u64, &'static [u8])>,
    logs: Table<'txn, (&'static str, &'static str), (u64, u64, u64)>,
    entries: Table<'txn, (u64, u64), &'static [u8]>,
    counters: Table<'txn, (&'static str, &'static str), i64>,
    counter_expiries: Table<'txn, (&'static str, &'static str), u64>,
    expiries: Table<'txn, (u64, u8, &'static str, &'static str), ()>,
    removed: Table<'txn, u64, ()>,
    meta: Table<'txn, &'static str, u64>,
}

impl<'txn> Tables<'txn> {
    /// Opens the tables, creates those that are missing.
    pub(super) fn open(txn: &'txn WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            documents: txn.open_table(DOCUMENTS)?,
            logs: txn.open_table(LOGS)?,
            entries: txn.open_table(ENTRIES)?,
            counters: txn.open_table(COUNTERS)?,
            counter_expiries: txn.open_table(COUNTER_EXPIRIES)?,
            expiries: txn.open_table(EXPIRIES)?,
            removed: txn.open_table(REMOVED)?,
            meta: txn.open_table(META)?,
        })
    }

    /// Makes writes that were decided upon, at the time `now`.
    pub(super) fn apply(&mut self, partition: &Partition, writes: &[Write], now: u64) -> Result<(), redb::Error> {
        let partition = partition.as_str();
        for write in writes {
            match write {
                Write::Put { key, value, ttl } => self.put(partition, key, value, expiry(now, *ttl), now)?,
                Write::Delete { key } => self.delete(partition, key)?,
                Write::Append { log, entries, .. } => self.append(partition, log, entries, now)?,
                Write::DeleteLog { log } => self.delete_log(partition, log)?,
                Write::ExpireLog { log, ttl } => self.expire_log(partition, log, expiry(now, Some(*ttl)), now)?,
                Write::Add { counter, delta, .. } => self.add(partition, counter, *delta, now)?,
                Write::DeleteCounter { counter } => self.delete_counter(partition, counter)?,
                Write::ExpireCounter { counter, ttl } => {
                    self.expire_counter(partition, counter, expiry(now, Some(*ttl)), now)?;
                }
            }
        }
        Ok(())
    }

    /// The version of a document that did not expire, or 0.
    pub(super) fn version(&self, partition: &str, key: &str, now: u64) -> Result<u64, redb::Error> {
        let found = self.documents.get((partition, key))?;
        Ok(found.map_or(0, |row| {
            let (version, expiry, _) = row.value();
            if expiry <= now { 0 } else { version }
        }))
    }

    /// The number of the last entry of a log that did not expire, or 0.
    pub(super) fn head(&self, partition: &str, log: &str, now: u64) -> Result<u64, redb::Error> {
        let found = self.logs.get((partition, log))?;
        Ok(found.map_or(0, |row| {
            let (_, head, expiry) = row.value();
            if expiry <= now { 0 } else { head }
        }))
    }

    /// The value of a counter that did not expire, or 0.
    pub(super) fn counter(&self, partition: &str, counter: &str, now: u64) -> Result<i64, redb::Error> {
        let found = self.counters.get((partition, counter))?.map_or(0, |row| row.value());
        Ok(if found != 0 && self.counter_expiry(partition, counter)? <= now { 0 } else { found })
    }

    /// A number that was set, or 0.
    pub(super) fn meta(&self, meta: Meta) -> Result<u64, redb::Error> {
        Ok(self.meta.get(meta.name())?.map_or(0, |row| row.value()))
    }

    /// Sets a number.
    pub(super) fn set_meta(&mut self, meta: Meta, number: u64) -> Result<(), redb::Error> {
        self.meta.insert(meta.name(), number)?;
        Ok(())
    }

    /// Removes at most `limit` rows of what expired or was removed; the number of rows removed.
    pub(super) fn purge(&mut self, now: u64, limit: usize) -> Result<usize, redb::Error> {
        let mut purged = 0;
        while purged < limit
            && let Some((expiry, kind, partition, name)) = self.first_expiry(now)?
        {
            match kind {
                LOG => self.delete_log(&partition, &name)?,
                COUNTER => self.delete_counter(&partition, &name)?,
                _ => self.delete(&partition, &name)?,
            }
            // Gone already, unless the row belongs to nothing.
            self.expiries.remove((expiry, kind, &*partition, &*name))?;
            purged += 1;
        }
        while purged < limit
            && let Some(id) = self.first_removed()?
        {
            purged += self.purge_entries(id, limit - purged)?;
        }
        Ok(purged)
    }

    fn put(&mut self, partition: &str, key: &str, value: &[u8], at: u64, now: u64) -> Result<(), redb::Error> {
        let version = self.version(partition, key, now)? + 1;
        let replaced = self.documents.insert((partition, key), (version, at, value))?;
        let before = replaced.map_or(NEVER, |row| row.value().1);
        self.move_expiry(before, at, DOCUMENT, partition, key)
    }

    fn delete(&mut self, partition: &str, key: &str) -> Result<(), redb::Error> {
        let removed = self.documents.remove((partition, key))?;
        let before = removed.map_or(NEVER, |row| row.value().1);
        self.move_expiry(before, NEVER, DOCUMENT, partition, key)
    }

    fn append(
        &mut self,
        partition: &str,
        log: &str,
        entries: &[impl AsRef<[u8]>],
        now: u64,
    ) -> Result<(), redb::Error> {
        if entries.is_empty() {
            return Ok(());
        }
        let found = self.logs.get((partition, log))?.map(|row| row.value());
        let (id, mut head, at) = match found {
            Some((id, head, at)) if now < at => (id, head, at),
            Some(_) | None => {
                self.delete_log(partition, log)?;
                let id = self.meta(Meta::LastLog)? + 1;
                self.set_meta(Meta::LastLog, id)?;
                (id, 0, NEVER)
            }
        };
        for entry in entries {
            head += 1;
            self.entries.insert((id, head), entry.as_ref())?;
        }
        self.logs.insert((partition, log), (id, head, at))?;
        Ok(())
    }

    fn delete_log(&mut self, partition: &str, log: &str) -> Result<(), redb::Error> {
        let removed = self.logs.remove((partition, log))?.map(|row| row.value());
        if let Some((id, _, at)) = removed {
            self.removed.insert(id, ())?;
            self.move_expiry(at, NEVER, LOG, partition, log)?;
        }
        Ok(())
    }

    fn expire_log(&mut self, partition: &str, log: &str, at: u64, now: u64) -> Result<(), redb::Error> {
        let found = self.logs.get((partition, log))?.map(|row| row.value());
        if let Some((id, head, before)) = found
            && now < before
        {
            self.logs.insert((partition, log), (id, head, at))?;
            self.move_expiry(before, at, LOG, partition, log)?;
        }
        Ok(())
    }

    fn add(&mut self, partition: &str, counter: &str, delta: i64, now: u64) -> Result<(), redb::Error> {
        // Counters end where numbers do rather than fail the transaction half way.
        let before = self.counter(partition, counter, now)?;
        let value = before.saturating_add(delta);
        if before == 0 || value == 0 {
            self.delete_counter(partition, counter)?;
        }
        if value != 0 {
            self.counters.insert((partition, counter), value)?;
        }
        Ok(())
    }

    fn delete_counter(&mut self, partition: &str, counter: &str) -> Result<(), redb::Error> {
        self.counters.remove((partition, counter))?;
        let removed = self.counter_expiries.remove((partition, counter))?;
        let before = removed.map_or(NEVER, |row| row.value());
        self.move_expiry(before, NEVER, COUNTER, partition, counter)
    }

    fn expire_counter(&mut self, partition: &str, counter: &str, at: u64, now: u64) -> Result<(), redb::Error> {
        if self.counter(partition, counter, now)? == 0 {
            return Ok(());
        }
        let before = self.counter_expiry(partition, counter)?;
        if at == NEVER {
            self.counter_expiries.remove((partition, counter))?;
        } else {
            self.counter_expiries.insert((partition, counter), at)?;
        }
        self.move_expiry(before, at, COUNTER, partition, counter)
    }

    fn counter_expiry(&self, partition: &str, counter: &str) -> Result<u64, redb::Error> {
        Ok(self.counter_expiries.get((partition, counter))?.map_or(NEVER, |row| row.value()))
    }

    fn move_expiry(&mut self, from: u64, to: u64, kind: u8, partition: &str, name: &str) -> Result<(), redb::Error> {
        if from != NEVER && from != to {
            self.expiries.remove((from, kind, partition, name))?;
        }
        if to != NEVER && from != to {
            self.expiries.insert((to, kind, partition, name), ())?;
        }
        Ok(())
    }

    fn first_expiry(&self, now: u64) -> Result<Option<(u64, u8, Key, Key)>, redb::Error> {
        let first = self.expiries.first()?;
        Ok(first.and_then(|(row, _)| {
            let (expiry, kind, partition, name) = row.value();
            (expiry <= now).then(|| (expiry, kind, partition.into(), name.into()))
        }))
    }

    fn first_removed(&self) -> Result<Option<u64>, redb::Error> {
        Ok(self.removed.first()?.map(|(id, _)| id.value()))
    }

    /// Removes at most `limit` entries of a removed log, and the last trace of it with the last one.
    fn purge_entries(&mut self, id: u64, limit: usize) -> Result<usize, redb::Error> {
        let mut numbers = Vec::new();
        for row in self.entries.range((id, 0)..=(id, u64::MAX))?.take(limit) {
            numbers.push(row?.0.value().1);
        }
        for number in &numbers {
            self.entries.remove((id, *number))?;
        }
        if numbers.len() < limit {
            self.removed.remove(id)?;
        }
        Ok(numbers.len().max(1))
    }
}

/// When something put now expires.
fn expiry(now: u64, ttl: Option<Duration>) -> u64 {
    ttl.map_or(NEVER, |ttl| now.saturating_add(millis(ttl)))
}

/// A duration in whole ms, rounded up: only nothing is nothing.
pub(super) fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(NEVER)
}

/// How many rows there are, by table, without `meta` and empty tables.
#[cfg(test)]
pub(super) fn rows(txn: &redb::ReadTransaction) -> Result<Vec<(&'static str, u64)>, redb::Error> {
    use redb::ReadableTableMetadata;
    let mut rows = vec![
        ("documents", txn.open_table(DOCUMENTS)?.len()?),
        ("logs", txn.open_table(LOGS)?.len()?),
        ("entries", txn.open_table(ENTRIES)?.len()?),
        ("counters", txn.open_table(COUNTERS)?.len()?),
        ("counter_expiries", txn.open_table(COUNTER_EXPIRIES)?.len()?),
        ("expiries", txn.open_table(EXPIRIES)?.len()?),
        ("removed", txn.open_table(REMOVED)?.len()?),
    ];
    rows.retain(|(_, rows)| *rows > 0);
    Ok(rows)
}
