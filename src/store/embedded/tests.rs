//! What this backend promises beside what every store does: survival, and sense in the face of
//! damage.
//!
//! A killed process leaves its files as they are, so a copy of the directory of an open store is what
//! a kill at that moment would leave. Nothing is synced behind the copier's back: the tests that copy
//! set no time for it.

mod backups;
mod faults;
mod files;
mod survival;
mod syncs;

use std::path::Path;

use bytes::Bytes;
use redb::Database;
use tempfile::TempDir;

pub(super) use self::files::Faulty;
pub(crate) use self::files::counted;
use super::*;
use crate::store::{Check, Durability, Write, conformance};
use crate::types::clock::now_ms;

conformance::suite!(async {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).await.unwrap();
    (Box::new(store), dir)
});

/// Settings under which redb syncs when the journal is half full only.
fn patient() -> Settings {
    Settings { sync_after: Duration::from_hours(1), ..Settings::default() }
}

async fn open(dir: &Path, settings: Settings) -> EmbeddedStore {
    EmbeddedStore::start(dir.to_owned(), settings, FileBackend::new).await.unwrap()
}

/// A copy of what lies in a store's directory.
fn copy(dir: &Path) -> TempDir {
    let copied = tempfile::tempdir().unwrap();
    for name in [start::DATABASE, start::JOURNAL] {
        std::fs::copy(dir.join(name), copied.path().join(name)).unwrap();
    }
    copied
}

fn partition() -> Partition {
    Partition::new("acme/session/s")
}

fn key(name: &str) -> Key {
    Key::from(name)
}

fn tx(durability: Durability) -> Tx {
    Tx { durability, ..Tx::new(partition()) }
}

fn append(log: &str, after: u64) -> Write {
    Write::Append { log: key(log), after, entries: vec![Bytes::from_static(b"entry")] }
}

fn add(counter: &str, delta: i64) -> Write {
    Write::Add { counter: key(counter), delta, ceiling: None }
}

async fn head(store: &EmbeddedStore, log: &str) -> u64 {
    store.read_log(&partition(), &key(log), 0, 0).await.unwrap().head
}

#[tokio::test]
async fn directory_is_made_and_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/data");
    let store = EmbeddedStore::open(&path).await.unwrap();
    assert_eq!(EmbeddedStore::open(&path).await.unwrap_err(), OpenError::InUse(path.clone()));
    store.commit(tx(Durability::Written).write(append("log", 0))).await.unwrap();
    drop(store);
    let store = EmbeddedStore::open(&path).await.unwrap();
    assert_eq!(head(&store, "log").await, 1);
}

#[tokio::test]
async fn closed_store_lets_go_of_its_files_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), patient()).await;
    store.commit(tx(Durability::Written).write(append("log", 0))).await.unwrap();
    store.close().await;
    store.close().await;
    let closed = Unavailable("the store was closed".into());
    assert_eq!(store.commit(tx(Durability::Written)).await, Err(closed.clone().into()));
    assert_eq!(store.get(&partition(), &key("a")).await, Err(closed.clone()));
    assert_eq!(store.health().await, Err(closed));
    assert_eq!(head(&open(dir.path(), patient()).await, "log").await, 1);
}

#[tokio::test]
async fn leases_are_void_after_a_kill_and_fences_grow_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), patient()).await;
    let ttl = Duration::from_hours(1);
    let mut last = store.acquire(&partition(), &key("driver"), ttl).await.unwrap().unwrap();
    let mut killed = copy(dir.path());
    for _ in 0..3 {
        let store = open(killed.path(), patient()).await;
        let fenced = Check::Fence { lease: key("driver"), fence: last };
        let refusal = CommitError::Fenced { lease: key("driver") };
        assert_eq!(store.commit(tx(Durability::Written).check(fenced)).await, Err(refusal));
        let fence = store.acquire(&partition(), &key("driver"), ttl).await.unwrap().unwrap();
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
        killed = copy(killed.path());
    }
}

