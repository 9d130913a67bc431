//! Which runs' traces are exported: decided at a run's end, when it is known how it went. Pure.

use std::time::Duration;

use crate::types::trace::{RunTrace, TraceId};
use crate::types::{Outcome, RunId, RunStatus, TraceContext};

/// Which traces are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Keep {
    /// The part of all runs, from 0 to 1.
    pub ratio: f64,
    /// Whether a caller that records its trace, or does not, decides for its runs.
    pub follow_caller: bool,
    /// Whether all runs are kept that failed.
    pub failed: bool,
    /// Whether all runs are kept that a limit or a budget ended.
    pub limited: bool,
    /// All runs are kept that took at least so long.
    pub slower_than: Option<Duration>,
}

impl Keep {
    /// The trace of a new run, which says whether it is kept however the run ends.
    #[must_use]
    pub fn trace_of(&self, run: &RunId, caller: Option<TraceContext>) -> RunTrace {
        let decided = caller.as_ref().filter(|_| self.follow_caller).map(TraceContext::is_sampled);
        let is_sampled = decided.unwrap_or_else(|| self.takes(run));
        RunTrace::of_run(run, caller).sampled(is_sampled)
    }

    /// Whether the trace of a run that ended is kept.
    #[must_use]
    pub fn takes_ended(&self, trace: &RunTrace, outcome: &Outcome) -> bool {
        let is_kept_for_its_end = match outcome.status() {
            RunStatus::Failed => self.failed,
            RunStatus::Incomplete => self.limited,
            RunStatus::Cancelled
            | RunStatus::Completed
            | RunStatus::Queued
            | RunStatus::InProgress
            | RunStatus::RequiresAction => false,
        };
        let took = Duration::from_millis(outcome.report.total_ms);
        trace.is_sampled() || is_kept_for_its_end || self.slower_than.is_some_and(|slow| took >= slow)
    }

    /// Whether the run is among those whose traces are kept whatever happens: by the id of the trace that it has without a
    /// caller's, so that every replica chooses alike and no caller chooses.
    #[expect(clippy::cast_precision_loss, reason = "seven bytes of an id are random enough for a ratio")]
    fn takes(&self, run: &RunId) -> bool {
        let bytes = TraceId::of(run).bytes();
        let random = bytes[9..].iter().fold(0_u64, |random, byte| random << 8 | u64::from(*byte));
        (random as f64) < self.ratio * (1_u64 << 56) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Report, StopReason};

    const NONE: Keep = Keep { ratio: 0.0, follow_caller: true, failed: false, limited: false, slower_than: None };

    fn caller(flags: &str) -> Option<TraceContext> {
        TraceContext::parse(&format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}"), None)
    }

    #[test]
    fn about_the_ratio_of_all_runs_is_kept() {
        for (ratio, least, most) in [(0.0, 0, 0), (0.1, 60, 140), (1.0, 1_000, 1_000)] {
            let keep = Keep { ratio, ..NONE };
            let kept = (0..1_000).filter(|_| keep.trace_of(&RunId::mint(), None).is_sampled()).count();
            assert!((least..=most).contains(&kept), "{kept} of 1000 at {ratio}");
        }
    }

    #[test]
    fn a_caller_decides_where_that_is_wanted() {
        let run = RunId::mint();
        assert!(NONE.trace_of(&run, caller("01")).is_sampled());
        let all = Keep { ratio: 1.0, ..NONE };
        assert!(!all.trace_of(&run, caller("00")).is_sampled());
        let own = Keep { follow_caller: false, ..NONE };
        assert!(!own.trace_of(&run, caller("01")).is_sampled());
    }

    /// Nor by the trace id that it makes up, which ends in zeros here.
    #[test]
    fn a_caller_that_is_not_followed_decides_nothing() {
        let caller = || TraceContext::parse("00-0af7651916cd43dd8400000000000000-b7ad6b7169203331-01", None);
        let keep = Keep { ratio: 0.1, follow_caller: false, ..NONE };
        let kept = (0..1_000).filter(|_| keep.trace_of(&RunId::mint(), caller()).is_sampled()).count();
        assert!((60..=140).contains(&kept), "{kept} of 1000");
    }

    #[test]
    fn what_went_wrong_is_kept_whatever_the_ratio() {
        let trace = NONE.trace_of(&RunId::mint(), None);
        let outcome = |reason, total_ms| {
            let mut outcome = Outcome::unknown(reason);
            outcome.report = Report { total_ms, ..Report::default() }.into();
            outcome
        };
        let (failed, limited, done) = (StopReason::ProviderError, StopReason::CostBudget, StopReason::Done);
        let all = Keep { failed: true, limited: true, slower_than: Some(Duration::from_secs(5)), ..NONE };
        for (reason, total_ms, is_kept) in
            [(failed, 1, true), (limited, 1, true), (done, 5_000, true), (done, 4_999, false)]
        {
            assert_eq!(all.takes_ended(&trace, &outcome(reason, total_ms)), is_kept, "{reason:?} {total_ms}");
            assert!(!NONE.takes_ended(&trace, &outcome(reason, total_ms)), "{reason:?} {total_ms}");
        }
    }
}
