//! What is promised of runs that begin others: each is begun once, ends and is told of once, is paid once, and all of them together
//! take no more than the budget of the first, at no moment. Whoever is stopped takes those below along.
//!
//! Pure, as the rest of the checker is. What the model was asked is what the model says, what a tool was asked is what the tool says,
//! what is counted is what the store says, and what runs did is what their own logs say: none is believed of the others.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::log::row;
use crate::support::Frame;

/// How long after its end a run that was stopped may leave others under way: until a dead replica's runs are taken over.
pub(crate) const STOPS_WITHIN_MS: u64 = 20_000;

/// A run, as its object and its list of events tell.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TreeRun {
    /// The run that began it, the call by which, and how deep it stands.
    pub(crate) parent: Option<(String, String, u64)>,
    /// What no other task has, as it was asked for.
    pub(crate) mark: String,
    pub(crate) status: String,
    /// The tokens of its model calls.
    pub(crate) tokens: u64,
    /// What calls that were cut off may have taken beyond that.
    pub(crate) unconfirmed: u64,
    /// What it says that it and all below it took, if it began any.
    pub(crate) tree: Option<u64>,
    /// How many calls of the model it recorded, and how many of them came to nothing.
    pub(crate) recorded: (usize, usize),
    /// When it ended, in Unix milliseconds.
    pub(crate) ended_ms: u64,
    pub(crate) output: String,
    /// Its events.
    pub(crate) events: Vec<Value>,
    /// The runs that it began: the call and the run.
    pub(crate) started: Vec<(String, String)>,
    /// Those that it was told have ended.
    pub(crate) completed: Vec<TreeEnd>,
    /// What its model was told of calls: the call, the text, and whether it is an error.
    pub(crate) told: Vec<(String, String, bool)>,
}

/// That a run has ended, as the run above it tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TreeEnd {
    pub(crate) run: String,
    pub(crate) status: String,
    /// The tokens that it took by itself.
    pub(crate) own: u64,
    /// The same with those of all below it.
    pub(crate) tree: u64,
}

/// A call of the model, as the model tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TreeCall {
    pub(crate) mark: String,
    pub(crate) at_ms: u64,
    pub(crate) billed: u64,
    /// Whether its whole answer was sent.
    pub(crate) is_whole: bool,
}

/// How a budget was counted in the store: the run whose it is, its limit, and how the counter stood after each change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TreeCounter {
    pub(crate) run: String,
    pub(crate) limit: u64,
    pub(crate) stood: Vec<i64>,
}

/// A tree of runs, and what everyone knows of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TreeEvidence {
    pub(crate) root: String,
    /// The budget of all.
    pub(crate) limit: u64,
    /// All runs that there are.
    pub(crate) runs: BTreeMap<String, TreeRun>,
    /// What the model was asked.
    pub(crate) calls: Vec<TreeCall>,
    /// What the tool was asked that each run calls once: for which mark, and under which key.
    pub(crate) marked: Vec<(String, String)>,
    /// The budgets whose counters were watched.
    pub(crate) counters: Vec<TreeCounter>,
    /// What a reader of the root saw, however often it came back.
    pub(crate) read: Option<Vec<Frame>>,
    /// When it was answered that the root is cancelled.
    pub(crate) cancelled_ms: Option<u64>,
    /// Whether nothing stands in the way of a run that does all that it was asked.
    pub(crate) fits: bool,
}

const FINAL: [&str; 4] = ["completed", "incomplete", "cancelled", "failed"];

/// Everything that is wrong with a tree.
pub(crate) fn check_tree(evidence: &TreeEvidence) -> Vec<String> {
    let mut wrong = Vec::new();
    let billed: u64 = evidence.calls.iter().map(|call| call.billed).sum();
    let used: u64 = evidence.runs.values().map(|run| run.tokens).sum();
    for (what, amount) in [("the model billed", billed), ("the runs took", used)] {
        if amount > evidence.limit {
            wrong.push(format!("{what} {amount} tokens of {}", evidence.limit));
        }
    }
    if !evidence.runs.contains_key(&evidence.root) {
        wrong.push("the root is not there".to_owned());
    }
    let mut begun = BTreeSet::new();
    for (id, run) in &evidence.runs {
        check_run(evidence, id, run, &mut wrong);
        check_charges(evidence, id, run, &mut wrong);
        for (call, child) in &run.started {
            if !begun.insert(child) {
                wrong.push(format!("{child} was begun more than once, last by {call} of {id}"));
            }
        }
    }
    for id in evidence.runs.keys().filter(|id| **id != evidence.root && !begun.contains(id)) {
        wrong.push(format!("{id} is no run's: nobody knows that it began"));
    }
    check_marks(evidence, &mut wrong);
    for counter in &evidence.counters {
        check_counter(evidence, counter, &mut wrong);
    }
    check_reading(evidence, &mut wrong);
    check_cancellation(evidence, &mut wrong);
    wrong
}

