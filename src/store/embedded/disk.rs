//! The file under redb, and what happens when it can no longer be written.
//!
//! Once a write has failed, redb refuses to read as well. A server whose disk is full should still answer reads. So
//! after the first failed write no other write reaches the file: writes stay in memory, on top of the file, where reads
//! find them. The file is left as a crash at that moment would leave it, which redb repairs when it is opened again. The
//! store looks at [`Failure`] after each commit and then accepts no more of them, so the memory holds the writes of one
//! commit only.

use std::io;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use redb::{BackendError, StorageBackend};

/// Why the store accepts no more writes. The first reason is kept.
#[derive(Debug, Clone, Default)]
pub(super) struct Failure(Arc<OnceLock<String>>);

impl Failure {
    /// Notes what failed, unless something failed before: later failures follow from the first.
    pub(super) fn set(&self, reason: &str) {
        self.0.get_or_init(|| format!("{reason}; nothing is written until the store is opened again"));
    }

    /// Notes that the store was closed.
    pub(super) fn close(&self) {
        self.0.get_or_init(|| "the store was closed".into());
    }

    /// The reason, if something failed.
    pub(super) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// A file that keeps what it could not write in memory.
#[derive(Debug)]
pub(super) struct Disk<B> {
    file: B,
    failure: Failure,
    /// Empty while every write succeeded.
    unwritten: OnceLock<Mutex<Unwritten>>,
}

impl<B: StorageBackend> Disk<B> {
    pub(super) fn new(file: B, failure: Failure) -> Self {
        Self { file, failure, unwritten: OnceLock::new() }
    }

    fn unwritten(&self) -> Option<MutexGuard<'_, Unwritten>> {
        self.unwritten.get().map(|unwritten| unwritten.lock())
    }

    /// Changes the file; from the first failure on, does `instead` to what is kept in memory. Only redb's one writer
    /// calls this, so nothing else reaches the file after a failure.
    fn change(
        &self,
        what: &str,
        change: impl FnOnce(&B) -> io::Result<()>,
        instead: impl FnOnce(&mut Unwritten),
    ) -> io::Result<()> {
        if self.unwritten.get().is_none() {
            let Err(error) = change(&self.file) else { return Ok(()) };
            let len = self.file.len()?;
            self.unwritten.get_or_init(|| Mutex::new(Unwritten { len, cut: len, writes: Vec::new() }));
            self.failure.set(&format!("cannot {what} the database file: {error}"));
        }
        if let Some(mut unwritten) = self.unwritten() {
            instead(&mut unwritten);
        }
        Ok(())
    }
}

/// What was to be written to a file after its first failure.
#[derive(Debug)]
struct Unwritten {
    len: u64,
    /// The file's bytes beyond this position were cut off.
    cut: u64,
    /// In the order of writing: a later one covers an earlier one.
    writes: Vec<(u64, Vec<u8>)>,
}

impl Unwritten {
    fn set_len(&mut self, len: u64) {
        self.writes.retain_mut(|(at, data)| {
            data.truncate(index(len.saturating_sub(*at).min(data.len() as u64)));
            !data.is_empty()
        });
        self.cut = self.cut.min(len);
        self.len = len;
    }

    fn read(&self, file: &impl StorageBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset + out.len() as u64;
        let in_file = index(self.cut.clamp(offset, end) - offset);
        file.read(offset, &mut out[..in_file])?;
        out[in_file..].fill(0);
        for (at, data) in &self.writes {
            let (from, to) = ((*at).max(offset), (at + data.len() as u64).min(end));
            if from < to {
                out[index(from - offset)..index(to - offset)].copy_from_slice(&data[index(from - at)..index(to - at)]);
            }
        }
        Ok(())
    }
}

fn index(position: u64) -> usize {
    usize::try_from(position).expect("a position within a slice is a usize")
}

impl<B: StorageBackend> StorageBackend for Disk<B> {
    fn len(&self) -> io::Result<u64> {
        match self.unwritten() {
            Some(unwritten) => Ok(unwritten.len),
            None => self.file.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.unwritten() {
            Some(unwritten) => unwritten.read(&self.file, offset, out),
            None => self.file.read(offset, out),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change("resize", |file| file.set_len(len), |unwritten| unwritten.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change("sync", StorageBackend::sync_data, |_| ())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(
            "write",
            |file| file.write(offset, data),
            |unwritten| unwritten.writes.push((offset, data.to_vec())),
        )
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;
    use crate::store::embedded::tests::Faulty;

    fn bytes(disk: &impl StorageBackend) -> Vec<u8> {
        let mut out = vec![0; index(disk.len().unwrap())];
        disk.read(0, &mut out).unwrap();
        out
    }

    #[test]
    fn after_a_failed_write_the_file_stays_and_reads_see_what_was_meant() {
        let (faulty, faults) = Faulty::new(InMemoryBackend::new());
        let failure = Failure::default();
        let disk = Disk::new(faulty, failure.clone());
        disk.set_len(6).unwrap();
        disk.write(0, b"abcdef").unwrap();
        assert_eq!((failure.get(), bytes(&disk)), (None, b"abcdef".to_vec()));

        faults.begin();
        disk.write(1, b"BC").unwrap();
        faults.end();
        disk.write(2, b"__").unwrap();
        disk.set_len(8).unwrap();
        disk.write(6, b"gh").unwrap();
        disk.sync_data().unwrap();
        let reason = failure.get().unwrap();
        assert!(reason.starts_with("cannot write the database file: no space left;"), "{reason}");
        assert_eq!(bytes(&disk), b"aB__efgh");
        assert_eq!(bytes(&disk.file), b"abcdef");

        disk.set_len(3).unwrap();
        disk.set_len(7).unwrap();
        assert_eq!(bytes(&disk), b"aB_\0\0\0\0");
    }
}
