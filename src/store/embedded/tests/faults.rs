//! Disks that fail and files that are damaged.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::join_all;
use redb::ReadableDatabase;

use super::*;

/// A file that fails to be written on demand, and counts its syncs.
#[derive(Debug)]
pub(in crate::store::embedded) struct Faulty<B> {
    file: B,
    faults: Faults,
}

/// The handle of a [`Faulty`] file.
#[derive(Debug, Clone, Default)]
pub(in crate::store::embedded) struct Faults {
    failing: Arc<AtomicBool>,
    syncs: Arc<AtomicUsize>,
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

    fn syncs(&self) -> usize {
        self.syncs.load(Ordering::SeqCst)
    }

    fn check(&self) -> io::Result<()> {
        if self.failing.load(Ordering::SeqCst) { Err(io::Error::other("no space left")) } else { Ok(()) }
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
        self.faults.check()?;
        self.faults.syncs.fetch_add(1, Ordering::SeqCst);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.faults.check()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

/// A store on a file that can be made to fail. It keeps next to nothing of the file in memory.
async fn faulty(dir: &Path) -> (EmbeddedStore, Faults) {
    let settings = Settings { cache_bytes: 0, ..patient() };
    let faults = Faults::default();
    let handle = faults.clone();
    let backend = |file| Ok(Faulty { file: FileBackend::new(file)?, faults });
    (EmbeddedStore::start(dir.to_owned(), settings, backend).await.unwrap(), handle)
}

#[tokio::test]
async fn failing_disk_ends_writing_and_leaves_reading() {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults) = faulty(dir.path()).await;
    let value = Bytes::from(vec![7; 20_000]);
    for number in 0..50 {
        let name = number.to_string();
        let durability = if number % 2 == 0 { Durability::Synced } else { Durability::Written };
        let put = tx(durability).put_at(key(&name), 0, value.clone(), None);
        store.commit(put.write(append("log", number))).await.unwrap();
    }

    faults.begin();
    let sentence = |error: CommitError| {
        let text = error.to_string();
        assert!(text.starts_with("store unavailable: cannot "), "{text}");
        assert!(text.ends_with("no space left; nothing is written until the store is opened again"), "{text}");
    };
    sentence(store.commit(tx(Durability::Synced).write(append("log", 50))).await.unwrap_err());
    // Refused however well the disk does from now on: nobody knows what it holds.
    faults.end();
    sentence(store.commit(tx(Durability::Written).write(append("other", 0))).await.unwrap_err());
    assert!(store.acquire(&partition(), &key("driver"), Duration::from_secs(1)).await.is_err());
    assert!(store.health().await.is_err());
    let check = async |store: &EmbeddedStore, length: RangeInclusive<u64>| {
        for number in 0..50 {
            let found = store.get(&partition(), &key(&number.to_string())).await;
            assert_eq!(found, Ok(Some(Document { version: 1, value: value.clone() })), "{number}");
        }
        assert!(length.contains(&head(store, "log").await));
        assert_eq!(head(store, "other").await, 0);
    };
    // Nobody reads what was refused and may be gone later.
    check(&store, 50..=50).await;

    check(&open(copy(dir.path()).path(), patient()).await, 50..=51).await;
    store.close().await;
    let store = open(dir.path(), patient()).await;
    check(&store, 50..=51).await;
    store.commit(tx(Durability::Synced).write(append("other", 0))).await.unwrap();
}

#[tokio::test]
async fn written_changes_stay_in_the_journal_when_a_sync_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults) = faulty(dir.path()).await;
    store.commit(tx(Durability::Written).write(add("spent", 10))).await.unwrap();
    faults.begin();
    store.commit(tx(Durability::Synced).write(add("other", 1))).await.unwrap_err();
    store.close().await;
    assert_eq!(open(dir.path(), patient()).await.counter(&partition(), &key("spent")).await, Ok(10));
}

