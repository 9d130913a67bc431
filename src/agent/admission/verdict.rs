//! The claim of a request that may be repeated, and what its duplicate does. No I/O.

use std::time::Duration;

use crate::agent::ledger::claim::{Claim, Target};
use crate::agent::ledger::retention::Retention;
use crate::agent::request_key::{RequestKey, RequestKeyKind};
use crate::types::clock::now_ms;

/// How long a request waits for a duplicate to make the target before it takes over the claim.
const TAKEOVER_DELAY: Duration = Duration::from_secs(3);
/// How long after a run's start an attempt that is marked as repeated joins the run. Clients wait ten minutes for an
/// answer, then pause.
const REPEATED_WITHIN: Duration = Duration::from_secs(11 * 60);

impl RequestKeyKind {
    /// How long the claim of such a request is kept if its run takes up to `longest`.
    pub(super) fn ttl(self, longest: Duration) -> Duration {
        longest.saturating_add(match self {
            Self::Key => Retention::KEY_HOLDS,
            Self::FirstAttempt | Self::Repeated | Self::Equal { .. } => REPEATED_WITHIN,
        })
    }
}

/// The state of a claim's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetState {
    /// The target does not exist.
    Missing,
    /// The waiting run exists, and the request has not continued it.
    Untouched,
    /// The run is queued or under way.
    Live,
    /// The target will not change any more.
    Complete {
        /// Whether the run failed in a way after which a client may send the request again.
        may_be_repeated: bool,
        /// Whether the run was cancelled without a reader and without a tool call.
        abandoned: bool,
        /// Whether the run was cancelled.
        cancelled: bool,
    },
}

impl TargetState {
    /// The target is complete, and there is no reason to make it again.
    pub(super) const MADE: Self = Self::Complete { may_be_repeated: false, abandoned: false, cancelled: false };
}

/// What is known of the connection over which an earlier equal request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connection {
    /// The answer was written to its end.
    Reached,
    /// It was cut before that.
    Cut,
    /// It may have been cut a moment ago.
    Doubtful,
    /// The answer is being written.
    Open,
    /// Its replica lives, and nothing was heard of the answer for so long that what became of it may have been lost.
    Silent,
}

/// How much time has passed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    /// Since the first request claimed the key.
    pub(super) claimed: Duration,
    /// Since a request last began to make the target.
    pub(super) tried: Duration,
}

/// What a request does about an earlier one with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Share the earlier request's target.
    Join,
    /// Give the earlier request time to make its target.
    Wait,
    /// Make that target in its place.
    TakeOver,
    /// Replace the claim and make a target of its own.
    BeginAnew,
    /// Make a target of its own, and leave the claim to the earlier request.
    GoAlone,
    /// Fail: the key was used for another request.
    Reused,
    /// Fail: the target existed and has expired.
    Gone,
}

/// What a request of this key does about an earlier `claim` whose target has this state. A run is kept for `kept` after
/// its end.
pub(super) fn judge(key: &RequestKey, claim: &Claim, state: TargetState, since: Since, kept: Duration) -> Verdict {
    let Since { claimed: age, tried } = since;
    if claim.fingerprint != key.fingerprint {
        return Verdict::Reused;
    }
    let begins_anew = match key.kind {
        // The client lost its connection and repeats the request for the answer, and there is none.
        RequestKeyKind::Key => matches!(state, TargetState::Complete { abandoned: true, .. }) && !claim.continues(),
        RequestKeyKind::FirstAttempt | RequestKeyKind::Equal { .. } => true,
        RequestKeyKind::Repeated => match state {
            TargetState::Live => false,
            // The run failed without effect: that is why clients repeat a request.
            TargetState::Complete { may_be_repeated: true, .. } => true,
            TargetState::Missing | TargetState::Untouched | TargetState::Complete { .. } => age > REPEATED_WITHIN,
        },
    };
    if begins_anew {
        return Verdict::BeginAnew;
    }
    let pending = if tried < TAKEOVER_DELAY { Verdict::Wait } else { Verdict::TakeOver };
    match state {
        TargetState::Live | TargetState::Complete { .. } => Verdict::Join,
        // A run that waited for its client existed. So did a target that was made, or that may have been made and
        // expired.
        TargetState::Missing if claim.made || claim.continues() || age >= kept => Verdict::Gone,
        TargetState::Missing | TargetState::Untouched => pending,
    }
}

