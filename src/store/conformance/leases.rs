//! What leases and their fences promise.

use super::fixtures::*;
use crate::store::Check;

/// Puts a document if the fence holds.
async fn fenced(store: &dyn Store, partition: &Partition, lease: &str, fence: Fence) -> Result<(), CommitError> {
    let check = Check::Fence { lease: key(lease), fence };
    store.commit(Tx::new(partition.clone()).check(check).write(put("a", "", None))).await
}

fn refused(lease: &str) -> Result<(), CommitError> {
    Err(CommitError::Fenced { lease: key(lease) })
}

async fn renew(store: &dyn Store, partition: &Partition, fence: Fence, ttl: Duration) -> bool {
    store.renew(partition, &key("driver"), fence, ttl, &key("inbox")).await.unwrap().is_some()
}

async fn release(store: &dyn Store, partition: &Partition, fence: Fence) {
    store.release(partition, &key("driver"), fence).await.unwrap();
}

pub(crate) async fn lease_is_held_by_one(store: &dyn Store) {
    let (partition, other) = (partition(), partition());
    let attempts = (0..16).map(|_| acquire(store, &partition, "driver", LONG));
    let fences: Vec<Fence> = futures_util::future::join_all(attempts).await.into_iter().flatten().collect();
    assert_eq!(fences.len(), 1);
    assert_eq!(acquire(store, &partition, "driver", LONG).await, None);
    assert!(acquire(store, &partition, "other", LONG).await.is_some());
    assert!(acquire(store, &other, "driver", LONG).await.is_some());
    release(store, &partition, fences[0]).await;
    assert!(acquire(store, &partition, "driver", LONG).await.is_some());
}

pub(crate) async fn lease_that_ran_out_is_taken_over(store: &dyn Store) {
    let partition = partition();
    let former = acquire(store, &partition, "driver", SHORT).await.unwrap();
    let holder = until(async || acquire(store, &partition, "driver", LONG).await).await;
    assert!(holder > former);
    assert_eq!(acquire(store, &partition, "driver", LONG).await, None);
}

pub(crate) async fn fences_of_a_lease_grow(store: &dyn Store) {
    let partition = partition();
    let mut last = NEVER_GRANTED;
    for round in 0..20 {
        let fence = acquire(store, &partition, "driver", Duration::ZERO).await.unwrap();
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
        if round % 2 == 0 {
            release(store, &partition, fence).await;
        }
    }
}

pub(crate) async fn renewal_prolongs_a_lease(store: &dyn Store) {
    let partition = partition();
    let fence = acquire(store, &partition, "driver", SHORT).await.unwrap();
    assert!(renew(store, &partition, fence, LONG).await);
    let_short_run_out(store).await;
    assert_eq!(acquire(store, &partition, "driver", LONG).await, None);
    // From now, not from the end.
    assert!(renew(store, &partition, fence, SHORT).await);
    until(async || acquire(store, &partition, "driver", LONG).await).await;
}

pub(crate) async fn renewal_is_refused_after_takeover_or_release(store: &dyn Store) {
    let partition = partition();
    assert!(!renew(store, &partition, NEVER_GRANTED, LONG).await, "a lease that was never granted");
    let former = acquire(store, &partition, "driver", Duration::ZERO).await.unwrap();
    let holder = acquire(store, &partition, "driver", LONG).await.unwrap();
    assert!(!renew(store, &partition, former, LONG).await);
    assert!(renew(store, &partition, holder, LONG).await);
    release(store, &partition, holder).await;
    assert!(!renew(store, &partition, holder, LONG).await);
}

pub(crate) async fn renewal_of_a_lease_that_ran_out_holds_while_nobody_took_it(store: &dyn Store) {
    let partition = partition();
    let fence = acquire(store, &partition, "driver", Duration::ZERO).await.unwrap();
    assert!(renew(store, &partition, fence, LONG).await);
    assert_eq!(acquire(store, &partition, "driver", LONG).await, None);
}

pub(crate) async fn release_by_a_former_holder_changes_nothing(store: &dyn Store) {
    let partition = partition();
    let former = acquire(store, &partition, "driver", Duration::ZERO).await.unwrap();
    let holder = acquire(store, &partition, "driver", LONG).await.unwrap();
    release(store, &partition, former).await;
    assert_eq!(acquire(store, &partition, "driver", LONG).await, None);
    assert_eq!(fenced(store, &partition, "driver", holder).await, Ok(()));
    store.release(&partition, &key("free"), holder).await.unwrap();
}

