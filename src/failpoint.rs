//! Failpoints: named places in the code at which a test can abort the process, as a power cut would.
//!
//! `LOOPGATE_FAILPOINT=NAME` or `NAME:NTH` aborts the process when it reaches the failpoint of that name for the
//! first or the NTH time; `NAME:NTH:panic` panics there instead, in the task that reached it. The variable is not a
//! setting: only builds with debug assertions read it, so released builds have no failpoints. This module imports
//! nothing of the crate; the code that can die calls [`hit`].

/// Every failpoint, in the order in which a run reaches them.
pub const FAILPOINTS: &[&str] = &[
    "claim.recorded",
    "run.before_create",
    "run.indexed",
    "run.created",
    "step.before_start",
    "step.reserved",
    "model.before_call",
    "model.delta_recorded",
    "model.answered",
    "step.before_settle",
    "turn.settled",
    "tool.before_intent",
    "tool.intent_recorded",
    "tool.answering",
    "tool.answered",
    "tool.finished",
    "run.before_end",
    "run.ended",
    "run.released",
    "run.counted",
    "run.unmarked",
    "resume.leased",
    "resume.before_record",
    "resume.recorded",
];

/// Failpoints that no run reaches: they are in background work.
pub const BESIDE_RUNS: &[&str] = &["leases.before_renewal"];

/// Failpoints that only runs reach whose calls need an approval, in their order.
pub const OF_APPROVALS: &[&str] =
    &["approval.required", "approval.before_record", "approval.recorded", "approval.before_expiry"];
/// Failpoints that only runs with hooks reach, and what delivers messages to hooks.
pub const OF_HOOKS: &[&str] = &[
    "hook.before_ask",
    "hook.answered",
    "outbox.indexed",
    "outbox.before_claim",
    "outbox.claimed",
    "outbox.sent",
    "outbox.forgotten",
    "outbox.before_settle",
];

/// Failpoints that only runs reach whose guardrails ask a model or a service.
pub const OF_GUARDRAILS: &[&str] = &["guardrail.before_ask", "guardrail.answered"];

/// Failpoints that only runs reach whose calls services answer later, and what takes their answers.
pub const OF_PENDING_CALLS: &[&str] = &[
    "pending.accepted",
    "pending.answer_indexed",
    "pending.answer_stored",
    "pending.before_wake",
    "pending.answer_read",
    "pending.before_give_up",
];

/// Failpoints that only runs reach which ask a model for a summary.
pub const OF_COMPACTION: &[&str] = &["compaction.before_call", "compaction.answered", "compaction.settled"];

/// Failpoints that only runs reach in which a model writes down what matters before messages are replaced.
pub const OF_FLUSHES: &[&str] =
    &["flush.before_call", "flush.answered", "flush.settled", "flush.written", "flush.recorded"];

/// Failpoints that only schedules reach.
pub const OF_SCHEDULES: &[&str] = &["schedule.leased", "schedule.begun", "schedule.announced", "schedule.noted"];

/// Failpoints that only schedules reach whose run a caller asks for.
pub const OF_ASKED_SCHEDULES: &[&str] = &["schedule.asked"];

/// Failpoints that only runs reach which delegate, in their order.
pub const OF_DELEGATION: &[&str] = &[
    "tree.before_reserve",
    "tree.partly_reserved",
    "tree.before_settle",
    "tree.partly_settled",
    "tree.calls_counted",
    "delegate.before_named",
    "delegate.named",
    "delegate.placed",
    "delegate.begun",
    "delegate.before_told",
    "delegate.end_indexed",
    "delegate.told",
    "delegate.end_read",
];

/// Failpoints that only runs reach whose agent is made of others.
pub const OF_COMPOSITES: &[&str] = &["composite.before_turn", "composite.turn_made"];

/// Failpoints that only runs reach which are handed off, in their order.
pub const OF_HANDOFFS: &[&str] = &[
    "handoff.called",
    "handoff.specified",
    "handoff.recorded",
    "handoff.before_taken_over",
    "handoff.passed_on",
    "handoff.taken_over",
];