/// What a request does about an earlier one that said the same, and is answered over this connection. Only an answer that
/// was cut off is asked for again: other equal requests are requests of their own.
pub(super) fn judge_equal(counted: bool, connection: Connection, state: TargetState, since: Since) -> Verdict {
    match connection {
        Connection::Reached | Connection::Silent => Verdict::BeginAnew,
        Connection::Doubtful | Connection::Open if counted => Verdict::BeginAnew,
        Connection::Doubtful => Verdict::Wait,
        Connection::Open => Verdict::GoAlone,
        Connection::Cut => match state {
            TargetState::Live => Verdict::Join,
            _ if since.claimed > REPEATED_WITHIN => Verdict::BeginAnew,
            TargetState::Complete { may_be_repeated: false, cancelled: false, .. } => Verdict::Join,
            TargetState::Complete { .. } => Verdict::BeginAnew,
            TargetState::Missing | TargetState::Untouched if since.tried < TAKEOVER_DELAY => Verdict::Wait,
            TargetState::Missing | TargetState::Untouched => Verdict::TakeOver,
        },
    }
}

impl Claim {
    /// A claim that is made now, for this target.
    pub(super) fn new(key: &RequestKey, target: Target) -> Self {
        let (fingerprint, now) = (key.fingerprint.clone(), now_ms());
        Self { fingerprint, target, made: false, since_ms: now, tried_ms: now, answer: None }
    }

    /// How much time has passed for a claim that was seen `unchanged` for so long. The clocks of several machines
    /// differ; the time that this process waited has certainly passed.
    pub(super) fn since(&self, unchanged: Duration) -> Since {
        let passed = |since_ms| Duration::from_millis(now_ms().saturating_sub(since_ms));
        Since { claimed: passed(self.since_ms), tried: passed(self.tried_ms).max(unchanged) }
    }