pub(crate) async fn fence_holds_until_takeover_even_if_the_lease_ran_out(store: &dyn Store) {
    let (partition, other) = (partition(), partition());
    assert_eq!(
        fenced(store, &partition, "driver", NEVER_GRANTED).await,
        refused("driver"),
        "a lease that was never granted"
    );
    let former = acquire(store, &partition, "driver", Duration::ZERO).await.unwrap();
    assert_eq!(fenced(store, &partition, "driver", former).await, Ok(()));
    assert_eq!(fenced(store, &partition, "other", former).await, refused("other"));
    assert_eq!(fenced(store, &other, "driver", former).await, refused("driver"));
    let holder = acquire(store, &partition, "driver", LONG).await.unwrap();
    assert_eq!(fenced(store, &partition, "driver", former).await, refused("driver"));
    assert_eq!(
        fenced(store, &partition, "driver", Fence { token: holder.token + 1, ..holder }).await,
        refused("driver")
    );
    assert_eq!(fenced(store, &partition, "driver", holder).await, Ok(()));
    assert_eq!(get(store, &partition, "a").await, Some(document(2, "")));
}

pub(crate) async fn fence_is_void_after_release(store: &dyn Store) {
    let partition = partition();
    let fence = acquire(store, &partition, "driver", LONG).await.unwrap();
    release(store, &partition, fence).await;
    assert_eq!(fenced(store, &partition, "driver", fence).await, refused("driver"));
}

pub(crate) async fn change_releases_a_lease_with_it_and_only_its_holders(store: &dyn Store) {
    let partition = partition();
    let releasing = |fence, version| {
        let tx = Tx::new(partition.clone()).check(Check::Version { key: key("a"), version });
        Tx { releases: Some(Box::new((key("driver"), fence))), ..tx.write(put("a", "", None)) }
    };
    let former = acquire(store, &partition, "driver", Duration::ZERO).await.unwrap();
    let holder = acquire(store, &partition, "driver", LONG).await.unwrap();
    let refusal = store.commit(releasing(holder, 7)).await;
    assert_eq!(refusal, Err(CommitError::VersionConflict { key: key("a"), actual: 0 }));
    assert_eq!(fenced(store, &partition, "driver", holder).await, Ok(()), "nothing happened");
    assert_eq!(store.commit(releasing(former, 1)).await, Ok(()));
    assert_eq!(fenced(store, &partition, "driver", holder).await, Ok(()), "it was another's");
    assert_eq!(store.commit(releasing(holder, 3)).await, Ok(()));
    assert_eq!(get(store, &partition, "a").await, Some(document(4, "")));
    assert_eq!(fenced(store, &partition, "driver", holder).await, refused("driver"));
    assert!(!renew(store, &partition, holder, LONG).await);
    let next = acquire(store, &partition, "driver", LONG).await.unwrap();
    assert!(next > holder, "{next:?} after {holder:?}");
    let only = Tx { releases: Some(Box::new((key("driver"), next))), ..Tx::new(partition.clone()) };
    assert_eq!(store.commit(only).await, Ok(()));
    assert!(acquire(store, &partition, "driver", LONG).await.is_some());
}

pub(crate) async fn another_holders_nonce_is_another_fence(store: &dyn Store) {
    let partition = partition();
    let fence = acquire(store, &partition, "driver", LONG).await.unwrap();
    let other = Fence { nonce: fence.nonce ^ 1, ..fence };
    assert_eq!(fenced(store, &partition, "driver", other).await, refused("driver"));
    assert!(!renew(store, &partition, other, LONG).await);
    release(store, &partition, other).await;
    assert_eq!(fenced(store, &partition, "driver", fence).await, Ok(()));
}

pub(crate) async fn renewal_tells_how_long_a_log_is(store: &dyn Store) {
    let partition = partition();
    let fence = acquire(store, &partition, "driver", LONG).await.unwrap();
    let renew = async || store.renew(&partition, &key("driver"), fence, LONG, &key("inbox")).await.unwrap();
    assert_eq!(renew().await, Some(0));
    write(store, &partition, append("inbox", 0, &["a", "b"])).await.unwrap();
    assert_eq!(renew().await, Some(2));
}