/// Failpoints that only runs reach which end before those that they have begun.
pub const OF_STOPPED_TREES: &[&str] =
    &["delegate.before_stop", "delegate.barred", "delegate.told_to_stop", "delegate.idle_stopped", "delegate.stopped"];

/// All of them.
#[cfg(debug_assertions)]
const ALL: [&[&str]; 14] = [
    FAILPOINTS,
    OF_APPROVALS,
    OF_HOOKS,
    OF_GUARDRAILS,
    OF_PENDING_CALLS,
    OF_COMPACTION,
    OF_FLUSHES,
    OF_DELEGATION,
    OF_COMPOSITES,
    OF_HANDOFFS,
    OF_STOPPED_TREES,
    OF_SCHEDULES,
    OF_ASKED_SCHEDULES,
    BESIDE_RUNS,
];

/// Aborts the process, or panics, if `LOOPGATE_FAILPOINT` names this failpoint and its count is reached.
#[inline]
pub fn hit(name: &'static str) {
    #[cfg(debug_assertions)]
    armed::hit(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

/// Checks that `LOOPGATE_FAILPOINT`, if it is set, names a failpoint. The process calls it before it starts.
///
/// # Errors
/// One sentence that says what is wrong with the variable.
#[inline]
pub fn check() -> Result<(), String> {
    #[cfg(debug_assertions)]
    armed::check()?;
    Ok(())
}

#[cfg(debug_assertions)]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::ALL;

    const VARIABLE: &str = "LOOPGATE_FAILPOINT";

    #[derive(Debug)]
    struct Armed {
        name: String,
        left: AtomicU64,
        panics: bool,
    }

    fn is_known(name: &str) -> bool {
        ALL.iter().any(|names| names.contains(&name))
    }

    static ARMED: LazyLock<Result<Option<Armed>, String>> =
        LazyLock::new(|| std::env::var(VARIABLE).ok().map(|value| parse(&value)).transpose());

    pub(super) fn check() -> Result<(), String> {
        ARMED.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    pub(super) fn hit(name: &'static str) {
        debug_assert!(is_known(name), "{name} is missing from FAILPOINTS");
        if let Ok(Some(armed)) = &*ARMED
            && armed.name == name
            && armed.left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            assert!(!armed.panics, "the failpoint {name} was reached");
            std::process::abort();
        }
    }

    fn parse(value: &str) -> Result<Armed, String> {
        let (place, panics) = value.strip_suffix(":panic").map_or((value, false), |place| (place, true));
        let (name, nth) = place.split_once(':').unwrap_or((place, "1"));
        if !is_known(name) {
            return Err(format!(
                "{VARIABLE} names {name:?}, which is not a failpoint; failpoints are {}",
                ALL.concat().join(", ")
            ));
        }
        match nth.parse() {
            Ok(nth) if nth > 0 => Ok(Armed { name: name.to_owned(), left: AtomicU64::new(nth), panics }),
            Ok(_) | Err(_) => Err(format!("{VARIABLE} must count from 1, and {nth:?} does not")),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_variable_names_a_failpoint_and_its_count() {
            let found = |value: &str| parse(value).map(|armed| (armed.name, armed.left.into_inner(), armed.panics));
            assert_eq!(found("run.ended"), Ok(("run.ended".to_owned(), 1, false)));
            assert_eq!(found("run.ended:3"), Ok(("run.ended".to_owned(), 3, false)));
            assert_eq!(found("leases.before_renewal:2:panic"), Ok(("leases.before_renewal".to_owned(), 2, true)));
            for value in
                ["", "run.ending", "run.ended:", "run.ended:0", "run.ended:-1", "run.ended:x", "run.ended:1:sigh"]
            {
                parse(value).expect_err(value);
            }
        }

        #[test]
        fn without_the_variable_no_failpoint_aborts() {
            check().expect("the variable is not set");
            for name in ALL.concat() {
                hit(name);
            }
        }
    }
}
