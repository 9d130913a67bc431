//! What every store promises, one case per promise.
//!
//! A backend's tests say `conformance::suite!(its constructor);` and get one test per case. The
//! constructor is an expression for a future of a pointer to an empty or shared store and whatever
//! must live as long as the store: each case works in partitions of its own.

mod commits;
mod counters;
mod documents;
mod fixtures;
pub(crate) mod histories;
mod leases;
mod logs;
mod rates;
mod scans;

pub(crate) use self::commits::*;
pub(crate) use self::counters::*;
pub(crate) use self::documents::*;
pub(crate) use self::leases::*;
pub(crate) use self::logs::*;
pub(crate) use self::rates::*;
pub(crate) use self::scans::*;
use crate::store::Store;

macro_rules! cases {
    ($($case:ident,)*) => {
        macro_rules! suite {
            ($make:expr) => {
                mod promises {
                    use super::*;

                    $(#[tokio::test]
                    async fn $case() {
                        let (store, _kept) = $make.await;
                        $crate::store::conformance::$case(&*store).await;
                        $crate::store::Store::close(&*store).await;
                    })*

                    #[test]
                    fn random_histories_agree_with_a_plain_model() {
                        $crate::store::conformance::histories::agree_with_a_plain_model(async || $make.await);
                    }
                }
            };
        }
        pub(crate) use suite;

        /// Every case on one store, for a backend that is costly to start.
        pub(crate) async fn all(store: &dyn Store) {
            $($case(store).await;)*
        }
    };
}

cases! {
    unknown_document_is_none,
    each_put_makes_the_version_grow_by_one,
    put_at_version_zero_is_for_a_document_that_must_not_exist,
    put_at_another_version_conflicts_and_names_the_actual_one,
    deleted_document_is_gone_and_starts_again,
    expired_document_is_gone_and_starts_again,
    ttl_lasts_until_the_next_put,
    values_are_opaque_bytes,

    scan_returns_documents_by_key_prefix,
    scan_goes_on_after_a_key_in_either_order,
    scan_stops_at_its_limit,
    scan_leaves_expired_documents_out,
    scan_stays_in_its_partition,

    unknown_log_is_empty,
    entries_are_numbered_from_one_in_order,
    append_at_another_length_conflicts_and_names_the_actual_one,
    append_of_nothing_changes_nothing,
    page_holds_up_to_limit_entries_above_after,
    page_of_long_entries_ends_early,
    deleted_log_is_empty_and_starts_again,
    expired_log_is_empty_and_starts_again,
    appending_does_not_change_when_a_log_expires,
    expiry_of_an_unknown_log_changes_nothing,

    unknown_counter_is_zero,
    adds_sum_up,
    sum_may_reach_its_ceiling_and_not_pass_it,
    ceiling_does_not_hold_back_a_negative_delta,
    deleted_counter_starts_at_zero,
    expired_counter_is_gone_and_starts_again,
    adding_does_not_change_when_a_counter_expires,
    expiry_of_an_unknown_counter_changes_nothing,

    refused_transaction_changes_nothing,
    writes_happen_in_order_and_see_those_before,
    first_thing_that_does_not_hold_is_the_error,
    logs_documents_counters_and_leases_have_their_own_names,
    partitions_do_not_mix,
    one_of_many_concurrent_writers_wins,
    concurrent_adds_do_not_pass_the_ceiling,
    both_durabilities_are_read_back_at_once,
    commit_nudges_who_watches_its_topic,
    store_that_works_is_healthy,

    lease_is_held_by_one,
    lease_that_ran_out_is_taken_over,
    fences_of_a_lease_grow,
    renewal_prolongs_a_lease,
    renewal_is_refused_after_takeover_or_release,
    renewal_of_a_lease_that_ran_out_holds_while_nobody_took_it,
    release_by_a_former_holder_changes_nothing,
    fence_holds_until_takeover_even_if_the_lease_ran_out,
    fence_is_void_after_release,
    change_releases_a_lease_with_it_and_only_its_holders,
    another_holders_nonce_is_another_fence,
    renewal_tells_how_long_a_log_is,

    bucket_gives_its_burst_and_then_one_at_a_time,
    buckets_do_not_mix,
}
