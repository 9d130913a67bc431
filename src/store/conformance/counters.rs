//! What counters promise.

use super::*;

pub(crate) async fn unknown_counter_is_zero(store: &dyn Store) {
    assert_eq!(counter(store, &partition(), "spent").await, 0);
}

pub(crate) async fn adds_sum_up(store: &dyn Store) {
    let place = partition();
    for (delta, sum) in [(5, 5), (0, 5), (-8, -3), (3, 0), (1_i64 << 52, 1 << 52)] {
        write(store, &place, add("spent", delta, None)).await.unwrap();
        assert_eq!(counter(store, &place, "spent").await, sum);
    }
}

pub(crate) async fn sum_may_reach_its_ceiling_and_not_pass_it(store: &dyn Store) {
    let place = partition();
    let reached = |value| Err(CommitError::CeilingReached { counter: key("spent"), value });
    assert_eq!(write(store, &place, add("spent", 11, Some(10))).await, reached(0));
    assert_eq!(write(store, &place, add("spent", 7, Some(10))).await, Ok(()));
    assert_eq!(write(store, &place, add("spent", 4, Some(10))).await, reached(7));
    assert_eq!(write(store, &place, add("spent", 3, Some(10))).await, Ok(()));
    assert_eq!(write(store, &place, add("spent", 1, Some(10))).await, reached(10));
    assert_eq!(counter(store, &place, "spent").await, 10);
}

pub(crate) async fn ceiling_does_not_hold_back_a_negative_delta(store: &dyn Store) {
    let place = partition();
    write(store, &place, add("spent", 10, None)).await.unwrap();
    assert_eq!(write(store, &place, add("spent", 0, Some(1))).await, Ok(()));
    assert_eq!(write(store, &place, add("spent", -2, Some(1))).await, Ok(()));
    assert_eq!(counter(store, &place, "spent").await, 8);
}

pub(crate) async fn deleted_counter_starts_at_zero(store: &dyn Store) {
    let place = partition();
    let delete = || write(store, &place, Write::DeleteCounter { counter: key("spent") });
    assert_eq!(delete().await, Ok(()), "a counter that is not there");
    write(store, &place, add("spent", 10, None)).await.unwrap();
    assert_eq!(delete().await, Ok(()));
    assert_eq!(counter(store, &place, "spent").await, 0);
    assert_eq!(write(store, &place, add("spent", 1, Some(1))).await, Ok(()));
}
