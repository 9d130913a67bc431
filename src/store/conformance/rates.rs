//! What buckets promise.

use super::fixtures::*;
use crate::store::Rate;

const SLOW: Rate = Rate { burst: 3, every: LONG };

async fn take(store: &dyn Store, partition: &Partition, bucket: &str, rate: Rate) -> (bool, u32) {
    let taken = store.take(partition, &key(bucket), rate).await.unwrap();
    (taken.allowed, taken.remaining)
}

pub(crate) async fn bucket_gives_its_burst_and_then_one_at_a_time(store: &dyn Store) {
    let partition = partition();
    for remaining in [2, 1, 0] {
        assert_eq!(take(store, &partition, "knocks", SLOW).await, (true, remaining));
    }
    let refused = store.take(&partition, &key("knocks"), SLOW).await.unwrap();
    assert!(!refused.allowed && refused.reset <= LONG && refused.reset > LONG / 2, "{refused:?}");
    let quick = Rate { burst: 1, every: SHORT };
    assert_eq!(take(store, &partition, "quick", quick).await, (true, 0));
    until(async || store.take(&partition, &key("quick"), quick).await.unwrap().allowed.then_some(())).await;
}

pub(crate) async fn buckets_do_not_mix(store: &dyn Store) {
    let (partition, other) = (partition(), partition());
    for bucket in ["a", "b"] {
        assert_eq!(take(store, &partition, bucket, SLOW).await, (true, 2));
    }
    assert_eq!(take(store, &other, "a", SLOW).await, (true, 2));
}
