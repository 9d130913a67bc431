//! What scans promise.

use super::fixtures::*;

use Order::{Ascending, Descending};

async fn keys(
    store: &dyn Store,
    partition: &Partition,
    prefix: &str,
    after: Option<&str>,
    order: Order,
) -> Vec<String> {
    scan(store, partition, prefix, after, order, 100).await
}

async fn scan(
    store: &dyn Store,
    partition: &Partition,
    prefix: &str,
    after: Option<&str>,
    order: Order,
    limit: usize,
) -> Vec<String> {
    let scan = Scan { prefix: prefix.into(), after: after.map(Into::into), limit, order };
    let found = store.scan(partition, scan).await.unwrap();
    for (key, document) in &found {
        assert_eq!(document, &super::fixtures::document(1, key));
    }
    found.into_iter().map(|(key, _)| key).collect()
}

/// Documents whose values are their keys.
async fn filled(store: &dyn Store, names: &[&str]) -> Partition {
    let partition = partition();
    let tx = names.iter().fold(Tx::new(partition.clone()), |tx, name| tx.write(put(name, name, None)));
    store.commit(tx).await.unwrap();
    partition
}

pub(crate) async fn scan_returns_documents_by_key_prefix(store: &dyn Store) {
    let all = ["", "a", "run/", "run/1", "run/10", "run/2", "run/é", "run/\u{10FFFF}", "run0", "ruo"];
    let partition = filled(store, &all).await;
    assert_eq!(keys(store, &partition, "", None, Ascending).await, all);
    assert_eq!(keys(store, &partition, "run/", None, Ascending).await, all[2..8]);
    assert_eq!(keys(store, &partition, "run/1", None, Ascending).await, ["run/1", "run/10"]);
    assert_eq!(keys(store, &partition, "run/1", None, Descending).await, ["run/10", "run/1"]);
    assert_eq!(keys(store, &partition, "run/\u{10FFFF}", None, Descending).await, ["run/\u{10FFFF}"]);
    assert_eq!(keys(store, &partition, "none", None, Ascending).await, [""; 0]);
}

pub(crate) async fn scan_goes_on_after_a_key_in_either_order(store: &dyn Store) {
    let partition = filled(store, &["a", "b/1", "b/2", "b/3", "c"]).await;
    assert_eq!(keys(store, &partition, "b/", Some("b/1"), Ascending).await, ["b/2", "b/3"]);
    assert_eq!(keys(store, &partition, "b/", Some("b/3"), Descending).await, ["b/2", "b/1"]);
    // The key need not be there, nor begin with the prefix.
    assert_eq!(keys(store, &partition, "b/", Some("b/11"), Ascending).await, ["b/2", "b/3"]);
    assert_eq!(keys(store, &partition, "b/", Some("a"), Ascending).await, ["b/1", "b/2", "b/3"]);
    assert_eq!(keys(store, &partition, "b/", Some("c"), Descending).await, ["b/3", "b/2", "b/1"]);
    assert_eq!(keys(store, &partition, "b/", Some("c"), Ascending).await, [""; 0]);
    assert_eq!(keys(store, &partition, "b/", Some("a"), Descending).await, [""; 0]);
    assert_eq!(keys(store, &partition, "", Some("b/3"), Ascending).await, ["c"]);
    assert_eq!(keys(store, &partition, "", Some("b/1"), Descending).await, ["a"]);
}

pub(crate) async fn scan_stops_at_its_limit(store: &dyn Store) {
    let partition = filled(store, &["a", "b", "c"]).await;
    assert_eq!(scan(store, &partition, "", None, Ascending, 2).await, ["a", "b"]);
    assert_eq!(scan(store, &partition, "", None, Descending, 2).await, ["c", "b"]);
    assert_eq!(scan(store, &partition, "", None, Descending, 0).await, [""; 0]);
    assert_eq!(scan(store, &partition, "", None, Ascending, usize::MAX).await, ["a", "b", "c"]);
}

pub(crate) async fn scan_leaves_expired_documents_out(store: &dyn Store) {
    let partition = filled(store, &["a", "d"]).await;
    write(store, &partition, put("b", "b", Some(Duration::ZERO))).await.unwrap();
    write(store, &partition, put("c", "c", Some(LONG))).await.unwrap();
    assert_eq!(scan(store, &partition, "", None, Ascending, 2).await, ["a", "c"]);
    assert_eq!(scan(store, &partition, "", None, Descending, 3).await, ["d", "c", "a"]);
}

pub(crate) async fn scan_stays_in_its_partition(store: &dyn Store) {
    let partition = filled(store, &["m"]).await;
    for neighbour in ["", "\0", "!", "m"] {
        let neighbour = Partition::new(format!("{}{neighbour}", partition.as_str()));
        write(store, &neighbour, put("m", "m", None)).await.unwrap();
    }
    let below = Partition::new(&partition.as_str()[..partition.as_str().len() - 1]);
    write(store, &below, put("m", "m", None)).await.unwrap();
    // The partition itself was put to once more.
    let found = store.scan(&partition, Scan { prefix: String::new(), after: None, limit: 9, order: Descending }).await;
    assert_eq!(found, Ok(vec![("m".to_owned(), document(2, "m"))]));
}
