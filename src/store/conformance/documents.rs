//! What documents promise.

use super::fixtures::*;
use crate::store::Check;

pub(crate) async fn unknown_document_is_none(store: &dyn Store) {
    assert_eq!(get(store, &partition(), "a").await, None);
}

pub(crate) async fn each_put_makes_the_version_grow_by_one(store: &dyn Store) {
    let partition = partition();
    for version in 1..=3 {
        write(store, &partition, put("a", "text", None)).await.unwrap();
        assert_eq!(get(store, &partition, "a").await, Some(document(version, "text")));
    }
}

pub(crate) async fn put_at_version_zero_is_for_a_document_that_must_not_exist(store: &dyn Store) {
    let partition = partition();
    let create = |text| Tx::new(partition.clone()).put_at(key("a"), 0, bytes(text), None);
    assert_eq!(store.commit(create("first")).await, Ok(()));
    let conflict = CommitError::VersionConflict { key: key("a"), actual: 1 };
    assert_eq!(store.commit(create("second")).await, Err(conflict));
    assert_eq!(get(store, &partition, "a").await, Some(document(1, "first")));
}

pub(crate) async fn put_at_another_version_conflicts_and_names_the_actual_one(store: &dyn Store) {
    let partition = partition();
    let put_at = |version, text| Tx::new(partition.clone()).put_at(key("a"), version, bytes(text), None);
    let conflict = |actual| Err(CommitError::VersionConflict { key: key("a"), actual });
    assert_eq!(store.commit(put_at(1, "early")).await, conflict(0));
    assert_eq!(store.commit(put_at(0, "one")).await, Ok(()));
    assert_eq!(store.commit(put_at(1, "two")).await, Ok(()));
    assert_eq!(store.commit(put_at(1, "late")).await, conflict(2));
    assert_eq!(get(store, &partition, "a").await, Some(document(2, "two")));
}

pub(crate) async fn deleted_document_is_gone_and_starts_again(store: &dyn Store) {
    let partition = partition();
    let delete = || write(store, &partition, Write::Delete { key: key("a") });
    assert_eq!(delete().await, Ok(()), "a document that is not there");
    write(store, &partition, put("a", "old", Some(LONG))).await.unwrap();
    write(store, &partition, put("a", "old", Some(LONG))).await.unwrap();
    assert_eq!(delete().await, Ok(()));
    assert_eq!(get(store, &partition, "a").await, None);
    write(store, &partition, put("a", "new", None)).await.unwrap();
    assert_eq!(get(store, &partition, "a").await, Some(document(1, "new")));
}

pub(crate) async fn expired_document_is_gone_and_starts_again(store: &dyn Store) {
    let partition = partition();
    write(store, &partition, put("at once", "old", Some(Duration::ZERO))).await.unwrap();
    assert_eq!(get(store, &partition, "at once").await, None);
    write(store, &partition, put("far", "kept", Some(Duration::MAX))).await.unwrap();
    write(store, &partition, put("long", "kept", Some(LONG))).await.unwrap();
    write(store, &partition, put("short", "old", Some(SHORT))).await.unwrap();
    until(async || get(store, &partition, "short").await.is_none().then_some(())).await;
    assert_eq!(get(store, &partition, "far").await, Some(document(1, "kept")));
    assert_eq!(get(store, &partition, "long").await, Some(document(1, "kept")));
    for name in ["at once", "short"] {
        let again = Tx::new(partition.clone()).check(Check::Version { key: key(name), version: 0 });
        store.commit(again.write(put(name, "new", None))).await.unwrap();
        assert_eq!(get(store, &partition, name).await, Some(document(1, "new")));
    }
}

pub(crate) async fn ttl_lasts_until_the_next_put(store: &dyn Store) {
    let partition = partition();
    for name in ["without", "longer"] {
        write(store, &partition, put(name, "", Some(SHORT))).await.unwrap();
    }
    write(store, &partition, put("without", "kept", None)).await.unwrap();
    write(store, &partition, put("longer", "kept", Some(LONG))).await.unwrap();
    write(store, &partition, put("shorter", "", Some(LONG))).await.unwrap();
    write(store, &partition, put("shorter", "", Some(SHORT))).await.unwrap();
    let_short_run_out(store).await;
    let kept = |document: Option<Document>| document.map(|document| document.value);
    assert_eq!(kept(get(store, &partition, "without").await), Some(bytes("kept")));
    assert_eq!(kept(get(store, &partition, "longer").await), Some(bytes("kept")));
    assert_eq!(get(store, &partition, "shorter").await, None);
}

pub(crate) async fn values_are_opaque_bytes(store: &dyn Store) {
    let partition = partition();
    let long = Bytes::from(vec![7; 300_000]);
    for value in [Bytes::new(), Bytes::from_static(b"\0\xff\r\n{}"), long] {
        let put = Write::Put { key: key("a"), value: value.clone(), ttl: None };
        let append = Write::Append { log: key("a"), after: 0, entries: vec![value.clone()] };
        let again = Tx::new(partition.clone()).write(Write::DeleteLog { log: key("a") });
        store.commit(again.write(put).write(append)).await.unwrap();
        assert_eq!(get(store, &partition, "a").await.map(|document| document.value), Some(value.clone()));
        assert_eq!(entries(store, &partition, "a").await, [value]);
    }
}
