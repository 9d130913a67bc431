//! Replicas over one store, each of which calls a model of an upstream that is well or not, and what they know of it.

mod replicas;
mod world;

use super::*;
use crate::llm::error_class::ErrorClass;
use crate::llm::health::breaker::Opening;

fn target() -> Target {
    Target { upstream: "u".into(), fingerprint: "".into(), model: "m".into() }
}

fn at(replica: &str, now_ms: u64) -> Editor<'_> {
    Editor { replica, now_ms }
}

fn open_for(streak: u32, until_ms: u64) -> Opening {
    Opening { class: ErrorClass::Overloaded, streak, until_ms }
}

fn put(edit: Edit) -> Entry {
    match edit {
        Edit::Put(entry) => entry,
        other @ (Edit::Keep | Edit::Delete) => panic!("{other:?}"),
    }
}

/// The document of a model that one replica probes, which was opened three times.
fn probed_by(replica: &str) -> Entry {
    let opened = put(at("x", 0).save(&target(), None, Change::Opened(open_for(3, 1_000))));
    put(at(replica, 1_000).claim(&target(), Some(&opened), None).0)
}

#[test]
fn a_replica_that_opens_a_breaker_late_leaves_the_probe_and_the_streak_as_they_are() {
    let probed = probed_by("a");
    let late = put(at("b", 2_000).save(&target(), Some(&probed), Change::Opened(open_for(1, 1_000))));
    let known = at("c", 3_000).read(&late);
    assert_eq!((known.opening.streak, known.probed_until_ms), (3, Some(8_000)));
    assert_eq!(at("c", 3_000).claim(&target(), Some(&late), None), (Edit::Keep, Claim::Denied(8_000)));
    // One that waits longer counts.
    let longer = put(at("a", 2_000).save(&target(), Some(&probed), Change::Reopened(open_for(4, 9_000))));
    let known = at("b", 2_000).read(&longer);
    assert_eq!((known.opening, known.probed_until_ms), (open_for(4, 9_000), None));
}

#[test]
fn a_probe_that_came_to_nothing_is_given_back_by_its_replica_alone() {
    let probed = probed_by("a");
    assert_eq!(at("b", 1_500).save(&target(), Some(&probed), Change::Released), Edit::Keep);
    let released = put(at("a", 1_500).save(&target(), Some(&probed), Change::Released));
    assert_eq!(at("b", 1_500).claim(&target(), Some(&released), None).1, Claim::Granted);
}

#[test]
fn a_model_that_was_found_well_meanwhile_is_not_shut_by_a_claim_or_by_a_probe_that_fails() {
    assert_eq!(at("a", 0).claim(&target(), None, None), (Edit::Keep, Claim::Closed));
    assert_eq!(at("a", 0).save(&target(), None, Change::Reopened(open_for(2, 9))), Edit::Keep);
    // What this replica has not told yet is another matter.
    let unsaved = Some(Change::Opened(open_for(1, 0)));
    assert_eq!(at("a", 0).claim(&target(), None, unsaved).1, Claim::Granted);
}

#[test]
fn a_claim_ends_that_is_not_renewed_and_its_own_replica_takes_it_again_at_once() {
    let probed = probed_by("a");
    assert_eq!(at("a", 1_001).claim(&target(), Some(&probed), None).1, Claim::Granted);
    assert_eq!(at("b", 10_999).claim(&target(), Some(&probed), None).1, Claim::Denied(1));
    assert_eq!(at("b", 11_000).claim(&target(), Some(&probed), None).1, Claim::Granted);
    assert_eq!(at("a", 2_000).renew(Some(&probed)), Edit::Keep, "it lasts for long enough");
    let renewed = put(at("a", 6_000).renew(Some(&probed)));
    assert_eq!(at("b", 11_000).claim(&target(), Some(&renewed), None).1, Claim::Denied(5_000));
    for other in [None, Some(&probed_by("b"))] {
        assert_eq!(at("a", 6_000).renew(other), Edit::Keep, "it is no longer its own");
    }
}
