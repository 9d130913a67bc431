//! Copies that are made while the store is in use.

use std::path::PathBuf;
use std::{fs, io};

use jiff::Timestamp;
use rustix::io::Errno;

use super::*;
use crate::store::embedded::copy::CopyError;
use crate::store::embedded::tables;

/// The names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn copies(directory: &Path) -> Vec<String> {
    names(directory).into_iter().filter(|name| name.ends_with('Z')).collect()
}

/// Waits until there is a copy beside those known.
async fn next_copy(directory: &Path, known: &[String]) -> PathBuf {
    let waiting = async {
        loop {
            match copies(directory).into_iter().find(|name| !known.contains(name)) {
                Some(name) => return directory.join(name),
                None => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("a copy is made")
}

fn every(every: Duration, directory: &Path) -> BackupConfig {
    BackupConfig { directory: directory.to_owned(), every, keep: 2 }
}

const OFTEN: Duration = Duration::from_millis(20);
const SELDOM: Duration = Duration::from_hours(1);

/// How many rows the file of a store has.
fn rows(database: &Database) -> Vec<(&'static str, u64)> {
    use redb::ReadableDatabase;
    tables::rows(&database.begin_read().unwrap()).unwrap()
}

#[tokio::test]
async fn a_copy_has_all_that_was_acknowledged_before_it_began() {
    let (dir, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Nothing of this is in the database file when the copy is made.
    let store = open(dir.path(), patient()).await;
    let ttl = Some(SELDOM);
    let put = Write::Put { key: key("d"), value: Bytes::from_static(b"value"), ttl };
    let expire = Write::ExpireCounter { counter: key("c"), ttl: SELDOM };
    let writes = vec![put, append("l", 0), append("gone", 0), add("c", 5), expire];
    store.commit(Tx { writes, ..tx(Durability::Written) }).await.unwrap();
    store.commit(Tx { writes: vec![Write::DeleteLog { log: key("gone") }], ..tx(Durability::Synced) }).await.unwrap();
    let store = store.with_backups(Some(every(SELDOM, backups.path())));

    let copy = next_copy(backups.path(), &[]).await;
    assert_eq!(names(&copy), [start::DATABASE], "the copy needs no journal");
    let copied = rows(&Database::open(copy.join(start::DATABASE)).unwrap());
    assert_eq!(copied, rows(store.shared.database().as_ref().unwrap()));
    store.commit(Tx { writes: vec![append("l", 1)], ..tx(Durability::Synced) }).await.unwrap();
    store.close().await;

    let restored = EmbeddedStore::open(&copy).await.unwrap();
    let found = restored.get(&partition(), &key("d")).await.unwrap().unwrap();
    assert_eq!((&found.value[..], head(&restored, "l").await), (&b"value"[..], 1));
    assert_eq!(restored.counter(&partition(), &key("c")).await, Ok(5));
    restored.commit(Tx { writes: vec![append("l", 1)], ..tx(Durability::Synced) }).await.unwrap();
    restored.close().await;
}

#[tokio::test]
async fn the_newest_copies_are_kept_and_nothing_else_is_touched() {
    let (dir, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // What a crash left of a copy, and what is not ours.
    fs::create_dir(backups.path().join("partial")).unwrap();
    fs::write(backups.path().join("partial").join(start::DATABASE), "torn").unwrap();
    fs::create_dir(backups.path().join("2020-01-01T00-00-00Z")).unwrap();
    fs::create_dir(backups.path().join("2020-01-01T00-00-00.000Z")).unwrap();
    let store = EmbeddedStore::open(dir.path()).await.unwrap().with_backups(Some(every(OFTEN, backups.path())));
    let mut known = copies(backups.path());
    for _ in 0..4 {
        let copy = next_copy(backups.path(), &known).await;
        known.push(copy.file_name().unwrap().to_str().unwrap().to_owned());
    }
    drop(store);
    let left = names(backups.path());
    assert!(left.contains(&"2020-01-01T00-00-00Z".to_owned()), "{left:?}");
    assert!(!left.contains(&"2020-01-01T00-00-00.000Z".to_owned()), "{left:?}");
    assert!(left.iter().filter(|name| name.contains('.')).count() <= 2, "{left:?}");
    let newest = left.iter().rfind(|name| name.contains('.')).unwrap();
    assert!(known[2..].contains(newest) || newest > known.last().unwrap(), "{left:?} {known:?}");
}

#[tokio::test]
async fn a_restart_waits_until_the_next_copy_is_due() {
    let (dir, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = EmbeddedStore::open(dir.path()).await.unwrap().with_backups(Some(every(SELDOM, backups.path())));
    next_copy(backups.path(), &[]).await;
    drop(store);
    let due = |now: &str| backup::until_due(&every(SELDOM, backups.path()), now.parse().unwrap());
    let (later, earlier) = ("2100-01-01T00:00:00Z", "2000-01-01T00:00:00Z");
    assert_eq!((due(later), due(earlier)), (Duration::ZERO, SELDOM));
}

/// Waits until a store holds the directory of copies.
async fn held(directory: &Path) {
    let waiting = async {
        loop {
            // Before the store has made the file it is not asked for, so that the store's first try finds it free.
            if directory.join("lock").exists() {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let is_taken = matches!(backup::lock(directory), Err(CopyError::Taken));
                if is_taken {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("the directory is held");
}

/// Each would remove the other's copies as too many, also while no copy of its own is due.
#[tokio::test]
async fn two_stores_keep_no_copies_in_one_directory() {
    let (dirs, backups) = ([tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()], tempfile::tempdir().unwrap());
    // One is young enough that the first store makes none.
    fs::create_dir(backups.path().join(Timestamp::now().strftime(backup::NAMES).to_string())).unwrap();
    let known = copies(backups.path());
    let one = EmbeddedStore::open(dirs[0].path()).await.unwrap().with_backups(Some(every(SELDOM, backups.path())));
    held(backups.path()).await;
    let often = BackupConfig { keep: 1, ..every(OFTEN, backups.path()) };
    let two = EmbeddedStore::open(dirs[1].path()).await.unwrap().with_backups(Some(often));
    // It tries every 20 ms.
    for _ in 0..25 {
        tokio::time::sleep(OFTEN).await;
        assert_eq!(copies(backups.path()), known);
    }
    drop(one);
    // It was opened no second time: it has tried before, and tries again.
    next_copy(backups.path(), &known).await;
    drop(two);
    let left = copies(backups.path());
    assert!(left.len() == 1 && !left.contains(&known[0]), "now they are its own: {left:?}");
}

#[test]
fn only_a_file_system_without_locks_is_used_without_one() {
    let has_none = |error: io::Error| backup::has_no_locks(&error);
    assert!(has_none(Errno::NOLCK.into()) && has_none(io::ErrorKind::Unsupported.into()));
    assert!(!has_none(Errno::IO.into()) && !has_none(Errno::ACCESS.into()));
}

#[tokio::test]
async fn a_copy_that_cannot_be_made_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let store = EmbeddedStore::open(dir.path()).await.unwrap().with_backups(Some(every(OFTEN, file.path())));
    for after in 0..20 {
        store.commit(Tx { writes: vec![append("l", after)], ..tx(Durability::Synced) }).await.unwrap();
    }
    assert_eq!(head(&store, "l").await, 20);
    store.close().await;
}
