//! The one thread that changes the store. It takes all jobs that wait, parts them into those that need a sync and those
//! that are done before it, decides and applies each of these batches in order, makes it durable with one commit, and only
//! then answers its jobs.
//!
//! A batch goes to the journal with one `write`, which is synced if a job of the batch asks for that, and then to redb
//! without a sync: one sync of one file for all jobs that waited. redb syncs once the journal is a second old or half
//! full, see [`Settings`]; this happens after the batch was answered, and later batches wait for it. The journal is then
//! written from its beginning again. A batch for which the journal has no room is synced by redb instead. So streamed
//! text never costs a sync of its own, and the journal stays short.
//!
//! The thread also has the leases, in memory. So a lease is granted only after every change of its partition can be read that
//! its former holder made.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use std::vec::IntoIter;

use redb::WriteTransaction;
use tokio::time::Instant;

use super::job::{Done, Job, Request, by_durability, drain};
use super::journal::Journal;
use super::record::{Encoder, Salt};
use super::settings::Settings;
use super::shared::Shared;
use super::tables::{Meta, Tables};
use crate::store::decide::{CurrentState, decide};
use crate::store::lease::{Leases, Now};
use crate::store::{CommitError, Fence, Key, Partition, Tx, Unavailable};

/// The most jobs in one batch.
const BATCH: usize = 1024;

/// How many rows a batch purges in addition to two for each of its jobs.
const PURGED_PER_BATCH: usize = 64;

/// How many rows are purged at once while there are no jobs.
const PURGED_AT_REST: usize = 1024;

/// How long to wait for a job while there is something to purge.
const PURGE_PAUSE: Duration = Duration::from_millis(10);

/// How far ahead of the fences given out their ceiling is set, in microseconds: one sync an hour.
const FENCES_AHEAD: u64 = 3_600_000_000;

/// The state of the thread.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) settings: Settings,
    pub(super) journal: Journal,
    pub(super) leases: Leases,
    /// No fence above this may be given out before a greater ceiling is synced.
    pub(super) fence_ceiling: u64,
    /// The sequence number of the last record.
    pub(super) sequence: u64,
    /// When the first change was made that redb has not synced.
    pub(super) unsynced_since: Option<Instant>,
    /// Whether the last purge may have left something.
    pub(super) purge_left: bool,
}

/// Why a batch was not done.
pub(super) enum Stop {
    /// Nothing of the batch happened; a later batch may succeed.
    Refused(Unavailable),
    /// It is unknown how much of the batch happened; no other batch may follow.
    Broken(String),
}

impl<E: Into<redb::Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Broken(error.into().to_string())
    }
}

impl Writer {
    /// Does jobs until it is asked to close or the store is gone.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        loop {
            match self.wait(requests) {
                Ok(first) => {
                    let (jobs, close) = drain(first, requests, BATCH);
                    for batch in by_durability(jobs).into_iter().filter(|batch| !batch.is_empty()) {
                        self.perform(batch);
                    }
                    if self.flush_due() {
                        self.settle(PURGED_PER_BATCH);
                    }
                    if let Some(answer) = close {
                        self.close();
                        // The receiver is gone if the store was dropped.
                        let _ = answer.send(());
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.settle(PURGED_AT_REST),
                Err(RecvTimeoutError::Disconnected) => return self.close(),
            }
        }
    }

