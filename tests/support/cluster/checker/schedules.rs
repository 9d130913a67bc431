//! What is promised of schedules: each time of each leads to one run, which a replica that dies neither loses nor repeats.
//!
//! Pure. What schedules say of their firings and what runs say of their schedules are compared, and neither is believed of the other.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

/// A firing, as its schedule tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fired {
    /// When it was to happen, in Unix milliseconds; `None` if a caller asked for it.
    pub(crate) due_ms: Option<u64>,
    /// When it was acted on.
    pub(crate) at_ms: u64,
    /// What came of it.
    pub(crate) result: String,
    /// The run that it began.
    pub(crate) run: String,
}

/// A run, as it tells itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ScheduledRun {
    /// The schedule that began it, by its note.
    pub(crate) schedule: String,
    pub(crate) status: String,
}

/// What is known of schedules that fire all at the same times, and never skip one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ScheduleEvidence {
    /// How long it is from one time to the next, in milliseconds. The times are multiples of it.
    pub(crate) every_ms: u64,
    /// When the schedules were there, and when they were looked at: they have fired at all times between these.
    pub(crate) from_ms: u64,
    pub(crate) until_ms: u64,
    /// The firings of each schedule.
    pub(crate) schedules: BTreeMap<String, Vec<Fired>>,
    /// All runs that there are.
    pub(crate) runs: BTreeMap<String, ScheduledRun>,
    /// How often a caller asked for a run of each, once with each key.
    pub(crate) asked: usize,
}

/// Everything that is wrong with what schedules did.
pub(crate) fn check_schedules(evidence: &ScheduleEvidence) -> Vec<String> {
    let ScheduleEvidence { every_ms, from_ms, until_ms, schedules, runs, asked } = evidence;
    let (mut wrong, mut begun) = (Vec::new(), BTreeMap::new());
    let times: BTreeSet<u64> = (from_ms / every_ms + 1..=until_ms / every_ms).map(|at| at * every_ms).collect();
    for (id, firings) in schedules {
        let mut seen = BTreeSet::new();
        for Fired { due_ms, at_ms, result, run } in firings {
            if let Some(due_ms) = due_ms {
                if !seen.insert(*due_ms) {
                    wrong.push(format!("{id} fired twice at {due_ms}"));
                }
                if due_ms % every_ms != 0 || at_ms < due_ms || due_ms <= from_ms {
                    wrong.push(format!("{id} fired for {due_ms} at {at_ms}"));
                }
            }
            if result != "started" {
                wrong.push(format!("{id} was {result} at {due_ms:?}"));
                continue;
            }
            if let Some((other, at)) = begun.insert(run, (id, due_ms)) {
                wrong.push(format!("{run} is the run of {id} at {due_ms:?}, and of {other} at {at:?}"));
            }
            if runs.get(run).is_none_or(|run| run.schedule != *id) {
                wrong.push(format!("{id} says that it began {run}, which is {:?}", runs.get(run)));
            }
        }
        for missing in times.difference(&seen) {
            wrong.push(format!("{id} did not fire at {missing}"));
        }
        let by_callers = firings.iter().filter(|firing| firing.due_ms.is_none()).count();
        if by_callers != *asked {
            wrong.push(format!("{asked} runs of {id} were asked for, and it has begun {by_callers}"));
        }
    }
    for (id, ScheduledRun { schedule, status }) in runs {
        if !begun.contains_key(id) {
            wrong.push(format!("{schedule} began {id}, and does not say so"));
        }
        if status != "completed" {
            wrong.push(format!("{id} is {status}"));
        }
    }
    wrong
}
