//! About which runs messages are being sent, and which are next.
//!
//! Pure.

use std::collections::{HashSet, VecDeque};

use crate::agent::ledger::due::Due;
use crate::types::RunId;

/// About how many runs a replica sends messages at once. Not a setting: each takes the memory of a few messages, and a
/// connection to a service at most.
const AT_ONCE: usize = 64;
/// How much waits for that. What does not fit stays in the due index, which leads to it later.
const MOST_WAITING: usize = 1_024;

/// What is under way, and what is next.
#[derive(Debug, Default)]
pub(super) struct Work {
    under_way: HashSet<RunId>,
    waiting: VecDeque<Due>,
}

impl Work {
    /// Adds something to do, unless that waits already, or too much does.
    pub(super) fn add(&mut self, due: Due) {
        if self.waiting.len() < MOST_WAITING && !self.waiting.contains(&due) {
            self.waiting.push_back(due);
        }
    }

    /// What may begin now, and has then begun: the first thing of a run of which nothing is under way.
    pub(super) fn next(&mut self) -> Option<Due> {
        if self.under_way.len() >= AT_ONCE {
            return None;
        }
        let place = self.waiting.iter().position(|due| !self.under_way.contains(&due.run))?;
        let due = self.waiting.remove(place)?;
        self.under_way.insert(due.run.clone());
        Some(due)
    }

    /// What was under way of this run has ended.
    pub(super) fn ended(&mut self, run: &RunId) {
        self.under_way.remove(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::ledger::due::{DueKind, Owner};
    use crate::types::Tenant;

    fn due(run: &RunId, at_ms: u64) -> Due {
        let owner = Owner { tenant: Tenant::default_tenant(), session: None };
        Due { at_ms, kind: DueKind::Message, run: run.clone(), message: None, owner }
    }

    #[test]
    fn one_thing_of_a_run_is_under_way_and_the_next_one_begins_where_there_is_room() {
        let (mut work, run, other) = (Work::default(), RunId::mint(), RunId::mint());
        for due in [due(&run, 1), due(&run, 1), due(&run, 2), due(&other, 3)] {
            work.add(due);
        }
        assert_eq!((work.next(), work.next()), (Some(due(&run, 1)), Some(due(&other, 3))));
        assert_eq!(work.next(), None, "the same run is under way");
        work.ended(&run);
        assert_eq!((work.next(), work.next()), (Some(due(&run, 2)), None), "what was added twice is done once");
    }

    #[test]
    fn so_much_is_under_way_at_once_and_so_much_waits() {
        let mut work = Work::default();
        for _ in 0..AT_ONCE + MOST_WAITING {
            work.add(due(&RunId::mint(), 1));
        }
        let begun: Vec<Due> = std::iter::from_fn(|| work.next()).collect();
        assert_eq!((begun.len(), work.waiting.len()), (AT_ONCE, MOST_WAITING - AT_ONCE));
        work.ended(&begun[0].run);
        assert!(work.next().is_some() && work.next().is_none(), "what ended makes room for one");
    }
}
