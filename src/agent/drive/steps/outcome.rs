//! What is recorded of a call whose answer was lost.

use std::time::Duration;

use crate::types::conversation::Part;
use crate::types::tool::CallEnding;
use crate::types::{Effect, ToolOutcome};

/// What a model is told where it is unknown whether a call took effect.
const UNKNOWN: &str = "Whether it took effect is unknown: do not assume either, and do not repeat it without checking.";

/// What a model is told of a call that was never dispatched.
pub(in crate::agent::drive) const NOT_MADE: &str = "The call was not made: the run is stopping.";

/// What came of a call of this effect. A call that changes nothing has failed if its answer was lost; the
/// outcome of any other call is unknown.
pub(in crate::agent::drive) fn settled(outcome: ToolOutcome, effect: Effect) -> ToolOutcome {
    match (outcome.ending, effect) {
        (CallEnding::Lost, Effect::Read) => ToolOutcome { ending: CallEnding::Answered, ..outcome },
        (CallEnding::Lost, Effect::Idempotent | Effect::Write) => {
            let lost = ToolOutcome::lost(format!("{} {UNKNOWN}", outcome.text()));
            ToolOutcome { latency_ms: outcome.latency_ms, ..lost }
        }
        (CallEnding::Answered | CallEnding::Stopped | CallEnding::Skipped | CallEnding::Pending, _) => outcome,
    }
}

/// What came of a call that began with this effect, was interrupted by a crash and is not made again.
pub(in crate::agent::drive) fn interrupted(began_as: Effect, why: &str) -> ToolOutcome {
    settled(ToolOutcome::lost(format!("The call was interrupted.{why}")), began_as)
}

/// What came of a call that began with this effect, was interrupted by a crash, and could be made again if its run were
/// not stopping.
pub(in crate::agent::drive) fn not_repeated(began_as: Effect) -> ToolOutcome {
    match began_as {
        Effect::Read => ToolOutcome::stopped("The call was interrupted, and is not made again: the run is stopping."),
        Effect::Idempotent | Effect::Write => interrupted(began_as, ""),
    }
}

/// What came of a call that its caller wanted to be repeated, and that is not made again for this reason.
pub(super) fn not_made_again(why: &str) -> ToolOutcome {
    settled(ToolOutcome::lost(format!("The call was not made again. {why}")), Effect::Write)
}

/// What came of a call that began with this effect and was stopped with its run, after so long.
pub(in crate::agent::drive) fn stopped(began_as: Effect, after: Duration) -> ToolOutcome {
    const WHY: &str = "The call was stopped with the run.";
    let outcome = match began_as {
        Effect::Read => ToolOutcome::stopped(WHY),
        Effect::Idempotent | Effect::Write => settled(ToolOutcome::lost(WHY), began_as),
    };
    made(ToolOutcome { latency_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX), ..outcome })
}

/// What is told of this outcome of a call where nobody may see what the tool said, for this reason.
pub(super) fn withheld(outcome: ToolOutcome, why: &str) -> ToolOutcome {
    let unknown = if outcome.ending == CallEnding::Lost { format!(" {UNKNOWN}") } else { String::new() };
    let parts = vec![Part::text(format!("The result was withheld. {why}{unknown}"))];
    ToolOutcome { parts, structured: None, is_error: true, ..outcome }
}

/// What came of a call that was made. One that failed took a millisecond at least: by that the log tells it from one that
/// was not made.
pub(in crate::agent::drive) fn made(outcome: ToolOutcome) -> ToolOutcome {
    let latency_ms = outcome.latency_ms.max(u64::from(outcome.is_error));
    ToolOutcome { latency_ms, ..outcome }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_took_time_if_it_was_made() {
        let took = |outcome: ToolOutcome| outcome.latency_ms;
        assert_eq!((took(made(ToolOutcome::failed("?"))), took(made(ToolOutcome::default()))), (1, 0));
        assert_eq!(
            (took(stopped(Effect::Read, Duration::ZERO)), took(stopped(Effect::Write, Duration::from_secs(2)))),
            (1, 2_000)
        );
    }

    #[test]
    fn only_of_what_changes_nothing_a_lost_answer_is_a_failure() {
        let ending = |effect| settled(ToolOutcome::lost("It hung."), effect).ending;
        assert_eq!(ending(Effect::Read), CallEnding::Answered);
        assert_eq!((ending(Effect::Idempotent), ending(Effect::Write)), (CallEnding::Lost, CallEnding::Lost));
        let told = interrupted(Effect::Write, " The tool is gone.");
        assert!(
            told.text().starts_with("The call was interrupted. The tool is gone. Whether it took effect is unknown")
        );
        assert_eq!(interrupted(Effect::Read, "").text(), "The call was interrupted.");
        let ending = |effect| stopped(effect, Duration::ZERO).ending;
        assert_eq!(ending(Effect::Read), CallEnding::Stopped);
        assert_eq!((ending(Effect::Idempotent), ending(Effect::Write)), (CallEnding::Lost, CallEnding::Lost));
    }
}
