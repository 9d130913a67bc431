//! Files that fail on demand, count their syncs, and remember what a loss of power would leave.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::journal::Medium;
use super::*;

/// A file that fails to be written on demand, counts its syncs, and remembers what a loss of power would leave.
#[derive(Debug)]
pub(in crate::store::embedded) struct Faulty<B> {
    file: B,
    faults: Faults,
}

/// The handle of a [`Faulty`] file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    failing: Arc<AtomicBool>,
    failing_syncs: Arc<AtomicBool>,
    syncs: Arc<AtomicUsize>,
    /// Locked, it holds up every sync.
    gate: Arc<Mutex<()>>,
    /// Whether a sync came to the gate.
    at_gate: Arc<AtomicBool>,
    /// What the file had when it was last synced.
    synced: Arc<Mutex<Vec<u8>>>,
}

impl<B> Faulty<B> {
    pub(in crate::store::embedded) fn new(file: B) -> (Self, Faults) {
        let faults = Faults::default();
        (Self { file, faults: faults.clone() }, faults)
    }
}

impl Faults {
    pub(in crate::store::embedded) fn begin(&self) {
        self.failing.store(true, Ordering::SeqCst);
    }

    pub(in crate::store::embedded) fn end(&self) {
        self.failing.store(false, Ordering::SeqCst);
    }

    pub(super) fn fail_syncs(&self, failing: bool) {
        self.failing_syncs.store(failing, Ordering::SeqCst);
    }

    /// Holds up syncs until the guard is dropped.
    pub(super) fn hold(&self) -> MutexGuard<'_, ()> {
        let held = self.gate.lock();
        self.at_gate.store(false, Ordering::SeqCst);
        held
    }

    /// Waits until a sync is held up.
    pub(super) async fn is_held(&self) {
        while !self.at_gate.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) fn syncs(&self) -> usize {
        self.syncs.load(Ordering::SeqCst)
    }

    fn check(&self) -> io::Result<()> {
        if self.failing.load(Ordering::SeqCst) { Err(io::Error::other("no space left")) } else { Ok(()) }
    }

    /// Syncs, and remembers what the file has then.
    fn sync(&self, sync: impl FnOnce() -> io::Result<Vec<u8>>) -> io::Result<()> {
        self.check()?;
        if self.failing_syncs.load(Ordering::SeqCst) {
            return Err(io::Error::other("no space left"));
        }
        self.at_gate.store(true, Ordering::SeqCst);
        let _open = self.gate.lock();
        self.syncs.fetch_add(1, Ordering::SeqCst);
        *self.synced.lock() = sync()?;
        Ok(())
    }
}

/// What the journal is written to, with its path.
impl Medium for Faulty<(Box<dyn Medium>, PathBuf)> {
    fn write_at(&mut self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.faults.check()?;
        self.file.0.write_at(position, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        let (medium, path) = &mut self.file;
        self.faults.sync(|| medium.sync().and_then(|()| std::fs::read(path)))
    }
}

impl<B: StorageBackend> StorageBackend for Faulty<B> {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.faults.check()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.faults.sync(|| {
            self.file.sync_data()?;
            let mut bytes = vec![0; usize::try_from(self.file.len()?).unwrap()];
            self.file.read(0, &mut bytes)?;
            Ok(bytes)
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.faults.check()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

/// The handles of a store's two files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    pub(crate) database: Faults,
    pub(crate) journal: Faults,
}

impl Files {
    /// What a loss of power at this moment would leave, if nothing reached the disk that was not synced.
    pub(super) fn after_a_power_cut(&self) -> TempDir {
        let left = tempfile::tempdir().unwrap();
        std::fs::write(left.path().join(start::DATABASE), &*self.database.synced.lock()).unwrap();
        std::fs::write(left.path().join(start::JOURNAL), &*self.journal.synced.lock()).unwrap();
        left
    }
}

/// A store on files that can be made to fail. It keeps next to nothing of the database in memory.
pub(super) async fn faulty(dir: &Path) -> (EmbeddedStore, Files) {
    faulty_with(dir, patient()).await
}

pub(super) async fn faulty_with(dir: &Path, settings: Settings) -> (EmbeddedStore, Files) {
    let settings = Settings { cache_bytes: 0, ..settings };
    let files = Files::default();
    let (faults, path) = (files.clone(), dir.to_owned());
    // Made on the thread that runs the writer, as a store does.
    let (requests, queue) = channel();
    let (opened, result) = oneshot::channel();
    let writer = std::thread::spawn(move || {
        let backend = |file| Ok(Faulty { file: FileBackend::new(file)?, faults: faults.database });
        let mut writer = start::open(&path, settings, backend).unwrap();
        let medium = std::mem::replace(&mut writer.journal.medium, Box::new(File::open(&path).unwrap()));
        writer.journal.medium = Box::new(Faulty { file: (medium, path.join(start::JOURNAL)), faults: faults.journal });
        opened.send(writer.shared.clone()).unwrap();
        writer.run(&queue);
    });
    (EmbeddedStore { shared: result.await.unwrap(), requests, writer: Some(writer), backups: None }, files)
}

/// A store whose syncs are counted, and which syncs its database when it is opened and closed only.
pub(crate) async fn counted(dir: &Path) -> (EmbeddedStore, Files) {
    faulty(dir).await
}

/// A write of some length.
pub(super) fn put_padding() -> Write {
    Write::Put { key: key("padding"), value: Bytes::from(vec![7; 100]), ttl: None }
}
