//! What a transaction promises, and the store as a whole.

use futures_util::future::join_all;

use super::fixtures::*;
use crate::store::{Check, Durability};

pub(crate) async fn refused_transaction_changes_nothing(store: &dyn Store) {
    let partition = partition();
    let all_kinds = || {
        Tx::new(partition.clone())
            .write(put("a", "new", None))
            .write(Write::Delete { key: key("b") })
            .write(append("log", 1, &["new"]))
            .write(Write::DeleteLog { log: key("other") })
            .write(Write::ExpireLog { log: key("log"), ttl: Duration::ZERO })
            .write(add("spent", 5, None))
            .write(Write::DeleteCounter { counter: key("left") })
    };
    let start = Tx::new(partition.clone()).write(put("b", "old", None)).write(append("log", 0, &["old"]));
    let start = start.write(append("other", 0, &["old"])).write(add("left", 3, None));
    store.commit(start).await.unwrap();

    let refusals = [
        all_kinds().check(Check::Version { key: key("a"), version: 1 }),
        all_kinds().check(Check::Fence { lease: key("driver"), fence: NEVER_GRANTED }),
        all_kinds().write(append("third", 1, &["new"])),
        all_kinds().write(add("more", 2, Some(1))),
    ];
    for tx in refusals {
        assert!(store.commit(tx.clone()).await.is_err(), "{tx:?}");
        assert_eq!(get(store, &partition, "a").await, None);
        assert_eq!(get(store, &partition, "b").await, Some(document(1, "old")));
        assert_eq!(entries(store, &partition, "log").await, [bytes("old")]);
        assert_eq!(entries(store, &partition, "other").await, [bytes("old")]);
        assert_eq!(counter(store, &partition, "spent").await, 0);
        assert_eq!(counter(store, &partition, "left").await, 3);
    }

    store.commit(all_kinds()).await.unwrap();
    assert_eq!(get(store, &partition, "a").await, Some(document(1, "new")));
    assert_eq!(get(store, &partition, "b").await, None);
    assert_eq!(entries(store, &partition, "log").await, [""; 0]);
    assert_eq!(entries(store, &partition, "other").await, [""; 0]);
    assert_eq!(counter(store, &partition, "spent").await, 5);
    assert_eq!(counter(store, &partition, "left").await, 0);
}

pub(crate) async fn writes_happen_in_order_and_see_those_before(store: &dyn Store) {
    let partition = partition();
    let tx = Tx::new(partition.clone())
        .write(append("log", 0, &["a"]))
        .write(append("log", 1, &["b", "c"]))
        .write(append("log", 3, &["d"]))
        .write(append("replaced", 0, &["old"]))
        .write(Write::DeleteLog { log: key("replaced") })
        .write(append("replaced", 0, &["new"]))
        .write(append("expired", 0, &["old"]))
        .write(Write::ExpireLog { log: key("expired"), ttl: Duration::ZERO })
        .write(append("expired", 0, &["new"]))
        .write(put("a", "first", None))
        .write(put("a", "second", None))
        .write(put("b", "", None))
        .write(Write::Delete { key: key("b") })
        .write(add("spent", 6, Some(10)))
        .write(add("spent", -2, None))
        .write(add("spent", 6, Some(10)));
    assert_eq!(store.commit(tx).await, Ok(()));
    assert_eq!(entries(store, &partition, "log").await, ["a", "b", "c", "d"].map(bytes));
    assert_eq!(entries(store, &partition, "replaced").await, [bytes("new")]);
    assert_eq!(entries(store, &partition, "expired").await, [bytes("new")]);
    assert_eq!(get(store, &partition, "a").await, Some(document(2, "second")));
    assert_eq!(get(store, &partition, "b").await, None);
    assert_eq!(counter(store, &partition, "spent").await, 10);

    let twice = Tx::new(partition.clone()).write(append("log", 4, &["e"])).write(append("log", 4, &["f"]));
    let conflict = CommitError::SequenceConflict { log: key("log"), actual: 5 };
    assert_eq!(store.commit(twice).await, Err(conflict));
    let above = Tx::new(partition.clone()).write(add("more", 6, Some(10))).write(add("more", 6, Some(10)));
    let reached = CommitError::CeilingReached { counter: key("more"), value: 6 };
    assert_eq!(store.commit(above).await, Err(reached));
    let again = Tx::new(partition.clone()).write(Write::DeleteCounter { counter: key("spent") });
    assert_eq!(store.commit(again.write(add("spent", 10, Some(10)))).await, Ok(()));
}