fn check_run(evidence: &TreeEvidence, id: &str, run: &TreeRun, wrong: &mut Vec<String>) {
    if !FINAL.contains(&run.status.as_str()) {
        wrong.push(format!("{id} is {}", run.status));
    }
    if evidence.fits && run.status != "completed" {
        wrong.push(format!("{id} is {} although nothing stood in its way", run.status));
    }
    let numbers: Vec<_> = run.events.iter().map(number).collect();
    if !numbers.iter().copied().eq((1..=numbers.len() as u64).map(Some)) || numbers.is_empty() {
        wrong.push(format!("{id} has the events {numbers:?}"));
    }
    match &run.parent {
        None if id != evidence.root => wrong.push(format!("{id} has no parent")),
        None => {}
        Some((parent, call, depth)) => {
            let above = evidence.runs.get(parent);
            let is_known = above.is_some_and(|above| above.started.contains(&(call.clone(), id.to_owned())));
            if !is_known {
                wrong.push(format!("{id} says that {parent} began it by {call}, which that does not say"));
            }
            let deep = above.map_or(0, |above| above.parent.as_ref().map_or(0, |(_, _, depth)| *depth)) + 1;
            if *depth != deep {
                wrong.push(format!("{id} stands {depth} deep, and {parent} above it"));
            }
        }
    }
    let calls: BTreeSet<_> = run.started.iter().map(|(call, _)| call).collect();
    if calls.len() < run.started.len() {
        wrong.push(format!("a call of {id} began several runs: {:?}", run.started));
    }
    for (call, child) in &run.started {
        check_child(evidence, (id, run), (call, child), wrong);
    }
    // The model says what it is told of the runs below, in the order in which it called them.
    let told = |call: &String| run.told.iter().find(|(of, ..)| of == call).map_or("", |(_, text, _)| text.as_str());
    let said = run.started.iter().map(|(call, _)| told(call)).collect::<Vec<_>>().join(" ");
    if run.status == "completed" && !run.started.is_empty() && run.output != said {
        wrong.push(format!("{id} ends with {:?}, and was told {said:?}", run.output));
    }
}

fn check_child(
    evidence: &TreeEvidence,
    (id, run): (&str, &TreeRun),
    (call, child): (&String, &String),
    wrong: &mut Vec<String>,
) {
    let ends: Vec<_> = run.completed.iter().filter(|end| end.run == *child).collect();
    let [end] = ends[..] else {
        wrong.push(format!("{id} says {} times that {child} ended", ends.len()));
        return;
    };
    let told: Vec<_> = run.told.iter().filter(|(of, ..)| of == call).collect();
    let [(_, text, is_error)] = told[..] else {
        wrong.push(format!("the model of {id} is told {} times what came of {call}", told.len()));
        return;
    };
    let Some(below) = evidence.runs.get(child) else {
        if end.status == "completed" || end.tree > 0 {
            wrong.push(format!(
                "{id} says that {child} is {} and took {}, and there is no such run",
                end.status, end.tree
            ));
        }
        return;
    };
    let TreeEnd { status, own, tree, .. } = end;
    // A run that stops does not wait for those that it stops.
    let may_differ = run.status == "cancelled" && status == "cancelled";
    if below.status != *status && !may_differ {
        wrong.push(format!("{id} says that {child} is {status}, which says {}", below.status));
    }
    let taken = (below.tokens, below.tree.unwrap_or(below.tokens));
    if (*own, *tree) != taken && !may_differ {
        wrong.push(format!("{id} says that {child} took {own}, and {tree} with those below, which says {taken:?}"));
    }
    if below.ended_ms > run.ended_ms + if may_differ { STOPS_WITHIN_MS } else { 0 } {
        wrong.push(format!("{child} went on until {}, and {id} above it ended at {}", below.ended_ms, run.ended_ms));
    }
    if *is_error == (status == "completed") {
        wrong.push(format!("{child} is {status}, and the model of {id} is told so: error {is_error}"));
    }
    if status == "completed" && *text != below.output {
        wrong.push(format!("{child} said {:?}, and the model of {id} is told {text:?}", below.output));
    }
}

/// A run is paid for what the model was asked for it, and once.
fn check_charges(evidence: &TreeEvidence, id: &str, run: &TreeRun, wrong: &mut Vec<String>) {
    let TreeRun { tokens, unconfirmed, recorded: (calls, void), .. } = *run;
    let asked: Vec<_> = evidence.calls.iter().filter(|call| call.mark == run.mark).collect();
    if asked.len() > calls {
        wrong.push(format!("the model was asked {} times for {id}, and {calls} of these are recorded", asked.len()));
    }
    let heard: u64 = asked.iter().filter(|call| call.is_whole).map(|call| call.billed).sum();
    // What came of a call that a crash interrupted may have been heard by nobody, but it was reserved.
    if heard > tokens + unconfirmed {
        wrong.push(format!("{id} is charged {tokens} tokens and {unconfirmed}, and the model billed {heard}"));
    }
    if void == 0 && tokens != heard {
        wrong.push(format!("{id} took {tokens} tokens, and the model billed {heard}"));
    }
    let below: u64 = run.completed.iter().map(|end| end.tree).sum();
    if run.tree.unwrap_or(tokens) != tokens + below {
        wrong.push(format!(
            "{id} says that its tree took {:?}: it took {tokens} itself, and those below {below}",
            run.tree
        ));
    }
}