    /// Whether the request continues a run that existed before.
    fn continues(&self) -> bool {
        matches!(self.target, Target::Run { after, .. } if after > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::RunId;

    const KEPT: Duration = Duration::from_secs(3600);
    const REPEATABLE: TargetState = TargetState::Complete { may_be_repeated: true, abandoned: false, cancelled: false };
    const ABANDONED: TargetState = TargetState::Complete { may_be_repeated: true, abandoned: true, cancelled: true };
    const FINAL: TargetState = TargetState::MADE;

    fn verdict(kind: RequestKeyKind, claim: &Claim, state: TargetState, age_s: u64) -> Verdict {
        let key = RequestKey { name: "n".into(), fingerprint: "f".into(), kind };
        let age = Duration::from_secs(age_s);
        judge(&key, claim, state, Since { claimed: age, tried: age }, KEPT)
    }

    fn claim(after: u64, made: bool) -> Claim {
        let target = Target::Run { id: RunId::mint(), session: None, after };
        Claim { fingerprint: "f".into(), target, made, since_ms: 0, tried_ms: 0, answer: None }
    }

    #[test]
    fn a_duplicate_joins_what_exists_and_makes_what_is_missing_under_the_same_id() {
        let new = claim(0, false);
        for (state, age_s, expected) in [
            (TargetState::Live, 0, Verdict::Join),
            (FINAL, 90_000, Verdict::Join),
            (REPEATABLE, 1, Verdict::Join),
            (ABANDONED, 1, Verdict::BeginAnew),
            (TargetState::Missing, 0, Verdict::Wait),
            (TargetState::Missing, 3, Verdict::TakeOver),
            (TargetState::Missing, 3599, Verdict::TakeOver),
        ] {
            assert_eq!(verdict(RequestKeyKind::Key, &new, state, age_s), expected, "{state:?} after {age_s} s");
        }
    }

    #[test]
    fn a_target_that_may_have_existed_is_never_made_again() {
        assert_eq!(verdict(RequestKeyKind::Key, &claim(0, false), TargetState::Missing, 3600), Verdict::Gone);
        for age_s in [0, 3, 90_000] {
            assert_eq!(verdict(RequestKeyKind::Key, &claim(0, true), TargetState::Missing, age_s), Verdict::Gone);
            assert_eq!(verdict(RequestKeyKind::Key, &claim(7, false), TargetState::Missing, age_s), Verdict::Gone);
        }
        assert_eq!(verdict(RequestKeyKind::Repeated, &claim(0, true), TargetState::Missing, 600), Verdict::Gone);
    }

    #[test]
    fn a_waiting_run_that_was_not_resumed_is_resumed_however_old_the_claim() {
        assert_eq!(verdict(RequestKeyKind::Key, &claim(7, false), TargetState::Untouched, 0), Verdict::Wait);
        assert_eq!(verdict(RequestKeyKind::Key, &claim(7, false), TargetState::Untouched, 4000), Verdict::TakeOver);
        assert_eq!(
            verdict(RequestKeyKind::Key, &claim(7, false), ABANDONED, 1),
            Verdict::Join,
            "its calls were answered"
        );
    }

    #[test]
    fn a_new_claimant_gets_its_full_time() {
        let key = RequestKey { name: "n".into(), fingerprint: "f".into(), kind: RequestKeyKind::Key };
        let since = |tried| Since { claimed: Duration::from_secs(60), tried: Duration::from_secs(tried) };
        let verdict = |tried| judge(&key, &claim(0, false), TargetState::Missing, since(tried), KEPT);
        assert_eq!((verdict(2), verdict(3)), (Verdict::Wait, Verdict::TakeOver));
    }

    #[test]
    fn a_different_request_is_refused_whatever_became_of_the_first() {
        let other = Claim { fingerprint: "g".into(), ..claim(0, false) };
        for state in [TargetState::Missing, TargetState::Live, FINAL] {
            assert_eq!(verdict(RequestKeyKind::Key, &other, state, 5), Verdict::Reused);
        }
    }

    #[test]
    fn a_first_attempt_starts_anew_and_a_retry_joins_its_own_run() {
        let earlier = claim(0, false);
        for state in [TargetState::Missing, TargetState::Live, FINAL] {
            assert_eq!(verdict(RequestKeyKind::FirstAttempt, &earlier, state, 1), Verdict::BeginAnew);
        }
        for (state, age_s, expected) in [
            (TargetState::Live, 5000, Verdict::Join),
            (FINAL, 608, Verdict::Join),
            (FINAL, 661, Verdict::BeginAnew),
            (REPEATABLE, 1, Verdict::BeginAnew),
            (TargetState::Missing, 1, Verdict::Wait),
            (TargetState::Missing, 30, Verdict::TakeOver),
        ] {
            assert_eq!(
                verdict(RequestKeyKind::Repeated, &earlier, state, age_s),
                expected,
                "{state:?} after {age_s} s"
            );
        }
    }

    #[test]
    fn an_equal_request_joins_a_run_only_if_its_answer_was_cut_off() {
        let cancelled = TargetState::Complete { may_be_repeated: false, abandoned: false, cancelled: true };
        let since = |age_s| Since { claimed: Duration::from_secs(age_s), tried: Duration::from_secs(age_s) };
        for (connection, state, age_s, expected) in [
            (Connection::Cut, TargetState::Live, 5000, Verdict::Join),
            (Connection::Cut, FINAL, 660, Verdict::Join),
            (Connection::Cut, FINAL, 661, Verdict::BeginAnew),
            (Connection::Cut, REPEATABLE, 1, Verdict::BeginAnew),
            (Connection::Cut, ABANDONED, 1, Verdict::BeginAnew),
            (Connection::Cut, cancelled, 1, Verdict::BeginAnew),
            (Connection::Cut, TargetState::Missing, 1, Verdict::Wait),
            (Connection::Cut, TargetState::Untouched, 3, Verdict::TakeOver),
            (Connection::Cut, TargetState::Missing, 700, Verdict::BeginAnew),
            (Connection::Reached, FINAL, 1, Verdict::BeginAnew),
            (Connection::Doubtful, TargetState::Live, 1, Verdict::Wait),
            (Connection::Open, TargetState::Live, 1, Verdict::GoAlone),
            (Connection::Silent, TargetState::Live, 14, Verdict::BeginAnew),
        ] {
            let verdict = judge_equal(false, connection, state, since(age_s));
            assert_eq!(verdict, expected, "{connection:?}, {state:?} after {age_s} s");
            // A client that counts its attempts says so if it comes again.
            let is_sure = matches!(connection, Connection::Cut | Connection::Reached);
            let expected = if is_sure { expected } else { Verdict::BeginAnew };
            assert_eq!(judge_equal(true, connection, state, since(age_s)), expected);
        }
    }
}
