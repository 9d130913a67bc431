//! A store in one directory of one server: the default.
//!
//! A commit that was acknowledged as written survives the end of the process, however abrupt; one that was
//! acknowledged as synced survives a loss of power as well. The directory holds two files:
//!
//! - `store.redb`, a redb database, laid out as `tables.rs` says;
//! - `store.journal`, the changes of about the last second, which redb has in memory and did not sync yet, see
//!   `journal.rs`.
//!
//! The two belong together: a copy of one without the other lacks changes. When the directory is opened, redb has the
//! state of its last sync; the journal's records that it lacks are then applied again, at most a few MiB. redb repairs
//! its file if the process was killed, which takes time in proportion to the file. Only one process can have the
//! directory open.
//!
//! One thread makes all changes, see `writer.rs`; reads run on the thread that asks. After syncing the journal, or
//! writing or syncing the database file, has failed, reads go on and show what there was before, but every commit is
//! refused until the store is opened again, because it is no longer known what the disk holds. If the journal cannot be
//! written, because the disk is full, the commits that were to be written together fail, and nothing else.
//!
//! While the store is open, `backup.rs` copies its tables to other directories, each time all of one moment.
//!
//! Leases are kept in memory, since they end with the process that holds them. Only a ceiling of their fences is
//! stored, so that no later fence is lower.

mod backup;
mod copy;
mod disk;
mod job;
mod journal;
mod reads;
mod record;
mod settings;
mod shared;
mod start;
mod tables;
mod writer;

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use async_trait::async_trait;
use redb::backends::FileBackend;
use redb::{DatabaseError, ReadOnlyDatabase, ReadTransaction, StorageBackend};
use tokio::sync::oneshot;

use self::backup::Backups;
use self::job::{Answer, Job, Request};
use self::settings::Settings;
use self::shared::Shared;
use super::{
    CommitError, Document, Fence, Key, LogPage, OpenError, Partition, Rate, RateDecision, Scan, Store, Topic, Tx,
    Unavailable, Watch,
};
use crate::config::BackupConfig;
use crate::types::clock::now_ms;

/// The backend in a directory.
#[derive(Debug)]
pub struct EmbeddedStore {
    shared: std::sync::Arc<Shared>,
    requests: Sender<Request>,
    /// Taken when the store is dropped.
    writer: Option<JoinHandle<()>>,
    backups: Option<Backups>,
}

impl EmbeddedStore {
    /// Opens the store in a directory, which is created if it is missing.
    pub async fn open(dir: impl Into<PathBuf>) -> Result<Self, OpenError> {
        Self::start(dir.into(), Settings::default(), FileBackend::new).await
    }

    /// Whether the process that had the directory last did not close the store, as after a crash: opening it would change
    /// its files. This does not.
    #[must_use]
    pub fn needs_repair(dir: &Path) -> bool {
        // redb may panic over a damaged file, which opening the store reports.
        let opened = catch_unwind(|| ReadOnlyDatabase::open(dir.join(start::DATABASE)));
        matches!(opened, Ok(Err(DatabaseError::RepairAborted)))
    }

    async fn start<B: StorageBackend>(
        dir: PathBuf,
        settings: Settings,
        backend: impl FnOnce(File) -> Result<B, DatabaseError> + Send + 'static,
    ) -> Result<Self, OpenError> {
        let failed = |reason: String| OpenError::Failed { dir: dir.clone(), reason };
        let (requests, queue) = channel();
        let (opened, result) = oneshot::channel();
        let directory = dir.clone();
        // The thread opens the files as well: a repair takes its time, and redb may panic over a
        // damaged file.
        let thread =
            Builder::new().name("store".into()).spawn(move || match start::open(&directory, settings, backend) {
                Ok(writer) => {
                    let shared = writer.shared.clone();
                    if opened.send(Ok(shared)).is_ok() {
                        writer.run(&queue);
                    }
                }
                Err(error) => {
                    let _ = opened.send(Err(error));
                }
            });
        let writer = Some(thread.map_err(|error| failed(format!("cannot start its thread: {error}")))?);
        let shared = result.await.map_err(|_| failed("its files are damaged".into()))??;
        Ok(Self { shared, requests, writer, backups: None })
    }

    /// The same store, copied to other directories from time to time while it is open.
    #[must_use]
    pub fn with_backups(mut self, config: Option<BackupConfig>) -> Self {
        self.backups = config.and_then(|config| Backups::begin(config, self.shared.clone()));
        self
    }