/// What was to be done once was done once: no two runs have the same task, and none was asked for by nobody.
fn check_marks(evidence: &TreeEvidence, wrong: &mut Vec<String>) {
    let mut runs: BTreeMap<&str, (&str, &TreeRun)> = BTreeMap::new();
    for (id, run) in &evidence.runs {
        if let Some((other, _)) = runs.insert(&run.mark, (id, run)) {
            wrong.push(format!("{other} and {id} have the same task, {}", run.mark));
        }
    }
    let asked = evidence.calls.iter().map(|call| &call.mark).chain(evidence.marked.iter().map(|(mark, _)| mark));
    for mark in asked.filter(|mark| !runs.contains_key(mark.as_str())) {
        wrong.push(format!("{mark} was worked on, and no run has this task"));
    }
    if evidence.marked.is_empty() {
        return;
    }
    for (mark, (id, run)) in runs {
        let keys: BTreeSet<_> = evidence.marked.iter().filter(|(of, _)| of == mark).map(|(_, key)| key).collect();
        if keys.len() > 1 || keys.is_empty() && run.status == "completed" {
            wrong.push(format!("the task {mark} of {id} was done {} times", keys.len()));
        }
    }
}

/// What is used and reserved never passes the limit, and in the end what is counted is what the runs took.
fn check_counter(evidence: &TreeEvidence, counter: &TreeCounter, wrong: &mut Vec<String>) {
    let TreeCounter { run, limit, stood } = counter;
    let most = stood.iter().copied().max().unwrap_or(0);
    if most > i64::try_from(*limit).unwrap_or(i64::MAX) {
        wrong.push(format!("{most} tokens of {limit} were used or reserved below {run}"));
    }
    if stood.iter().any(|stood| *stood < 0) {
        wrong.push(format!("more was given back below {run} than was taken: {stood:?}"));
    }
    let took: u64 = below(evidence, run).iter().map(|run| run.tokens + run.unconfirmed).sum();
    let last = stood.last().copied().unwrap_or(0);
    if u64::try_from(last) != Ok(took) {
        wrong.push(format!("{last} tokens are counted below {run}, and its runs took {took}"));
    }
}

/// A run with all runs below it.
fn below<'a>(evidence: &'a TreeEvidence, id: &str) -> Vec<&'a TreeRun> {
    let Some(run) = evidence.runs.get(id) else { return Vec::new() };
    let started = run.started.iter().filter(|(_, child)| child != id);
    [run].into_iter().chain(started.flat_map(|(_, child)| below(evidence, child))).collect()
}

/// One reader sees all that happened in the root, in one sequence, however often it comes back.
fn check_reading(evidence: &TreeEvidence, wrong: &mut Vec<String>) {
    let (Some(read), Some(root)) = (&evidence.read, evidence.runs.get(&evidence.root)) else { return };
    for (frame, expected) in read.iter().zip(1..) {
        if frame.id != Some(expected) {
            wrong.push(format!("the reader is sent event {:?} where {expected} is next", frame.id));
            break;
        }
    }
    let rows: Vec<_> = read.iter().map(row).collect();
    if let Some(at) = (0..rows.len().max(root.events.len())).find(|at| rows.get(*at) != root.events.get(*at)) {
        let (sent, kept) = (rows.get(at), root.events.get(at));
        wrong.push(format!("the reader is sent {sent:?} as event {}, and the log has {kept:?}", at + 1));
    }
}

/// Nobody goes on for a root that was cancelled.
fn check_cancellation(evidence: &TreeEvidence, wrong: &mut Vec<String>) {
    let Some(cancelled_ms) = evidence.cancelled_ms else { return };
    let last_ms = cancelled_ms + STOPS_WITHIN_MS;
    for call in evidence.calls.iter().filter(|call| call.at_ms > last_ms) {
        wrong.push(format!("{} was worked on {} ms after all was cancelled", call.mark, call.at_ms - cancelled_ms));
    }
    for (id, run) in evidence.runs.iter().filter(|(_, run)| run.ended_ms > last_ms) {
        wrong.push(format!("{id} is {} {} ms after all was cancelled", run.status, run.ended_ms - cancelled_ms));
    }
}

/// The number of an event in a list.
fn number(event: &Value) -> Option<u64> {
    event["seq"].as_u64().or_else(|| event["loopgate"]["seq"].as_u64())
}
