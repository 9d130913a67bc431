//! What is synced when, and what a loss of power leaves.

use std::pin::pin;

use futures_util::FutureExt as _;
use futures_util::future::join_all;

use super::files::{faulty, faulty_with, put_padding};
use super::*;

#[tokio::test]
async fn syncs_are_of_the_journal_and_shared_and_written_changes_cost_none() {
    let dir = tempfile::tempdir().unwrap();
    let (store, files) = faulty(dir.path()).await;
    let database = files.database.syncs();
    let size = || std::fs::metadata(dir.path().join(start::JOURNAL)).unwrap().len();
    for number in 0..100 {
        store.commit(tx(Durability::Written).write(append("log", number))).await.unwrap();
    }
    assert_eq!(files.journal.syncs(), 0);
    let allocated = size();
    for number in 0..20 {
        store.commit(tx(Durability::Synced).write(add("spent", 1))).await.unwrap();
        assert_eq!(files.journal.syncs(), number + 1);
    }
    let commits = (0..256).map(|_| store.commit(tx(Durability::Synced).write(add("spent", 1))));
    assert!(join_all(commits).await.iter().all(Result::is_ok));
    let syncs = files.journal.syncs() - 20;
    assert!((1..64).contains(&syncs), "{syncs} syncs for 256 commits");
    assert_eq!(
        (files.database.syncs(), size()),
        (database, allocated),
        "neither file is changed in size or kept waiting"
    );
}

#[tokio::test]
async fn what_needs_no_sync_waits_for_none_of_another_partition() {
    let dir = tempfile::tempdir().unwrap();
    let (store, files) = faulty(dir.path()).await;
    let commit = |name: &str, durability| {
        store.commit(Tx { partition: Partition::new(name), ..tx(durability).write(add("n", 1)) })
    };
    let held = files.journal.hold();
    let waiting = async {
        files.journal.is_held().await;
        // All three wait for the sync that is held up; the next one fails.
        let mut all = pin!(join_all([
            commit("session", Durability::Synced),
            commit("session", Durability::Written),
            commit("other", Durability::Written),
        ]));
        assert_eq!(all.as_mut().now_or_never(), None);
        files.journal.fail_syncs(true);
        drop(held);
        all.await
    };
    let (first, waiting) = tokio::join!(commit("first", Durability::Synced), waiting);
    assert_eq!(first, Ok(()));
    assert_eq!(waiting.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, false, true], "{waiting:?}");
    for (name, expected) in [("session", 0), ("other", 1)] {
        assert_eq!(store.counter(&Partition::new(name), &key("n")).await, Ok(expected), "{name}");
    }
}

#[tokio::test]
async fn what_was_synced_survives_a_power_cut_wherever_it_lies() {
    let dir = tempfile::tempdir().unwrap();
    // Half of the journal is some ten commits, so the cuts fall before and after syncs of the database.
    let (store, files) = faulty_with(dir.path(), Settings { journal_bytes: 4000, ..patient() }).await;
    let (mut synced, mut before) = (0, files.database.syncs());
    let mut database_syncs = 0;
    for number in 0..60 {
        let durability = if number % 3 == 0 { Durability::Synced } else { Durability::Written };
        store.commit(tx(durability).write(append("log", number)).write(add("spent", 1))).await.unwrap();
        if durability == Durability::Synced {
            synced = number + 1;
        }
        let now = files.database.syncs();
        (database_syncs, before) = (database_syncs + now - before, now);
        let left = files.after_a_power_cut();
        let reopened = open(left.path(), patient()).await;
        let found = head(&reopened, "log").await;
        assert!((synced..=number + 1).contains(&found), "{found} after {number}, of which {synced} were synced");
        assert_eq!(reopened.counter(&partition(), &key("spent")).await, Ok(i64::try_from(found).unwrap()));
    }
    assert!(database_syncs > 2, "{database_syncs} syncs of the database");
}

#[tokio::test]
async fn start_after_a_kill_applies_a_full_journal_with_few_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { journal_bytes: 1 << 20, ..patient() };
    let store = open(dir.path(), settings.clone()).await;
    let commits = (0..4000).map(|_| store.commit(tx(Durability::Written).write(add("spent", 1)).write(put_padding())));
    assert!(join_all(commits).await.iter().all(Result::is_ok));
    let killed = copy(dir.path());
    let size = std::fs::metadata(killed.path().join(start::JOURNAL)).unwrap().len();
    assert!(size <= settings.journal_bytes, "{size} bytes to read");
    let (reopened, files) = faulty(killed.path()).await;
    assert!(files.database.syncs() <= 8, "{} syncs", files.database.syncs());
    assert_eq!(reopened.counter(&partition(), &key("spent")).await, Ok(4000));
}
