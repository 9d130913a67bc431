//! What logs promise.

use super::fixtures::*;

pub(crate) async fn unknown_log_is_empty(store: &dyn Store) {
    let page = store.read_log(&partition(), &key("log"), 7, 10).await;
    assert_eq!(page, Ok(LogPage { first: 8, entries: vec![], head: 0 }));
}

pub(crate) async fn entries_are_numbered_from_one_in_order(store: &dyn Store) {
    let partition = partition();
    write(store, &partition, append("log", 0, &["a", "b"])).await.unwrap();
    write(store, &partition, append("log", 2, &["c"])).await.unwrap();
    let page = store.read_log(&partition, &key("log"), 0, 10).await;
    assert_eq!(page, Ok(LogPage { first: 1, entries: vec![bytes("a"), bytes("b"), bytes("c")], head: 3 }));
}

pub(crate) async fn append_at_another_length_conflicts_and_names_the_actual_one(store: &dyn Store) {
    let partition = partition();
    let conflict = |actual| Err(CommitError::SequenceConflict { log: key("log"), actual });
    assert_eq!(write(store, &partition, append("log", 1, &["early"])).await, conflict(0));
    assert_eq!(write(store, &partition, append("log", 0, &["a", "b"])).await, Ok(()));
    assert_eq!(write(store, &partition, append("log", 0, &["late"])).await, conflict(2));
    assert_eq!(write(store, &partition, append("log", 3, &["early"])).await, conflict(2));
    assert_eq!(entries(store, &partition, "log").await, [bytes("a"), bytes("b")]);
}

pub(crate) async fn append_of_nothing_changes_nothing(store: &dyn Store) {
    let partition = partition();
    assert_eq!(write(store, &partition, append("log", 0, &[])).await, Ok(()));
    let conflict = CommitError::SequenceConflict { log: key("log"), actual: 0 };
    assert_eq!(write(store, &partition, append("log", 1, &[])).await, Err(conflict));
    assert_eq!(entries(store, &partition, "log").await, [""; 0]);
}

pub(crate) async fn page_holds_up_to_limit_entries_above_after(store: &dyn Store) {
    let partition = partition();
    write(store, &partition, append("log", 0, &["1", "2", "3", "4"])).await.unwrap();
    let expect = async |after, limit, first, texts: &[&str]| {
        let entries = texts.iter().map(|text| bytes(text)).collect();
        let page = store.read_log(&partition, &key("log"), after, limit).await;
        assert_eq!(page, Ok(LogPage { first, entries, head: 4 }));
    };
    expect(0, 2, 1, &["1", "2"]).await;
    expect(2, 1, 3, &["3"]).await;
    expect(2, usize::MAX, 3, &["3", "4"]).await;
    expect(1, 0, 2, &[]).await;
    expect(4, 9, 5, &[]).await;
    expect(9, 9, 10, &[]).await;
    expect(u64::MAX, 9, u64::MAX, &[]).await;
}

pub(crate) async fn page_of_long_entries_ends_early(store: &dyn Store) {
    let place = partition();
    let entries: Vec<Bytes> = [10, PAGE_BYTES - 11, 1, 1, 2 * PAGE_BYTES, 1].map(|size| vec![b'x'; size].into()).into();
    write(store, &place, Write::Append { log: key("log"), after: 0, entries: entries.clone() }).await.unwrap();
    for (after, count) in [(0, 3), (3, 2), (4, 1), (5, 1)] {
        let page = store.read_log(&place, &key("log"), after, 1000).await.unwrap();
        let first = usize::try_from(after).unwrap();
        assert!(page.entries == entries[first..first + count], "{} entries after {after}", page.entries.len());
        assert_eq!((page.first, page.head), (after + 1, 6));
    }
}

pub(crate) async fn deleted_log_is_empty_and_starts_again(store: &dyn Store) {
    let partition = partition();
    let delete = || write(store, &partition, Write::DeleteLog { log: key("log") });
    assert_eq!(delete().await, Ok(()), "a log that is not there");
    write(store, &partition, append("log", 0, &["a", "b"])).await.unwrap();
    write(store, &partition, Write::ExpireLog { log: key("log"), ttl: SHORT }).await.unwrap();
    assert_eq!(delete().await, Ok(()));
    assert_eq!(entries(store, &partition, "log").await, [""; 0]);
    write(store, &partition, append("log", 0, &["c"])).await.unwrap();
    // The former log's expiry went with it.
    let_short_run_out(store).await;
    assert_eq!(entries(store, &partition, "log").await, [bytes("c")]);
}

pub(crate) async fn expired_log_is_empty_and_starts_again(store: &dyn Store) {
    let partition = partition();
    for (log, ttl) in [("at once", Duration::ZERO), ("short", SHORT), ("long", LONG), ("far", Duration::MAX)] {
        write(store, &partition, append(log, 0, &["a", "b"])).await.unwrap();
        write(store, &partition, Write::ExpireLog { log: key(log), ttl }).await.unwrap();
    }
    until(async || entries(store, &partition, "short").await.is_empty().then_some(())).await;
    for log in ["at once", "short"] {
        assert_eq!(entries(store, &partition, log).await, [""; 0]);
        assert_eq!(write(store, &partition, append(log, 0, &["c"])).await, Ok(()));
    }
    let_short_run_out(store).await;
    for log in ["at once", "short"] {
        assert_eq!(entries(store, &partition, log).await, [bytes("c")], "the new log lasts");
    }
    for log in ["long", "far"] {
        assert_eq!(entries(store, &partition, log).await, [bytes("a"), bytes("b")]);
    }
}

pub(crate) async fn appending_does_not_change_when_a_log_expires(store: &dyn Store) {
    // On a slow machine the log may be gone before the second append: then once more.
    let partition = until(async || {
        let partition = partition();
        let start = Tx::new(partition.clone()).write(append("log", 0, &["a"]));
        let expire = Write::ExpireLog { log: key("log"), ttl: Duration::from_millis(200) };
        store.commit(start.write(expire)).await.unwrap();
        write(store, &partition, append("log", 1, &["b"])).await.is_ok().then_some(partition)
    })
    .await;
    until(async || entries(store, &partition, "log").await.is_empty().then_some(())).await;
}

pub(crate) async fn expiry_of_an_unknown_log_changes_nothing(store: &dyn Store) {
    let partition = partition();
    write(store, &partition, Write::ExpireLog { log: key("log"), ttl: SHORT }).await.unwrap();
    write(store, &partition, append("log", 0, &["a"])).await.unwrap();
    let_short_run_out(store).await;
    assert_eq!(entries(store, &partition, "log").await, [bytes("a")]);
}
