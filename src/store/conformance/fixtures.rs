//! What the cases are written with.

pub(super) use std::time::Duration;

pub(super) use bytes::Bytes;
use uuid::Uuid;

pub(super) use crate::store::{
    CommitError, Document, Fence, Key, LogPage, Order, PAGE_BYTES, Partition, Scan, Store, Topic, Tx, Unavailable,
    Write,
};

/// A fence that was never granted.
pub(super) const NEVER_GRANTED: Fence = Fence { token: 1, nonce: 0 };

/// A TTL that no test outlasts.
pub(super) const LONG: Duration = Duration::from_hours(1);

/// A TTL that tests wait for.
pub(super) const SHORT: Duration = Duration::from_millis(20);

/// A partition that no other case uses.
pub(super) fn partition() -> Partition {
    Partition::new(format!("test/{}", Uuid::now_v7()))
}

pub(super) fn key(name: &str) -> Key {
    Key::from(name)
}

pub(super) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(super) fn document(version: u64, text: &str) -> Document {
    Document { version, value: bytes(text) }
}

pub(super) fn put(name: &str, text: &str, ttl: Option<Duration>) -> Write {
    Write::Put { key: key(name), value: bytes(text), ttl }
}

pub(super) fn append(log: &str, after: u64, entries: &[&str]) -> Write {
    Write::Append { log: key(log), after, entries: entries.iter().map(|entry| bytes(entry)).collect() }
}

pub(super) fn add(counter: &str, delta: i64, ceiling: Option<i64>) -> Write {
    Write::Add { counter: key(counter), delta, ceiling }
}

pub(super) async fn write(store: &dyn Store, partition: &Partition, write: Write) -> Result<(), CommitError> {
    store.commit(Tx::new(partition.clone()).write(write)).await
}

pub(super) async fn get(store: &dyn Store, partition: &Partition, name: &str) -> Option<Document> {
    store.get(partition, &key(name)).await.unwrap()
}

/// All of a log.
pub(super) async fn entries(store: &dyn Store, partition: &Partition, log: &str) -> Vec<Bytes> {
    let page = store.read_log(partition, &key(log), 0, 1000).await.unwrap();
    assert_eq!((page.first, page.head), (1, page.entries.len() as u64));
    page.entries
}

pub(super) async fn counter(store: &dyn Store, partition: &Partition, name: &str) -> i64 {
    store.counter(partition, &key(name)).await.unwrap()
}

pub(super) async fn acquire(store: &dyn Store, partition: &Partition, lease: &str, ttl: Duration) -> Option<Fence> {
    store.acquire(partition, &key(lease), ttl).await.unwrap()
}

/// Tries until there is something, for at most ten seconds.
pub(super) async fn until<T>(mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let search = async {
        loop {
            if let Some(found) = attempt().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), search).await.expect("it happens within ten seconds")
}

/// Waits until everything taken or put with [`SHORT`] before this call has run out.
pub(super) async fn let_short_run_out(store: &dyn Store) {
    let partition = partition();
    assert!(acquire(store, &partition, "clock", SHORT).await.is_some());
    write(store, &partition, put("clock", "", Some(SHORT))).await.unwrap();
    until(async || get(store, &partition, "clock").await.is_none().then_some(())).await;
    until(async || acquire(store, &partition, "clock", SHORT).await).await;
}
