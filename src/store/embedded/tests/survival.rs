//! What is there after a kill.

use Durability::{Synced, Written};
use proptest::test_runner::TestCaseError;

use super::*;
use crate::store::conformance::histories;

#[tokio::test]
async fn everything_acknowledged_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), patient()).await;
    for (number, durability) in [Written, Written, Synced, Synced, Written, Written].into_iter().enumerate() {
        let number = number as u64;
        let write = Write::Put { key: key("a"), value: Bytes::from(number.to_string()), ttl: None };
        store.commit(tx(durability).write(append("log", number)).write(write)).await.unwrap();

        let killed = copy(dir.path());
        let reopened = open(killed.path(), patient()).await;
        assert_eq!(head(&reopened, "log").await, number + 1, "after {durability:?}");
        let expected = Document { version: number + 1, value: Bytes::from(number.to_string()) };
        assert_eq!(reopened.get(&partition(), &key("a")).await, Ok(Some(expected)));
        reopened.commit(tx(Written).write(append("log", number + 1))).await.unwrap();
    }
}

#[tokio::test]
async fn synced_changes_survive_without_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), patient()).await;
    store.commit(tx(Written).write(append("log", 0))).await.unwrap();
    store.commit(tx(Synced).write(append("log", 1))).await.unwrap();
    store.commit(tx(Written).write(append("log", 2))).await.unwrap();
    let killed = copy(dir.path());
    std::fs::remove_file(killed.path().join(start::JOURNAL)).unwrap();
    assert_eq!(head(&open(killed.path(), patient()).await, "log").await, 2);
}

#[test]
fn random_histories_survive_a_kill() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = histories::runner(32).run(&histories::histories(), |history| {
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let store = open(dir.path(), patient()).await;
            let model = histories::play(&store, &partition(), &history).await;
            let killed = copy(dir.path());
            model.assert_is_in(&open(killed.path(), patient()).await, &partition()).await;
            Ok::<(), TestCaseError>(())
        })
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[tokio::test]
async fn changes_are_replayed_as_of_the_time_they_were_made() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), patient()).await;
    store.commit(tx(Synced).put_at(key("a"), 0, Bytes::new(), Some(Duration::from_hours(1)))).await.unwrap();
    for (hours, version) in [(0, 2), (2, 1)] {
        let killed = copy(dir.path());
        let now = now_ms() + hours * 3_600_000;
        let mut record = record::Encoder::new(2, now);
        record.change(&partition(), &[Write::Put { key: key("a"), value: Bytes::new(), ttl: None }]);
        std::fs::write(killed.path().join(start::JOURNAL), record.finish()).unwrap();
        let found = open(killed.path(), patient()).await.get(&partition(), &key("a")).await;
        assert_eq!(found, Ok(Some(Document { version, value: Bytes::new() })), "{hours} hours later");
    }
}

#[tokio::test]
async fn journal_that_was_not_emptied_after_a_sync_is_not_applied_twice() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), patient()).await;
    for _ in 0..3 {
        store.commit(tx(Written).write(add("spent", 10))).await.unwrap();
    }
    let before = copy(dir.path());
    store.commit(tx(Synced).write(add("spent", 1))).await.unwrap();
    let killed = copy(dir.path());
    std::fs::copy(before.path().join(start::JOURNAL), killed.path().join(start::JOURNAL)).unwrap();
    let reopened = open(killed.path(), patient()).await;
    assert_eq!(reopened.counter(&partition(), &key("spent")).await, Ok(31));

    // What is written from then on is replayed once, too.
    reopened.commit(tx(Written).write(add("spent", 100))).await.unwrap();
    let killed = copy(killed.path());
    assert_eq!(open(killed.path(), patient()).await.counter(&partition(), &key("spent")).await, Ok(131));
}

#[tokio::test]
async fn journal_torn_at_any_byte_of_its_tail_keeps_what_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), patient()).await;
    store.commit(tx(Written).write(append("log", 0))).await.unwrap();
    let first = std::fs::metadata(dir.path().join(start::JOURNAL)).unwrap().len();
    store.commit(tx(Written).write(append("log", 1))).await.unwrap();
    let killed = copy(dir.path());
    let journal = std::fs::read(killed.path().join(start::JOURNAL)).unwrap();
    for end in usize::try_from(first).unwrap()..=journal.len() {
        let torn = copy(killed.path());
        std::fs::write(torn.path().join(start::JOURNAL), &journal[..end]).unwrap();
        let whole = if end == journal.len() { 2 } else { 1 };
        let reopened = open(torn.path(), patient()).await;
        assert_eq!(head(&reopened, "log").await, whole, "torn at {end}");
        // The torn record is no obstacle to the next one.
        reopened.commit(tx(Written).write(append("log", whole))).await.unwrap();
        if end % 20 == 0 {
            let again = open(copy(torn.path()).path(), patient()).await;
            assert_eq!(head(&again, "log").await, whole + 1, "torn at {end}");
        }
    }
}

#[tokio::test]
async fn clean_close_leaves_nothing_to_repair_or_replay() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), patient()).await;
    store.commit(tx(Written).write(add("spent", 10))).await.unwrap();
    store.close().await;
    let database = Database::builder()
        .set_repair_callback(redb::RepairSession::abort)
        .open(dir.path().join(start::DATABASE))
        .unwrap();
    drop(database);
    assert_eq!(open(dir.path(), patient()).await.counter(&partition(), &key("spent")).await, Ok(10));
}
