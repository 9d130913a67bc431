//! What counters promise.

use super::fixtures::*;

pub(crate) async fn unknown_counter_is_zero(store: &dyn Store) {
    assert_eq!(counter(store, &partition(), "spent").await, 0);
}

pub(crate) async fn adds_sum_up(store: &dyn Store) {
    let partition = partition();
    for (delta, sum) in [(5, 5), (0, 5), (-8, -3), (3, 0), (1_i64 << 52, 1 << 52)] {
        write(store, &partition, add("spent", delta, None)).await.unwrap();
        assert_eq!(counter(store, &partition, "spent").await, sum);
    }
}

pub(crate) async fn sum_may_reach_its_ceiling_and_not_pass_it(store: &dyn Store) {
    let partition = partition();
    let reached = |value| Err(CommitError::CeilingReached { counter: key("spent"), value });
    assert_eq!(write(store, &partition, add("spent", 11, Some(10))).await, reached(0));
    assert_eq!(write(store, &partition, add("spent", 7, Some(10))).await, Ok(()));
    assert_eq!(write(store, &partition, add("spent", 4, Some(10))).await, reached(7));
    assert_eq!(write(store, &partition, add("spent", 3, Some(10))).await, Ok(()));
    assert_eq!(write(store, &partition, add("spent", 1, Some(10))).await, reached(10));
    assert_eq!(counter(store, &partition, "spent").await, 10);
}

pub(crate) async fn ceiling_does_not_hold_back_a_negative_delta(store: &dyn Store) {
    let partition = partition();
    write(store, &partition, add("spent", 10, None)).await.unwrap();
    assert_eq!(write(store, &partition, add("spent", 0, Some(1))).await, Ok(()));
    assert_eq!(write(store, &partition, add("spent", -2, Some(1))).await, Ok(()));
    assert_eq!(counter(store, &partition, "spent").await, 8);
}

pub(crate) async fn deleted_counter_starts_at_zero(store: &dyn Store) {
    let partition = partition();
    let delete = || write(store, &partition, Write::DeleteCounter { counter: key("spent") });
    assert_eq!(delete().await, Ok(()), "a counter that is not there");
    write(store, &partition, add("spent", 10, None)).await.unwrap();
    assert_eq!(delete().await, Ok(()));
    assert_eq!(counter(store, &partition, "spent").await, 0);
    assert_eq!(write(store, &partition, add("spent", 1, Some(1))).await, Ok(()));
}

pub(crate) async fn expired_counter_is_gone_and_starts_again(store: &dyn Store) {
    let partition = partition();
    for ttl in [SHORT, Duration::ZERO] {
        write(store, &partition, add("spent", 10, None)).await.unwrap();
        write(store, &partition, expire("spent", ttl)).await.unwrap();
        until(async || (counter(store, &partition, "spent").await == 0).then_some(())).await;
        assert_eq!(write(store, &partition, add("spent", 1, Some(1))).await, Ok(()));
        assert_eq!(counter(store, &partition, "spent").await, 1);
        let_short_run_out(store).await;
        assert_eq!(counter(store, &partition, "spent").await, 1, "the new one does not expire with the old one");
        write(store, &partition, Write::DeleteCounter { counter: key("spent") }).await.unwrap();
    }
}

pub(crate) async fn adding_does_not_change_when_a_counter_expires(store: &dyn Store) {
    let partition = partition();
    write(store, &partition, add("spent", 1, None)).await.unwrap();
    write(store, &partition, add("kept", 1, None)).await.unwrap();
    for (name, ttl) in [("spent", LONG), ("spent", SHORT), ("kept", LONG), ("kept", Duration::MAX)] {
        write(store, &partition, expire(name, ttl)).await.unwrap();
        // By nothing, since the short time may be over already.
        write(store, &partition, add(name, 0, None)).await.unwrap();
    }
    let_short_run_out(store).await;
    assert_eq!(counter(store, &partition, "spent").await, 0);
    assert_eq!(counter(store, &partition, "kept").await, 1);
}

pub(crate) async fn expiry_of_an_unknown_counter_changes_nothing(store: &dyn Store) {
    let partition = partition();
    assert_eq!(write(store, &partition, expire("spent", SHORT)).await, Ok(()));
    write(store, &partition, add("spent", 1, None)).await.unwrap();
    // A counter that came to 0 was gone in between, and its expiry with it.
    write(store, &partition, add("back", 1, None)).await.unwrap();
    write(store, &partition, expire("back", LONG)).await.unwrap();
    write(store, &partition, add("back", -1, None)).await.unwrap();
    write(store, &partition, expire("back", SHORT)).await.unwrap();
    write(store, &partition, add("back", 1, None)).await.unwrap();
    let_short_run_out(store).await;
    assert_eq!((counter(store, &partition, "spent").await, counter(store, &partition, "back").await), (1, 1));
}

fn expire(counter: &str, ttl: Duration) -> Write {
    Write::ExpireCounter { counter: key(counter), ttl }
}
