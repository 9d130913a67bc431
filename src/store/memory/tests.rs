//! What this backend promises beside what every store does: memory follows what is alive.

use super::*;
use crate::store::{Write, conformance};

conformance::suite!(async { (std::sync::Arc::new(MemoryStore::default()), ()) });

fn partition(number: usize) -> Partition {
    Partition::new(format!("p/{number}"))
}

fn expiring(partition: Partition, ttl: Duration) -> Tx {
    let (key, log, counter) = (Key::from("document"), Key::from("log"), Key::from("counter"));
    Tx::new(partition)
        .write(Write::Put { key, value: bytes::Bytes::new(), ttl: Some(ttl) })
        .write(Write::Append { log: log.clone(), after: 0, entries: vec![bytes::Bytes::new()] })
        .write(Write::ExpireLog { log, ttl })
        .write(Write::Add { counter: counter.clone(), delta: 1, ceiling: None })
        .write(Write::ExpireCounter { counter, ttl })
}

#[tokio::test(start_paused = true)]
async fn expired_things_are_invisible_at_once_and_purged_by_later_commits() {
    let store = MemoryStore::default();
    let ttl = Duration::from_mins(1);
    for number in 0..100 {
        store.commit(expiring(partition(number), ttl)).await.unwrap();
    }
    assert_eq!(store.lock().partitions.len(), 100);
    tokio::time::advance(ttl).await;
    assert_eq!(store.get(&partition(7), &Key::from("document")).await, Ok(None));
    for _ in 0..100 {
        store.commit(Tx::new(partition(0))).await.unwrap();
    }
    let state = store.lock();
    assert!(state.partitions.is_empty());
    assert_eq!(state.expiries.due.len(), 0);
}

#[tokio::test]
async fn putting_again_does_not_pile_up_expiries() {
    let store = MemoryStore::default();
    for _ in 0..100 {
        let log = Key::from("log");
        let tx = expiring(partition(0), Duration::from_mins(1)).write(Write::DeleteLog { log });
        store.commit(tx).await.unwrap();
    }
    assert_eq!(store.lock().expiries.due.len(), 2, "the document's and the counter's");
}

#[tokio::test]
async fn partition_with_nothing_in_it_is_forgotten() {
    let store = MemoryStore::default();
    let (key, counter, log) = (Key::from("a"), Key::from("b"), Key::from("c"));
    let refused = Tx::new(partition(0)).put_at(key.clone(), 1, bytes::Bytes::new(), None);
    assert!(store.commit(refused).await.is_err());
    assert!(store.lock().partitions.is_empty());

    let fill = Tx::new(partition(0))
        .put_at(key.clone(), 0, bytes::Bytes::new(), None)
        .write(Write::Add { counter: counter.clone(), delta: 2, ceiling: None })
        .write(Write::Append { log: log.clone(), after: 0, entries: vec![bytes::Bytes::new()] });
    store.commit(fill).await.unwrap();
    assert_eq!(store.lock().partitions.len(), 1);
    let empty = Tx::new(partition(0))
        .write(Write::Delete { key })
        .write(Write::Add { counter, delta: -2, ceiling: None })
        .write(Write::DeleteLog { log });
    store.commit(empty).await.unwrap();
    assert!(store.lock().partitions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn leases_follow_the_paused_clock() {
    let store = MemoryStore::default();
    let (ttl, lease) = (Duration::from_secs(10), Key::from("driver"));
    assert!(store.acquire(&partition(0), &lease, ttl).await.unwrap().is_some());
    tokio::time::advance(Duration::from_millis(9_999)).await;
    assert_eq!(store.acquire(&partition(0), &lease, ttl).await, Ok(None));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(store.acquire(&partition(0), &lease, ttl).await.unwrap().is_some());
}
