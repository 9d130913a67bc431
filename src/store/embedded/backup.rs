//! Copies of the store, made while it is open: one after the other, in a thread of its own, which works beside all others
//! and waits for none of them.
//!
//! Each copy is a directory named after its time, which a store can be opened in. It is made under the name [`PARTIAL`]
//! and gets its own once it is synced, so that what has such a name is whole.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use jiff::Timestamp;
use rustix::io::Errno;
use tokio::time::Instant;

use super::copy::{CopyError, Copying};
use super::shared::Shared;
use crate::config::BackupConfig;

/// The directory of a copy that is not whole.
const PARTIAL: &str = "partial";

/// The file that is locked by who makes copies in a directory: another store's copies would count among them, and be removed.
const LOCK: &str = "lock";

/// How the directories of copies are named, in UTC. Their order is that of their times.
pub(super) const NAMES: &str = "%Y-%m-%dT%H-%M-%S%.3fZ";

/// The longest pause after a copy that could not be made, or a directory that is another store's.
const RETRY_AFTER: Duration = Duration::from_mins(5);

/// The thread that makes copies. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Backups {
    stopped: Arc<AtomicBool>,
    /// Dropped to wake the thread.
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Backups {
    /// Begins to make copies, the first once one is due: from now on the directory of copies is this store's own. `None` if
    /// there is no thread for it.
    pub(super) fn begin(config: BackupConfig, shared: Arc<Shared>) -> Option<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let (wake, woken) = channel();
        let job = Job { config, shared, stopped: stopped.clone() };
        let thread = Builder::new().name("backup".into()).spawn(move || job.run(&woken));
        let thread = thread.inspect_err(|error| tracing::error!(%error, "the thread of backups cannot be started"));
        Some(Self { stopped, wake: Some(wake), thread: Some(thread.ok()?) })
    }

    /// No copy is begun any more, and one that is under way is given up.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Drop for Backups {
    fn drop(&mut self) {
        self.stop();
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Job {
    config: BackupConfig,
    shared: Arc<Shared>,
    stopped: Arc<AtomicBool>,
}

impl Job {
    fn run(&self, woken: &Receiver<()>) {
        // Held until the thread ends, also while no copy is due: another store would remove what this one has made.
        let Some(_lock) = self.own(woken) else { return };
        let mut pause = until_due(&self.config, Timestamp::now());
        while let Err(RecvTimeoutError::Timeout) = woken.recv_timeout(pause) {
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            pause = self.config.every;
            if !self.back_up() {
                pause = pause.min(RETRY_AFTER);
            }
        }
    }

    /// Makes the directory of copies this store's own, as soon as it is no other's. `None` if the store closes before that.
    fn own(&self, woken: &Receiver<()>) -> Option<File> {
        let pause = self.config.every.min(RETRY_AFTER);
        while !self.stopped.load(Ordering::Relaxed) {
            match lock(&self.config.directory) {
                Ok(lock) => return Some(lock),
                Err(error) => self.complain(&error),
            }
            match woken.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// Says that there is no copy.
    fn complain(&self, error: &CopyError) {
        let directory = self.config.directory.display();
        tracing::error!(%directory, %error, "the store could not be backed up");
    }

    /// Makes a copy and removes those that are too many. Says whether it did.
    fn back_up(&self) -> bool {
        let begun = Instant::now();
        match self.make() {
            Ok((directory, bytes)) => {
                let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                tracing::info!(directory = %directory.display(), bytes, took_ms, "the store was backed up");
                self.remove_old();
                true
            }
            Err(_) if self.stopped.load(Ordering::Relaxed) => false,
            Err(error) => {
                self.complain(&error);
                false
            }
        }
    }

    fn make(&self) -> Result<(PathBuf, u64), CopyError> {
        let directory = &self.config.directory;
        let partial = directory.join(PARTIAL);
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)?;
        let copy = directory.join(Timestamp::now().strftime(NAMES).to_string());
        let from = self.shared.snapshot()?.ok_or(CopyError::Unreadable)?;
        let bytes = Copying { from: &from, stopped: &self.stopped }.copy_into(&partial)?;
        fs::rename(&partial, &copy)?;
        File::open(directory)?.sync_all()?;
        Ok((copy, bytes))
    }

    fn remove_old(&self) {
        let directory = &self.config.directory;
        let copies = copies(directory).unwrap_or_default();
        for old in copies.iter().take(copies.len().saturating_sub(self.config.keep)) {
            if let Err(error) = fs::remove_dir_all(directory.join(old)) {
                tracing::error!(directory = %directory.join(old).display(), %error, "an old backup cannot be removed");
            }
        }
    }
}

/// Makes a directory, and its copies this store's own for as long as the file is open. Where there are no locks, nothing is kept
/// from others, and the log says so.
pub(super) fn lock(directory: &Path) -> Result<File, CopyError> {
    fs::create_dir_all(directory)?;
    let file = File::options().write(true).create(true).truncate(false).open(directory.join(LOCK))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(CopyError::Taken),
        Err(TryLockError::Error(error)) if has_no_locks(&error) => {
            let directory = directory.display();
            tracing::warn!(%directory, %error, "the directory of backups cannot be locked: no other server may use it");
            Ok(file)
        }
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Whether a file could not be locked because its file system has no locks.
pub(super) fn has_no_locks(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(Errno::NOLCK.raw_os_error())
}

/// How long it is until the next copy is due. An earlier process may have made the newest one.
pub(super) fn until_due(config: &BackupConfig, now: Timestamp) -> Duration {
    let newest = copies(&config.directory).unwrap_or_default().pop();
    let age = newest.and_then(|copy| time_of(&copy)).map(|time| now.duration_since(time));
    match age.map(Duration::try_from) {
        Some(Ok(age)) => config.every.saturating_sub(age),
        // One from the future is as good as new.
        Some(Err(_)) => config.every,
        None => Duration::ZERO,
    }
}

/// The names of the whole copies in a directory, the oldest first.
fn copies(directory: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(directory)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut copies: Vec<String> = names.filter(|name| time_of(name).is_some()).collect();
    copies.sort_unstable();
    Ok(copies)
}

/// When a copy of this name was made; `None` for all other names.
fn time_of(name: &str) -> Option<Timestamp> {
    let utc = format!("{}+0000", name.strip_suffix('Z')?);
    let time = Timestamp::strptime("%Y-%m-%dT%H-%M-%S%.f%z", utc).ok()?;
    // What is written otherwise than here is nobody's copy.
    (time.strftime(NAMES).to_string() == name).then_some(time)
}
