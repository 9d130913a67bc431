//! Notices a model that repeats tool calls which bring nothing new: a fold of the turns with calls, and of what came of
//! them. Pure.
//!
//! Turns are compared, not calls: a model that makes the same call twice in one turn has not seen its result yet. A result
//! must be the same as before, or a model that waits for something would be stopped. Memory is constant, however long the
//! run is.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::calls::{CallState, OpenCall};
use super::json_mark;
use crate::types::conversation::PartKind;
use crate::types::rules::{LoopGuardRules, LoopRule};
use crate::types::tool::CallEnding;
use crate::types::{Effect, ToolOutcome};

/// How many turns a cycle has at most: the same turn again and again, or two or three in turns.
const LONGEST_CYCLE: usize = 3;
/// Most calls of a turn that are compared.
const MOST_CALLS: usize = 64;

/// What a run's turns have in common with those before.
#[derive(Debug, Clone, Default)]
pub(super) struct LoopGuard {
    /// The newest turns: their calls with what came of them. The newest first.
    recent: [u64; LONGEST_CYCLE],
    /// For cycles of one, two and three turns: how many turns in a row were as the one that many turns before.
    same: [u32; LONGEST_CYCLE],
    /// What came of the newest turn's calls; 0 if some of its calls change something.
    results: u64,
    /// How many turns in a row it came.
    same_results: u32,
    turns: u32,
    /// What is to be said of that.
    finding: Option<Finding>,
}

/// Something that repeats itself often enough to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) rule: LoopRule,
    /// How often it came.
    pub(super) repeats: u32,
    /// How many of the newest turns are a cycle.
    pub(super) cycle: u32,
    /// Whether the run is to stop.
    pub(super) stops: bool,
    /// Whether the log tells of it.
    pub(super) is_reported: bool,
}

impl LoopGuard {
    /// What is to be said of the newest turns.
    pub(super) fn finding(&self) -> Option<Finding> {
        self.finding
    }

    /// The log tells what was found.
    pub(super) fn note_report(&mut self) {
        if let Some(finding) = &mut self.finding {
            finding.is_reported = true;
        }
    }

    /// Takes in the calls of a turn, which are answered.
    pub(super) fn end_turn(&mut self, rules: &LoopGuardRules, calls: &[OpenCall]) {
        let counted = calls.iter().filter_map(|open| match &open.state {
            CallState::Finished(outcome) => {
                let is_counted = !open.executor.is_outside() && !open.is_cut && !rules.ignores(&open.call.name);
                is_counted.then_some((&open.call, outcome, open.effect))
            }
            CallState::Pending
            | CallState::Started(_)
            | CallState::Deferred(_)
            | CallState::Answered(_)
            | CallState::Asked(_) => None,
        });
        let (mut whole, mut told, mut changes) = (Marks::default(), Marks::default(), false);
        for (call, outcome, effect) in counted {
            let result = result_mark(&call.name, outcome);
            whole.add(combined(result, json_mark::of(&call.arguments)));
            told.add(result);
            // What changes something may well answer the same each time.
            changes |= effect != Effect::Read && !outcome.is_error;
        }
        if whole.count > 0 {
            self.add(whole.mark(), if changes { 0 } else { told.mark() });
            self.judge(rules);
        }
    }

    fn add(&mut self, whole: u64, results: u64) {
        for cycle in 1..=LONGEST_CYCLE {
            let is_same = self.turns as usize >= cycle && self.recent[cycle - 1] == whole;
            self.same[cycle - 1] = if is_same { self.same[cycle - 1] + 1 } else { 0 };
        }
        self.recent.rotate_right(1);
        self.recent[0] = whole;
        let is_same = results != 0 && self.results == results;
        self.same_results = if is_same { self.same_results + 1 } else { 1 };
        self.results = results;
        self.turns += 1;
    }

    fn judge(&mut self, rules: &LoopGuardRules) {
        let cycles = (1_u32..).zip(self.same).filter(|(_, same)| *same > 0);
        let calls = cycles.map(|(cycle, same)| (same / cycle + 1, cycle));
        let (repeats, cycle) = calls.max_by_key(|(repeats, cycle)| (*repeats, u32::MAX - cycle)).unwrap_or((1, 1));
        let found = |rule, repeats, cycle, warn: Option<u32>, stop: Option<u32>| {
            let stops = stop.is_some_and(|stop| repeats >= stop);
            let is_found = stops || warn.is_some_and(|warn| repeats >= warn);
            is_found.then_some(Finding { rule, repeats, cycle, stops, is_reported: false })
        };
        let calls = found(LoopRule::SameCalls, repeats, cycle, rules.warn_after, rules.stop_after);
        let results = if self.results == 0 { 1 } else { self.same_results };
        let (warn, stop) = (rules.same_result_warn_after, rules.same_result_stop_after);
        let results = found(LoopRule::SameResults, results, 1, warn, stop);
        let finding =
            [calls, results].into_iter().flatten().max_by_key(|found| (found.stops, found.rule == LoopRule::SameCalls));
        let before = self.finding.filter(|before| before.is_reported);
        self.finding = finding.map(|found| {
            let is_reported = before.is_some_and(|before| (before.rule, before.stops) == (found.rule, found.stops));
            Finding { is_reported, ..found }
        });
    }
}

/// The marks of a turn's calls, in which neither their order counts nor how often one is there.
struct Marks {
    marks: [u64; MOST_CALLS],
    count: usize,
}

impl Default for Marks {
    fn default() -> Self {
        Self { marks: [0; MOST_CALLS], count: 0 }
    }
}

impl Marks {
    fn add(&mut self, mark: u64) {
        if self.count < MOST_CALLS && !self.marks[..self.count].contains(&mark) {
            self.marks[self.count] = mark;
            self.count += 1;
        }
    }

    /// One for all of them; never 0.
    fn mark(&mut self) -> u64 {
        let marks = &mut self.marks[..self.count];
        marks.sort_unstable();
        marks.iter().fold(1, |all, mark| combined(all, *mark)).max(1)
    }
}

fn combined(one: u64, other: u64) -> u64 {
    xxh3_64_with_seed(&other.to_le_bytes(), one)
}

/// Stands for a tool and what it answered.
fn result_mark(name: &str, outcome: &ToolOutcome) -> u64 {
    let kind = u64::from(outcome.is_error) << 1 | u64::from(outcome.ending == CallEnding::Skipped);
    let mut mark = xxh3_64_with_seed(name.as_bytes(), kind);
    let mut add = |bytes: &[u8]| mark = xxh3_64_with_seed(bytes, mark);
    if let Some(json) = &outcome.structured {
        add(json.get().as_bytes());
    }
    for part in &outcome.parts {
        if let PartKind::Text(text) = &part.kind {
            add(text.as_bytes());
        } else {
            add(&serde_json::to_vec(&part.kind).unwrap_or_default());
        }
    }
    mark
}