#[tokio::test]
async fn fences_grow_on_when_the_clock_was_set_back() {
    let dir = tempfile::tempdir().unwrap();
    let writer = start::open(dir.path(), patient(), FileBackend::new).unwrap();
    let ahead = now_ms() * 1000 * 2;
    let txn = writer.shared.database().as_ref().unwrap().begin_write().unwrap();
    tables::Tables::open(&txn).unwrap().set_meta(tables::Meta::FenceCeiling, ahead).unwrap();
    txn.commit().unwrap();
    drop(writer);

    let mut last = Fence { token: ahead, nonce: 0 };
    for _ in 0..2 {
        let store = open(dir.path(), patient()).await;
        let fence = store.acquire(&partition(), &key("driver"), Duration::ZERO).await.unwrap().unwrap();
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
    }
}

#[tokio::test]
async fn journal_stays_short_in_bytes_and_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let records = || {
        let bytes = std::fs::read(dir.path().join(start::JOURNAL)).unwrap();
        journal::tests::ends(&bytes).last().copied().unwrap()
    };
    let store = open(dir.path(), Settings { journal_bytes: 2000, ..patient() }).await;
    let (mut longest, mut last, mut begun_anew) = (0, 0, 0);
    for number in 0..50 {
        store.commit(tx(Durability::Written).write(append("log", number))).await.unwrap();
        begun_anew += usize::from(records() < last);
        last = records();
        longest = longest.max(last);
    }
    assert!(begun_anew > 2 && (1000..=2000).contains(&longest), "{longest} bytes, begun anew {begun_anew} times");
    // What the journal has no room for goes to redb.
    store
        .commit(tx(Durability::Synced).write(Write::Put { key: key("long"), value: vec![7; 3000].into(), ttl: None }))
        .await
        .unwrap();
    assert!(records() <= 2000);
    assert_eq!(
        open(copy(dir.path()).path(), patient())
            .await
            .get(&partition(), &key("long"))
            .await
            .unwrap()
            .unwrap()
            .value
            .len(),
        3000
    );
    store.close().await;

    let store = open(dir.path(), Settings { sync_after: Duration::from_millis(50), ..patient() }).await;
    store.commit(tx(Durability::Written).write(append("log", 50))).await.unwrap();
    let in_redb = async {
        loop {
            let killed = copy(dir.path());
            std::fs::remove_file(killed.path().join(start::JOURNAL)).unwrap();
            if head(&open(killed.path(), patient()).await, "log").await == 51 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), in_redb).await.unwrap();
}

#[tokio::test]
async fn rows_of_what_expired_or_was_removed_are_purged() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Settings { sync_after: Duration::from_millis(50), ..patient() }).await;
    let ttl = Some(Duration::ZERO);
    for number in 0..50_u64 {
        let mut tx = tx(Durability::Written);
        for name in 0..40 {
            tx = tx.write(Write::Put { key: format!("{number}/{name}").into(), value: Bytes::new(), ttl });
        }
        let entries = vec![Bytes::new(); 50];
        tx = tx.write(Write::Append { log: key("long"), after: 50 * number, entries: entries.clone() });
        let gone = Key::from(format!("gone/{number}"));
        tx = tx.write(Write::Append { log: gone.clone(), after: 0, entries });
        let counter = Key::from(format!("spent/{number}"));
        tx = tx.write(add(&counter, 1)).write(Write::ExpireCounter { counter, ttl: Duration::ZERO });
        store.commit(tx.write(Write::DeleteLog { log: gone })).await.unwrap();
    }
    let expire = Write::ExpireLog { log: key("long"), ttl: Duration::ZERO };
    store.commit(tx(Durability::Written).write(add("kept", 1)).write(expire)).await.unwrap();
    let emptied = async {
        loop {
            let rows = store.read(|txn, _| tables::rows(txn)).unwrap();
            if rows == [("counters", 1)] {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), emptied).await.unwrap();
}