#[test]
fn journal_that_cannot_be_written_fails_that_batch_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = start::open(dir.path(), patient(), FileBackend::new).unwrap();
    let commit = |writer: &mut writer::Writer, delta| {
        let (answer, mut result) = oneshot::channel();
        writer.perform(vec![Job::Commit(tx(Durability::Written).write(add("spent", delta)), answer)]);
        result.try_recv().unwrap()
    };
    commit(&mut writer, 1).unwrap();
    let read_only = File::open(dir.path().join(start::JOURNAL)).unwrap();
    let file = std::mem::replace(&mut writer.journal.file, read_only);
    let refusal = commit(&mut writer, 10).unwrap_err().to_string();
    assert!(refusal.starts_with("store unavailable: cannot write the journal: "), "{refusal}");
    writer.journal.file = file;
    commit(&mut writer, 100).unwrap();

    let killed = copy(dir.path());
    let writer = start::open(killed.path(), patient(), FileBackend::new).unwrap();
    let txn = writer.shared.database().as_ref().unwrap().begin_read().unwrap();
    assert_eq!(reads::counter(&txn, partition().as_str(), "spent", 0).unwrap(), 101);
}

#[tokio::test]
async fn syncs_are_shared_and_written_changes_cost_none() {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults) = faulty(dir.path()).await;
    let before = faults.syncs();
    for number in 0..100 {
        store.commit(tx(Durability::Written).write(append("log", number))).await.unwrap();
    }
    assert_eq!(faults.syncs(), before);
    let commits = (0..256).map(|_| store.commit(tx(Durability::Synced).write(add("spent", 1))));
    assert!(join_all(commits).await.iter().all(Result::is_ok));
    let syncs = faults.syncs() - before;
    assert!((1..64).contains(&syncs), "{syncs} syncs for 256 commits");
}

#[tokio::test]
async fn file_that_is_no_database_is_refused_with_a_sentence() {
    for garbage in [&b"not a database at all"[..], &[0; 4096], &vec![255; 100_000]] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(start::DATABASE), garbage).unwrap();
        let refusal = EmbeddedStore::open(dir.path()).await.unwrap_err().to_string();
        assert!(refusal.starts_with(&format!("cannot open the store in {}: ", dir.path().display())), "{refusal}");
    }
}

#[tokio::test]
async fn file_of_another_layout_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(start::open(dir.path(), patient(), FileBackend::new).unwrap());
    let database = Database::open(dir.path().join(start::DATABASE)).unwrap();
    let txn = database.begin_write().unwrap();
    tables::Tables::open(&txn).unwrap().set_meta(tables::Meta::Format, tables::FORMAT + 1).unwrap();
    txn.commit().unwrap();
    drop(database);
    let refusal = EmbeddedStore::open(dir.path()).await.unwrap_err().to_string();
    assert!(refusal.ends_with(": it was written by another version of this program"), "{refusal}");
}

#[tokio::test]
async fn damaged_page_never_panics_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), patient()).await;
    for number in 0..20 {
        let put = tx(Durability::Written).put_at(key(&number.to_string()), 0, Bytes::from(vec![7; 1000]), None);
        store.commit(put.write(append("log", number)).write(add("spent", 1))).await.unwrap();
    }
    store.close().await;
    let whole = std::fs::read(dir.path().join(start::DATABASE)).unwrap();
    let pages = whole.chunks(4096).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0));
    let mut noticed = 0;
    for (page, _) in pages {
        let damaged = tempfile::tempdir().unwrap();
        let mut bytes = whole.clone();
        for byte in bytes[page * 4096..].iter_mut().take(4096) {
            *byte ^= 0x55;
        }
        std::fs::write(damaged.path().join(start::DATABASE), bytes).unwrap();
        let Ok(store) = EmbeddedStore::open(damaged.path()).await else {
            noticed += 1;
            continue;
        };
        let page = store.read_log(&partition(), &key("log"), 0, 100).await;
        let document = store.get(&partition(), &key("7")).await;
        let counter = store.counter(&partition(), &key("spent")).await;
        let commit = store.commit(tx(Durability::Synced).write(add("spent", 1))).await;
        noticed += usize::from(page.is_err() || document.is_err() || counter.is_err() || commit.is_err());
    }
    assert!(noticed > 0);
}
