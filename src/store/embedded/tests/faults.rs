//! Disks that fail and files that are damaged.

use std::ops::RangeInclusive;

use redb::ReadableDatabase;

use super::files::{Files, faulty, faulty_with, put_padding};
use super::*;

#[tokio::test]
async fn failing_database_file_ends_writing_and_leaves_reading() {
    // Half of the journal is a few commits: redb syncs while the commits go on.
    let settings = Settings { journal_bytes: 100_000, ..patient() };
    ends_writing_and_leaves_reading(settings, |files| files.database.begin(), |files| files.database.end()).await;
}

#[tokio::test]
async fn failing_sync_of_the_database_file_ends_writing_and_leaves_reading() {
    let settings = Settings { journal_bytes: 100_000, ..patient() };
    let fail = |failing| move |files: &Files| files.database.fail_syncs(failing);
    ends_writing_and_leaves_reading(settings, fail(true), fail(false)).await;
}

#[tokio::test]
async fn failing_sync_of_the_journal_ends_writing_and_leaves_reading() {
    let fail = |failing| move |files: &Files| files.journal.fail_syncs(failing);
    ends_writing_and_leaves_reading(patient(), fail(true), fail(false)).await;
}

async fn ends_writing_and_leaves_reading(settings: Settings, begin: impl FnOnce(&Files), end: impl FnOnce(&Files)) {
    let dir = tempfile::tempdir().unwrap();
    let (store, files) = faulty_with(dir.path(), settings).await;
    let value = Bytes::from(vec![7; 20_000]);
    let put = async |number: u64| {
        let durability = if number.is_multiple_of(2) { Durability::Synced } else { Durability::Written };
        let put = tx(durability).put_at(key(&number.to_string()), 0, value.clone(), None);
        store.commit(put.write(append("log", number))).await
    };
    for number in 0..50 {
        put(number).await.unwrap();
    }

    begin(&files);
    let sentence = |error: CommitError| {
        let text = error.to_string();
        assert!(text.starts_with("store unavailable: cannot "), "{text}");
        assert!(text.ends_with("no space left; nothing is written until the store is opened again"), "{text}");
    };
    let mut acknowledged = 50;
    let refusal = loop {
        match put(acknowledged).await {
            Ok(()) => acknowledged += 1,
            Err(refusal) => break refusal,
        }
        assert!(acknowledged < 60, "the disk fails, and commits go on");
    };
    sentence(refusal);
    // Refused however well the disk does from now on: nobody knows what it holds.
    end(&files);
    sentence(store.commit(tx(Durability::Written).write(append("other", 0))).await.unwrap_err());
    assert!(store.acquire(&partition(), &key("driver"), Duration::from_secs(1)).await.is_err());
    assert!(store.health().await.is_err());
    let check = async |store: &EmbeddedStore, length: RangeInclusive<u64>| {
        for number in 0..acknowledged {
            let found = store.get(&partition(), &key(&number.to_string())).await;
            assert_eq!(found, Ok(Some(Document { version: 1, value: value.clone() })), "{number}");
        }
        assert!(length.contains(&head(store, "log").await));
        assert_eq!(head(store, "other").await, 0);
    };
    // Nobody reads what was refused and may be gone later.
    check(&store, acknowledged..=acknowledged).await;

    let unknown = acknowledged..=acknowledged + 1;
    check(&open(copy(dir.path()).path(), patient()).await, unknown.clone()).await;
    store.close().await;
    let store = open(dir.path(), patient()).await;
    check(&store, unknown).await;
    store.commit(tx(Durability::Synced).write(append("other", 0))).await.unwrap();
}

#[tokio::test]
async fn changes_that_redb_cannot_sync_stay_in_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let (store, files) = faulty(dir.path()).await;
    store.commit(tx(Durability::Synced).write(add("spent", 10))).await.unwrap();
    files.database.fail_syncs(true);
    store.commit(tx(Durability::Synced).write(add("spent", 100))).await.unwrap();
    store.commit(tx(Durability::Written).write(add("spent", 1000))).await.unwrap();
    store.close().await;
    assert_eq!(open(dir.path(), patient()).await.counter(&partition(), &key("spent")).await, Ok(1110));
}

#[tokio::test]
async fn slow_sync_of_the_database_file_delays_commits_and_loses_none() {
    let dir = tempfile::tempdir().unwrap();
    let (store, files) = faulty_with(dir.path(), Settings { journal_bytes: 4000, ..patient() }).await;
    let held = files.database.hold();
    let commits = async {
        for _ in 0..100 {
            store.commit(tx(Durability::Synced).write(add("spent", 1)).write(put_padding())).await.unwrap();
        }
    };
    let check = async {
        tokio::time::timeout(Duration::from_secs(60), files.database.is_held()).await.unwrap();
        // The batch that filled half of the journal did not wait.
        let journal = journal::tests::ends(&std::fs::read(dir.path().join(start::JOURNAL)).unwrap());
        assert!((2000..2500).contains(journal.last().unwrap()), "{journal:?}");
        let spent = i64::try_from(journal.len() - 1).unwrap();
        assert_eq!(store.counter(&partition(), &key("spent")).await, Ok(spent), "reads wait for no sync");
        drop(held);
    };
    tokio::join!(commits, check);
    assert_eq!(store.counter(&partition(), &key("spent")).await, Ok(100));
    assert_eq!(open(copy(dir.path()).path(), patient()).await.counter(&partition(), &key("spent")).await, Ok(100));
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
    let file = std::mem::replace(&mut writer.journal.medium, Box::new(read_only));
    let refusal = commit(&mut writer, 10).unwrap_err().to_string();
    assert!(refusal.starts_with("store unavailable: cannot write the journal: "), "{refusal}");
    writer.journal.medium = file;
    commit(&mut writer, 100).unwrap();

    let killed = copy(dir.path());
    let writer = start::open(killed.path(), patient(), FileBackend::new).unwrap();
    let txn = writer.shared.database().as_ref().unwrap().begin_read().unwrap();
    assert_eq!(reads::counter(&txn, partition().as_str(), "spent", 0).unwrap(), 101);
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
