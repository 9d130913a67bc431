//! Compares the evidence of many runs with what is promised, and names every promise that was broken.
//!
//! `log.rs` sees to a run's log, `steps.rs` to its model calls, `tools.rs` to what was dispatched, `clients.rs`
//! to streams and ends, `apis.rs` to what clients of other dialects were told, `sessions.rs` to histories and budgets, `counters.rs` to what replicas counted. Beside them, and each with
//! evidence of its own, `trees.rs` sees to runs that begin others, `handoffs.rs` to those that are handed off, and `schedules.rs` to
//! those that schedules begin.
//!
//! Pure: it reads evidence and does no I/O, so that doctored evidence can show that it sees.

mod apis;
mod clients;
mod counters;
pub(crate) mod handoffs;
mod log;
pub(crate) mod schedules;
mod sessions;
mod steps;
#[cfg(test)]
mod tests;
mod tools;
pub(crate) mod trees;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::evidence::{ClientTrace, Evidence, RunView};
use log::Log;

/// What is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// A run's log has one writer.
    Writer,
    /// A step is recorded once, and every model call is reserved and charged.
    Steps,
    /// A tool is dispatched after its intent, and again only as its effect allows.
    Tools,
    /// Every event that a client saw is in the log, once, in its place.
    Streams,
    /// What is used stays within the budgets, and nothing stays reserved.
    Budgets,
    /// A request makes one run, which ends once and in time; histories are whole.
    Runs,
    /// What replicas count is what happened.
    Counters,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// Which one.
    pub(crate) promise: Promise,
    /// The run or session.
    pub(crate) of: String,
    /// What is wrong, with the evidence.
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:?}] {}: {}", self.promise, self.of, self.what)
    }
}

/// Collects violations of one run or session.
#[derive(Debug)]
struct Complaints<'a> {
    of: String,
    all: &'a mut Vec<Violation>,
}

impl Complaints<'_> {
    fn add(&mut self, promise: Promise, what: impl Into<String>) {
        self.all.push(Violation { promise, of: self.of.clone(), what: what.into() });
    }
}

/// Everything that is wrong; nothing, if all promises were kept.
pub(crate) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut all = Vec::new();
    let empty = RunView::default();
    for trace in &evidence.clients {
        let name = trace.run().map_or(trace.plan.tag.clone(), |run| format!("{run} ({})", trace.plan.tag));
        let mut complaints = Complaints { of: name, all: &mut all };
        clients::check_client(trace, &mut complaints);
        let forgotten = evidence.forgotten_between(trace.asked_ms, trace.ended_ms.unwrap_or(u64::MAX));
        if trace.resets as usize > forgotten {
            let resets = trace.resets;
            let what = format!(
                "its client was told {resets} times to begin anew, of which the store gave cause for {forgotten}"
            );
            complaints.add(Promise::Streams, what);
        }
        let Some(run) = trace.run() else { continue };
        let view = evidence.runs.get(run).unwrap_or(&empty);
        let mut log = Log::read(view, &mut complaints);
        log.lose(run, &evidence.tools, trace.cancellation.as_ref().map(|cancellation| cancellation.first_ms));
        log::check_writers(&log, &mut complaints);
        clients::check_readings(trace, &log, &mut complaints);
        apis::check_asked(trace, view, &log, &mut complaints);
        let mut allowed = evidence.allowed_reasons.clone();
        allowed.extend(trace.cancellation.as_ref().map(|_| "cancelled".to_owned()));
        clients::check_end(trace, view, &log, &allowed, &mut complaints);
        clients::check_cancellation(trace, view, evidence, &mut complaints);
        let steered = evidence.steered.get(run).copied().unwrap_or(0);
        steps::check_steps(&trace.plan, &log, steered, &mut complaints);
        steps::check_charges(&trace.plan, &log, evidence, &mut complaints);
        steps::check_shown(&trace.plan, &log, evidence, &mut complaints);
        tools::check_run(trace, &log, &evidence.tools, &mut complaints);
    }
    // Runs whose clients never learned that they were accepted end as well.
    let known: BTreeSet<&str> = evidence.clients.iter().filter_map(ClientTrace::run).collect();
    for (run, view) in evidence.runs.iter().filter(|(run, _)| !known.contains(run.as_str())) {
        let mut complaints = Complaints { of: run.clone(), all: &mut all };
        let mut log = Log::read(view, &mut complaints);
        log.lose(run, &evidence.tools, None);
        log::check_writers(&log, &mut complaints);
        // Nobody reads them, which is a reason to cancel them.
        let mut allowed = evidence.allowed_reasons.clone();
        allowed.push("cancelled".to_owned());
        clients::check_terminal(view, &log, &allowed, &mut complaints);
        if evidence.keyed && !sessions::compacts(view) {
            complaints.add(Promise::Runs, "no client has this run");
        }
    }
    tools::check_all(evidence, &mut all);
    sessions::check_runs(evidence, &mut all);
    sessions::check_usage(evidence, &mut Complaints { of: "usage".to_owned(), all: &mut all });
    let by_tag: BTreeMap<&str, &ClientTrace> =
        evidence.clients.iter().map(|trace| (trace.plan.tag.as_str(), trace)).collect();
    for (id, session) in &evidence.sessions {
        let mut complaints = Complaints { of: id.clone(), all: &mut all };
        sessions::check_session(session, evidence, &by_tag, &mut complaints);
    }
    for call in &evidence.model {
        for fault in &call.what.faults {
            let mut complaints = Complaints { of: call.what.tag.clone(), all: &mut all };
            complaints.add(Promise::Runs, format!("the model was asked wrongly for turn {}: {fault}", call.what.round));
        }
    }
    counters::check_counters(evidence, &mut all);
    if let Some(probe) = &evidence.all_runs {
        sessions::check_probe(probe, &mut Complaints { of: "all runs".to_owned(), all: &mut all });
    }
    all.sort();
    all.dedup();
    all
}

/// At most so many characters of a text.
fn clip(text: &str) -> String {
    let most = 300;
    if text.chars().count() <= most { text.to_owned() } else { text.chars().take(most).chain("…".chars()).collect() }
}