    /// Sends a job to the writer and waits for its result.
    async fn ask<T, E: From<Unavailable>>(&self, job: impl FnOnce(Answer<T, E>) -> Job) -> Result<T, E> {
        let (answer, result) = oneshot::channel();
        // A job that cannot be sent is dropped, and its answer with it.
        let _ = self.requests.send(Request::Do(job(answer)));
        result.await.unwrap_or_else(|_| Err(self.gone().into()))
    }

    /// Why the writer does not answer.
    fn gone(&self) -> Unavailable {
        let reason = self.shared.failure.get().unwrap_or("the store's writer ended unexpectedly");
        Unavailable(reason.to_owned())
    }

    /// Reads on the calling thread. redb's cache or the system's nearly always has the page, so a read
    /// takes a few microseconds, less than handing it to another thread; it does not wait for the
    /// writer, not even for its sync; and callers bound the size of what they ask for.
    fn read<T>(&self, read: impl FnOnce(&ReadTransaction, u64) -> Result<T, redb::Error>) -> Result<T, Unavailable> {
        let now = self.shared.clock.now();
        let attempt = catch_unwind(AssertUnwindSafe(|| match &*self.shared.database() {
            Some(database) => {
                self.shared.read(database, |txn| read(txn, now)).map_err(|error| Unavailable(error.to_string()))
            }
            None => Err(self.gone()),
        }));
        attempt.unwrap_or_else(|_| Err(Unavailable("the store's file is damaged".into())))
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn commit(&self, tx: Tx) -> Result<(), CommitError> {
        self.ask(|answer| Job::Commit(tx, answer)).await
    }

    async fn read_log(
        &self,
        partition: &Partition,
        log: &Key,
        after: u64,
        limit: usize,
    ) -> Result<LogPage, Unavailable> {
        self.read(|txn, now| reads::page(txn, partition.as_str(), log, after, limit, now))
    }

    async fn get(&self, partition: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        self.read(|txn, now| reads::document(txn, partition.as_str(), key, now))
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        self.read(|txn, now| reads::scan(txn, partition.as_str(), &scan, now))
    }

    async fn counter(&self, partition: &Partition, key: &Key) -> Result<i64, Unavailable> {
        self.read(|txn, now| reads::counter(txn, partition.as_str(), key, now))
    }

    async fn acquire(&self, partition: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable> {
        self.ask(|answer| Job::Acquire(partition.clone(), lease.clone(), ttl, answer)).await
    }

    async fn renew(
        &self,
        partition: &Partition,
        lease: &Key,
        fence: Fence,
        ttl: Duration,
        log: &Key,
    ) -> Result<Option<u64>, Unavailable> {
        if self.ask(|answer| Job::Renew(partition.clone(), lease.clone(), fence, ttl, answer)).await? {
            Ok(Some(self.read_log(partition, log, 0, 0).await?.head))
        } else {
            Ok(None)
        }
    }

    async fn release(&self, partition: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable> {
        self.ask(|answer| Job::Release(partition.clone(), lease.clone(), fence, answer)).await
    }

    /// Buckets are in memory: a restart fills them.
    async fn take(&self, partition: &Partition, bucket: &Key, rate: Rate) -> Result<RateDecision, Unavailable> {
        Ok(self.shared.buckets.take(partition, bucket, rate))
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn pace(&self) -> Duration {
        super::LOCAL_PACE
    }

    fn now_ms(&self) -> u64 {
        now_ms()
    }

    fn watch(&self, topic: &Topic) -> Watch {
        self.shared.topics.watch(topic)
    }

    async fn health(&self) -> Result<(), Unavailable> {
        let alive = self.writer.as_ref().is_some_and(|writer| !writer.is_finished());
        if alive && self.shared.failure.get().is_none() { Ok(()) } else { Err(self.gone()) }
    }

    async fn close(&self) {
        if let Some(backups) = &self.backups {
            backups.stop();
        }
        let (answer, closed) = oneshot::channel();
        if self.requests.send(Request::Close(answer)).is_ok() {
            // Without an answer the thread has ended already.
            let _ = closed.await;
        }
    }
}

/// A store that was not closed closes now, so that its directory can be opened again.
impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.backups = None;
        let _ = self.requests.send(Request::Close(oneshot::channel().0));
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