    /// Waits for a job, at most until a sync or a purge is due.
    fn wait(&self, requests: &Receiver<Request>) -> Result<Request, RecvTimeoutError> {
        let pause = match self.unsynced_since {
            _ if self.shared.failure.get().is_some() => None,
            Some(since) => Some(self.settings.sync_after.saturating_sub(since.elapsed())),
            None => self.purge_left.then_some(PURGE_PAUSE),
        };
        match pause {
            Some(pause) => requests.recv_timeout(pause),
            None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    /// Does a batch and answers its jobs. An error leaves jobs undone, which are dropped; their callers read the reason
    /// from [`Shared::failure`], so it is set before they are dropped.
    pub(super) fn perform(&mut self, batch: Vec<Job>) {
        let mut done = Vec::with_capacity(batch.len());
        let mut batch = batch.into_iter();
        let outcome = match self.shared.failure.get() {
            Some(reason) => Err(Unavailable(reason.to_owned())),
            None => self.try_perform(&mut batch, &mut done).map_err(|stop| self.judge(stop)),
        };
        for done in done {
            done.answer(&outcome, &self.shared.topics);
        }
    }

    fn try_perform(&mut self, batch: &mut IntoIter<Job>, done: &mut Vec<Done>) -> Result<(), Stop> {
        let (now, lease_now) = (self.shared.clock.now(), Now::read());
        if batch.as_slice().iter().any(|job| matches!(job, Job::Acquire(..))) {
            self.raise_fence_ceiling(lease_now)?;
        }
        let purged = PURGED_PER_BATCH + 2 * batch.len();
        let txn = self.begin()?;
        let mut tables = Tables::open(&txn)?;
        for job in batch {
            done.push(match job {
                Job::Commit(tx, answer) => match self.change(&mut tables, &tx, now) {
                    Ok(result) => Done::Commit(tx, result, answer),
                    Err(stop) => {
                        done.push(Done::Commit(tx, Ok(()), answer));
                        return Err(stop);
                    }
                },
                Job::Acquire(partition, lease, ttl, answer) => {
                    Done::Acquire(self.leases.acquire(&partition, &lease, ttl, lease_now), answer)
                }
                Job::Renew(partition, lease, fence, ttl, answer) => {
                    Done::Renew(self.leases.renew(&partition, &lease, fence, ttl, lease_now), answer)
                }
                Job::Release(partition, lease, fence, answer) => {
                    self.leases.release(&partition, &lease, fence);
                    Done::Release(answer)
                }
            });
        }
        let changed = done.iter().any(Done::changed);
        if changed {
            self.purge_left = tables.purge(now, purged)? == purged;
            tables.set_meta(Meta::Applied, self.sequence + 1)?;
        }
        drop(tables);
        if changed {
            self.make_durable(txn, done, now)?;
        } else {
            txn.abort()?;
        }
        self.release_leases(done);
        Ok(())
    }

    /// Releases the leases that were to be released with the changes of a batch, which happened.
    fn release_leases(&mut self, done: &[Done]) {
        for done in done {
            if let Done::Commit(Tx { partition, releases: Some(released), .. }, Ok(()), _) = done {
                let (lease, fence) = &**released;
                self.leases.release(partition, lease, *fence);
            }
        }
    }

    /// Decides and applies one transaction.
    fn change(&self, tables: &mut Tables<'_>, tx: &Tx, now: u64) -> Result<Result<(), CommitError>, Stop> {
        let state = TableState { tables, leases: &self.leases, partition: &tx.partition, now };
        match decide(&tx.checks, &tx.writes, &state) {
            Ok(()) => Ok(Ok(tables.apply(&tx.partition, &tx.writes, now)?)),
            Err(CommitError::Unavailable(Unavailable(reason))) => Err(Stop::Broken(reason)),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Commits a batch with the durability that its jobs ask for.
    fn make_durable(&mut self, txn: WriteTransaction, done: &[Done], now: u64) -> Result<(), Stop> {
        let frame = encode(done, self.sequence + 1, now, self.journal.salt());
        if self.journal.end_with(&frame) > self.settings.journal_bytes {
            self.sync(txn)?;
        } else {
            self.commit_by_journal(txn, &frame, done.iter().any(Done::wants_sync))?;
        }
        self.sequence += 1;
        Ok(())
    }

    /// Writes a batch to the journal, and only then lets readers see it.
    fn commit_by_journal(&mut self, mut txn: WriteTransaction, frame: &[u8], sync: bool) -> Result<(), Stop> {
        if let Err(error) = self.journal.append(frame) {
            txn.abort()?;
            return Err(Stop::Refused(Unavailable(format!("cannot write the journal: {error}"))));
        }
        // After a failed sync the system may have dropped what it could not write, and a second one would not say so.
        if sync && let Err(error) = self.journal.sync() {
            txn.abort()?;
            return Err(Stop::Broken(format!("cannot sync the journal: {error}")));
        }
        txn.set_durability(redb::Durability::None)?;
        self.shared.commit(txn)?;
        self.sound()?;
        self.unsynced_since.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Commits, and has redb sync everything that it did not sync yet.
    fn sync(&mut self, txn: WriteTransaction) -> Result<(), Stop> {
        self.shared.commit(txn)?;
        self.sound()?;
        self.journal.clear();
        self.unsynced_since = None;
        Ok(())
    }

    /// Whether redb should sync although jobs may wait.
    fn flush_due(&self) -> bool {
        let old = self.unsynced_since.is_some_and(|since| since.elapsed() >= self.settings.sync_after);
        let long = self.journal.len() > self.settings.journal_bytes / 2;
        (old || long) && self.shared.failure.get().is_none()
    }

    /// Purges at most so many rows, and has redb sync what it did not sync yet.
    fn settle(&mut self, purged: usize) {
        if let Err(stop) = self.try_settle(purged) {
            self.judge(stop);
        }
    }

    fn try_settle(&mut self, limit: usize) -> Result<(), Stop> {
        let txn = self.begin()?;
        let purged = Tables::open(&txn)?.purge(self.shared.clock.now(), limit)?;
        self.purge_left = purged == limit;
        if purged == 0 && self.unsynced_since.is_none() { Ok(txn.abort()?) } else { self.sync(txn) }
    }

    /// Makes sure that no fence of a batch begun now passes the ceiling, however slowly it is done.
    fn raise_fence_ceiling(&mut self, now: Now) -> Result<(), Stop> {
        let next = self.leases.next_fence(now);
        if next.saturating_add(BATCH as u64) <= self.fence_ceiling {
            return Ok(());
        }
        let ceiling = ceiling_above(next);
        let txn = self.begin()?;
        Tables::open(&txn)?.set_meta(Meta::FenceCeiling, ceiling)?;
        self.sync(txn)?;
        self.fence_ceiling = ceiling;
        Ok(())
    }

    fn begin(&self) -> Result<WriteTransaction, Stop> {
        match &*self.shared.database() {
            Some(database) => Ok(database.begin_write()?),
            None => Err(Stop::Broken("the database is closed".into())),
        }
    }

    /// Fails if a write or sync of the database file has failed, which [`Disk`](super::disk::Disk) hides from redb.
    fn sound(&self) -> Result<(), Stop> {
        self.shared.failure.get().map_or(Ok(()), |reason| Err(Stop::Broken(reason.to_owned())))
    }

    /// The error to answer. Notes that no batch may follow, if the batch is broken.
    fn judge(&self, stop: Stop) -> Unavailable {
        match stop {
            Stop::Refused(unavailable) => unavailable,
            Stop::Broken(reason) => {
                self.shared.failure.set(&reason);
                let reason = self.shared.failure.get().unwrap_or(&reason).to_owned();
                tracing::error!(reason, "the store failed");
                Unavailable(reason)
            }
        }
    }

    /// Has redb sync, and closes the files.
    fn close(mut self) {
        if self.unsynced_since.is_some() && self.shared.failure.get().is_none() {
            self.settle(PURGED_AT_REST);
        }
        self.shared.failure.close();
        let database = self.shared.take_database();
        if let Some(Err(error)) = database.map(redb::Database::close) {
            tracing::error!(%error, "the store's file was not closed cleanly");
        }
    }
}

/// The ceiling of fences to store when the next fence is this one.
pub(super) fn ceiling_above(fence: u64) -> u64 {
    fence.saturating_add(FENCES_AHEAD)
}

/// The frame of what a batch changed.
fn encode(done: &[Done], sequence: u64, now: u64, salt: &Salt) -> Vec<u8> {
    let mut record = Encoder::new(sequence, now);
    for tx in done.iter().filter_map(Done::change) {
        record.change(&tx.partition, &tx.writes);
    }
    record.finish(salt)
}

/// What a transaction is decided against.
struct TableState<'a, 'txn> {
    tables: &'a Tables<'txn>,
    leases: &'a Leases,
    partition: &'a Partition,
    now: u64,
}

impl CurrentState for TableState<'_, '_> {
    fn version(&self, key: &Key) -> Result<u64, Unavailable> {
        readable(self.tables.version(self.partition.as_str(), key, self.now))
    }

    fn head(&self, log: &Key) -> Result<u64, Unavailable> {
        readable(self.tables.head(self.partition.as_str(), log, self.now))
    }

    fn counter(&self, counter: &Key) -> Result<i64, Unavailable> {
        readable(self.tables.counter(self.partition.as_str(), counter, self.now))
    }

    fn holds(&self, lease: &Key, fence: Fence) -> bool {
        self.leases.holds(self.partition, lease, fence)
    }
}

fn readable<T>(result: Result<T, redb::Error>) -> Result<T, Unavailable> {
    result.map_err(|error| Unavailable(error.to_string()))
}
