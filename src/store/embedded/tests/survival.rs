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
    store.close().await;
    for (hours, version) in [(0, 2), (2, 1)] {
        let killed = copy(dir.path());
        let now = now_ms() + hours * 3_600_000;
        let mut record = record::Encoder::new(2, now);
        record.change(&partition(), &[Write::Put { key: key("a"), value: Bytes::new(), ttl: None }]);
        let salt = [1; 16];
        std::fs::write(killed.path().join(start::JOURNAL), [&salt[..], &record.finish(&salt)].concat()).unwrap();
        let found = open(killed.path(), patient()).await.get(&partition(), &key("a")).await;
        assert_eq!(found, Ok(Some(Document { version, value: Bytes::new() })), "{hours} hours later");
    }
}

#[tokio::test]
async fn journal_that_redb_has_synced_is_not_applied_twice() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), patient()).await;
    for _ in 0..3 {
        store.commit(tx(Synced).write(add("spent", 10))).await.unwrap();
    }
    let before = copy(dir.path());
    let spent = async |dir: &Path| {
        let store = open(dir, patient()).await;
        store.counter(&partition(), &key("spent")).await
    };
    // Killed after redb synced and before the journal was written again: at a close, and at a start.
    store.close().await;
    let killed = copy(dir.path());
    assert_eq!(spent(killed.path()).await, Ok(30));
    for _ in 0..2 {
        std::fs::copy(before.path().join(start::JOURNAL), killed.path().join(start::JOURNAL)).unwrap();
        assert_eq!(spent(killed.path()).await, Ok(30));
    }
    let killed = before;
    let journal = copy(killed.path());
    for _ in 0..2 {
        assert_eq!(spent(killed.path()).await, Ok(30));
        std::fs::copy(journal.path().join(start::JOURNAL), killed.path().join(start::JOURNAL)).unwrap();
    }

    // What is written from then on is replayed once, too.
    let reopened = open(killed.path(), patient()).await;
    reopened.commit(tx(Written).write(add("spent", 100))).await.unwrap();
    let killed = copy(killed.path());
    assert_eq!(spent(killed.path()).await, Ok(130));
    assert_eq!(spent(killed.path()).await, Ok(130));
}

#[tokio::test]
async fn journal_torn_at_any_byte_of_its_tail_keeps_what_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), patient()).await;
    store.commit(tx(Written).write(append("log", 0))).await.unwrap();
    store.commit(tx(Synced).write(append("log", 1))).await.unwrap();
    let killed = copy(dir.path());
    let journal = std::fs::read(killed.path().join(start::JOURNAL)).unwrap();
    let [_, first, second] = journal::tests::ends(&journal)[..] else { panic!("two records") };
    for end in first..=second {
        let torn = copy(killed.path());
        // What was not written is what lay there before, or the end of the file.
        let mut bytes = journal[..end].to_vec();
        if end % 2 == 0 {
            bytes.resize(journal.len(), 0);
        }
        std::fs::write(torn.path().join(start::JOURNAL), bytes).unwrap();
        let whole = if end == second { 2 } else { 1 };
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
