//! What leases and their fences promise.

use super::fixtures::*;
use crate::store::Check;

/// Puts a document if the fence holds.
async fn fenced(store: &dyn Store, place: &Partition, lease: &str, fence: Fence) -> Result<(), CommitError> {
    let check = Check::Fence { lease: key(lease), fence };
    store.commit(Tx::new(place.clone()).check(check).write(put("a", "", None))).await
}

fn refused(lease: &str) -> Result<(), CommitError> {
    Err(CommitError::Fenced { lease: key(lease) })
}

async fn renew(store: &dyn Store, place: &Partition, fence: Fence, ttl: Duration) -> bool {
    store.renew(place, &key("driver"), fence, ttl, &key("mail")).await.unwrap().is_some()
}

async fn release(store: &dyn Store, place: &Partition, fence: Fence) {
    store.release(place, &key("driver"), fence).await.unwrap();
}

pub(crate) async fn lease_is_held_by_one(store: &dyn Store) {
    let place = partition();
    let attempts = (0..16).map(|_| acquire(store, &place, "driver", LONG));
    let fences: Vec<Fence> = futures_util::future::join_all(attempts).await.into_iter().flatten().collect();
    assert_eq!(fences.len(), 1);
    assert_eq!(acquire(store, &place, "driver", LONG).await, None);
    assert!(acquire(store, &place, "other", LONG).await.is_some());
    assert!(acquire(store, &partition(), "driver", LONG).await.is_some());
    release(store, &place, fences[0]).await;
    assert!(acquire(store, &place, "driver", LONG).await.is_some());
}

pub(crate) async fn lease_that_ran_out_is_taken_over(store: &dyn Store) {
    let place = partition();
    let former = acquire(store, &place, "driver", SHORT).await.unwrap();
    let holder = until(async || acquire(store, &place, "driver", LONG).await).await;
    assert!(holder > former);
    assert_eq!(acquire(store, &place, "driver", LONG).await, None);
}

pub(crate) async fn fences_of_a_lease_grow(store: &dyn Store) {
    let place = partition();
    let mut last = NOBODYS;
    for round in 0..20 {
        let fence = acquire(store, &place, "driver", Duration::ZERO).await.unwrap();
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
        if round % 2 == 0 {
            release(store, &place, fence).await;
        }
    }
}

pub(crate) async fn renewal_prolongs_a_lease(store: &dyn Store) {
    let place = partition();
    let fence = acquire(store, &place, "driver", SHORT).await.unwrap();
    assert!(renew(store, &place, fence, LONG).await);
    let_short_run_out(store).await;
    assert_eq!(acquire(store, &place, "driver", LONG).await, None);
    // From now, not from the end.
    assert!(renew(store, &place, fence, SHORT).await);
    until(async || acquire(store, &place, "driver", LONG).await).await;
}

pub(crate) async fn renewal_is_refused_after_takeover_or_release(store: &dyn Store) {
    let place = partition();
    assert!(!renew(store, &place, NOBODYS, LONG).await, "a lease that nobody held");
    let former = acquire(store, &place, "driver", Duration::ZERO).await.unwrap();
    let holder = acquire(store, &place, "driver", LONG).await.unwrap();
    assert!(!renew(store, &place, former, LONG).await);
    assert!(renew(store, &place, holder, LONG).await);
    release(store, &place, holder).await;
    assert!(!renew(store, &place, holder, LONG).await);
}

pub(crate) async fn renewal_of_a_lease_that_ran_out_holds_while_nobody_took_it(store: &dyn Store) {
    let place = partition();
    let fence = acquire(store, &place, "driver", Duration::ZERO).await.unwrap();
    assert!(renew(store, &place, fence, LONG).await);
    assert_eq!(acquire(store, &place, "driver", LONG).await, None);
}

pub(crate) async fn release_by_a_former_holder_changes_nothing(store: &dyn Store) {
    let place = partition();
    let former = acquire(store, &place, "driver", Duration::ZERO).await.unwrap();
    let holder = acquire(store, &place, "driver", LONG).await.unwrap();
    release(store, &place, former).await;
    assert_eq!(acquire(store, &place, "driver", LONG).await, None);
    assert_eq!(fenced(store, &place, "driver", holder).await, Ok(()));
    store.release(&place, &key("nobody's"), holder).await.unwrap();
}

pub(crate) async fn fence_holds_until_takeover_even_if_the_lease_ran_out(store: &dyn Store) {
    let place = partition();
    assert_eq!(fenced(store, &place, "driver", NOBODYS).await, refused("driver"), "a lease that nobody held");
    let former = acquire(store, &place, "driver", Duration::ZERO).await.unwrap();
    assert_eq!(fenced(store, &place, "driver", former).await, Ok(()));
    assert_eq!(fenced(store, &place, "other", former).await, refused("other"));
    assert_eq!(fenced(store, &partition(), "driver", former).await, refused("driver"));
    let holder = acquire(store, &place, "driver", LONG).await.unwrap();
    assert_eq!(fenced(store, &place, "driver", former).await, refused("driver"));
    assert_eq!(fenced(store, &place, "driver", Fence { token: holder.token + 1, ..holder }).await, refused("driver"));
    assert_eq!(fenced(store, &place, "driver", holder).await, Ok(()));
    assert_eq!(get(store, &place, "a").await, Some(document(2, "")));
}

pub(crate) async fn fence_is_void_after_release(store: &dyn Store) {
    let place = partition();
    let fence = acquire(store, &place, "driver", LONG).await.unwrap();
    release(store, &place, fence).await;
    assert_eq!(fenced(store, &place, "driver", fence).await, refused("driver"));
}

pub(crate) async fn another_holders_nonce_is_another_fence(store: &dyn Store) {
    let place = partition();
    let fence = acquire(store, &place, "driver", LONG).await.unwrap();
    let other = Fence { nonce: fence.nonce ^ 1, ..fence };
    assert_eq!(fenced(store, &place, "driver", other).await, refused("driver"));
    assert!(!renew(store, &place, other, LONG).await);
    release(store, &place, other).await;
    assert_eq!(fenced(store, &place, "driver", fence).await, Ok(()));
}

pub(crate) async fn renewal_tells_how_long_a_log_is(store: &dyn Store) {
    let place = partition();
    let fence = acquire(store, &place, "driver", LONG).await.unwrap();
    let renew = async || store.renew(&place, &key("driver"), fence, LONG, &key("mail")).await.unwrap();
    assert_eq!(renew().await, Some(0));
    write(store, &place, append("mail", 0, &["a", "b"])).await.unwrap();
    assert_eq!(renew().await, Some(2));
}