pub(crate) async fn first_thing_that_does_not_hold_is_the_error(store: &dyn Store) {
    let partition = partition();
    let version = Check::Version { key: key("a"), version: 3 };
    let fence = Check::Fence { lease: key("driver"), fence: NEVER_GRANTED };
    let tx = || Tx::new(partition.clone()).write(append("log", 1, &["x"])).write(add("spent", 2, Some(1)));
    let conflict = CommitError::VersionConflict { key: key("a"), actual: 0 };
    assert_eq!(store.commit(tx().check(version.clone()).check(fence.clone())).await, Err(conflict));
    let fenced = CommitError::Fenced { lease: key("driver") };
    assert_eq!(store.commit(tx().check(fence).check(version)).await, Err(fenced));
    let sequence = CommitError::SequenceConflict { log: key("log"), actual: 0 };
    assert_eq!(store.commit(tx()).await, Err(sequence));
}

pub(crate) async fn logs_documents_counters_and_leases_have_their_own_names(store: &dyn Store) {
    let partition = partition();
    let all =
        Tx::new(partition.clone()).write(put("a", "x", None)).write(append("a", 0, &["y"])).write(add("a", 3, None));
    store.commit(all).await.unwrap();
    let fence = acquire(store, &partition, "a", LONG).await;
    assert!(fence.is_some());
    write(store, &partition, Write::Delete { key: key("a") }).await.unwrap();
    assert_eq!(entries(store, &partition, "a").await, [bytes("y")]);
    write(store, &partition, Write::DeleteLog { log: key("a") }).await.unwrap();
    assert_eq!(counter(store, &partition, "a").await, 3);
    write(store, &partition, Write::DeleteCounter { counter: key("a") }).await.unwrap();
    assert_eq!(acquire(store, &partition, "a", LONG).await, None);
}

pub(crate) async fn partitions_do_not_mix(store: &dyn Store) {
    let base = partition();
    // Whatever separates a partition from a key, these must not meet.
    let pairs =
        [("", "ab"), ("a", "b"), ("ab", ""), ("a/", "b"), ("a", "/b"), ("a\0", "b"), ("a", "\0b"), ("a:", ":b")];
    let partitions = pairs.map(|(part, name)| (Partition::new(format!("{}{part}", base.as_str())), name));
    for (index, (partition, name)) in partitions.iter().enumerate() {
        let text = index.to_string();
        let delta = i64::try_from(index).unwrap() + 1;
        let tx = Tx::new(partition.clone()).put_at(key(name), 0, bytes(&text), None);
        store.commit(tx.write(append(name, 0, &[&text])).write(add(name, delta, None))).await.unwrap();
        assert!(acquire(store, partition, name, LONG).await.is_some());
    }
    for (index, (partition, name)) in partitions.iter().enumerate() {
        let text = index.to_string();
        assert_eq!(get(store, partition, name).await, Some(document(1, &text)));
        assert_eq!(entries(store, partition, name).await, [bytes(&text)]);
        assert_eq!(counter(store, partition, name).await, i64::try_from(index).unwrap() + 1);
    }
}

pub(crate) async fn one_of_many_concurrent_writers_wins(store: &dyn Store) {
    let partition = partition();
    let put_at = |text: String| store.commit(Tx::new(partition.clone()).put_at(key("a"), 0, Bytes::from(text), None));
    let results = join_all((0..16).map(|number| put_at(number.to_string()))).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let appends = join_all((0..16).map(|_| write(store, &partition, append("log", 0, &["x"])))).await;
    assert_eq!(appends.iter().filter(|result| result.is_ok()).count(), 1);
    assert_eq!(entries(store, &partition, "log").await, [bytes("x")]);
}

pub(crate) async fn concurrent_adds_do_not_pass_the_ceiling(store: &dyn Store) {
    let partition = partition();
    let results = join_all((0..32).map(|_| write(store, &partition, add("spent", 3, Some(50))))).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 16);
    assert_eq!(counter(store, &partition, "spent").await, 48);
}

pub(crate) async fn both_durabilities_are_read_back_at_once(store: &dyn Store) {
    let partition = partition();
    for (number, durability) in [(1, Durability::Written), (2, Durability::Synced), (3, Durability::Written)] {
        let text = number.to_string();
        let mut tx = Tx::new(partition.clone()).write(put("a", &text, None)).write(append("log", number - 1, &[&text]));
        tx.durability = durability;
        store.commit(tx).await.unwrap();
        assert_eq!(get(store, &partition, "a").await, Some(document(number, &text)));
        assert_eq!(entries(store, &partition, "log").await.len() as u64, number);
    }
}

pub(crate) async fn commit_nudges_who_watches_its_topic(store: &dyn Store) {
    let partition = partition();
    let topic = Topic::new(partition.clone(), "events");
    let mut watches = [store.watch(&topic), store.watch(&topic)];
    for number in 0..3 {
        let mut tx = Tx::new(partition.clone()).write(append("log", number, &["x"]));
        tx.notify = Some(topic.clone());
        store.commit(tx).await.unwrap();
        for watch in &mut watches {
            tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.unwrap();
        }
        // A reader that is nudged finds what changed.
        assert_eq!(entries(store, &partition, "log").await.len() as u64, number + 1);
    }
}

pub(crate) async fn store_that_works_is_healthy(store: &dyn Store) {
    assert_eq!(store.health().await, Ok::<(), Unavailable>(()));
}
