//! Checks what replicas counted against what is in the logs, and against the journals of the model and the tools.
//!
//! Where no replica ended, the counters of all of them add up to exactly that. A replica that ended took with it what it
//! had counted since it was asked last: then no sum is more than what happened, and ends and begins of runs are missing
//! only of that time.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Complaints, Promise, Violation};
use crate::support::cluster::evidence::{Evidence, RunView, TRIED};
use crate::support::journal::Ending;

/// What happened, and how much of it no replica may have told.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    all: u64,
    /// `None` if that is not known.
    untold: Option<u64>,
}

/// What happened by the logs of all runs.
#[derive(Debug, Default)]
struct Happened {
    /// Ends by status and reason.
    ends: BTreeMap<(String, String), Count>,
    accepted: Count,
    resumed: u64,
    completed: u64,
    discarded: u64,
    /// Completed steps whose answers were cut short.
    interrupted: u64,
    results: u64,
    tokens: u64,
}

impl Happened {
    fn read(evidence: &Evidence) -> Self {
        let mut happened = Self { accepted: Count { all: 0, untold: Some(0) }, ..Self::default() };
        for run in evidence.runs.values() {
            happened.take(run, evidence);
        }
        happened
    }

    fn take(&mut self, run: &RunView, evidence: &Evidence) {
        let untold = |member: &str| {
            let at_ms = run.object[member].as_u64().unwrap_or(0);
            let mut windows = evidence.counted.iter().filter_map(|life| life.untold);
            u64::from(windows.any(|window| (window.from_ms..=window.to_ms).contains(&at_ms)))
        };
        self.accepted.add(untold("created_ms"));
        let text = |member: &str| run.object[member].as_str().unwrap_or_default().to_owned();
        self.ends.entry((text("status"), text("stop_reason"))).or_default().add(untold("ended_ms"));
        let events = run.streams.values().next().into_iter().flatten();
        for event in events {
            match event.name.as_str() {
                "run.resumed" => self.resumed += 1,
                "step.completed" => {
                    self.completed += 1;
                    let end: Value = serde_json::from_str(&event.data).unwrap_or_default();
                    self.interrupted += u64::from(end["finish_reason"] == "interrupted");
                }
                "step.discarded" => self.discarded += 1,
                "tool.result" => self.results += 1,
                "run.completed" | "run.failed" | "run.incomplete" | "run.cancelled" => {
                    let end: Value = serde_json::from_str(&event.data).unwrap_or_default();
                    self.tokens += end["usage"]["total_tokens"].as_u64().unwrap_or(0);
                }
                _ => {}
            }
        }
    }
}

impl Count {
    fn add(&mut self, untold: u64) {
        self.all += 1;
        self.untold = Some(self.untold.unwrap_or(0) + untold);
    }
}

/// The counters add up, where they were read.
pub(super) fn check_counters(evidence: &Evidence, all: &mut Vec<Violation>) {
    if evidence.counted.is_empty() {
        return;
    }
    let mut complaints = Complaints { of: "all counters".to_owned(), all };
    let is_whole = evidence.counted.iter().all(|life| life.untold.is_none());
    let sum = |metric: &str, labels: &[(&str, &str)]| -> u64 {
        evidence.counted.iter().map(|life| life.sum(metric, labels)).sum()
    };
    let happened = Happened::read(evidence);
    let mut agree = |what: &str, counted: u64, Count { all, untold }: Count| {
        let least = if is_whole { all } else { untold.map_or(0, |untold| all.saturating_sub(untold)) };
        if !(least..=all).contains(&counted) {
            let what = format!("they have {counted} {what}, of which there were {all}, and {least} at least were told");
            complaints.add(Promise::Counters, what);
        }
    };
    for ((status, reason), count) in &happened.ends {
        let counted = sum("loopgate_runs_finished_total", &[("status", status), ("reason", reason)]);
        agree(&format!("runs that ended as {status} for {reason}"), counted, *count);
    }
    let known: u64 = happened.ends.values().map(|count| count.all).sum();
    let untold = happened.ends.values().filter_map(|count| count.untold).sum();
    agree("runs that ended", sum("loopgate_runs_finished_total", &[]), Count { all: known, untold: Some(untold) });
    agree("accepted runs", sum("loopgate_runs_accepted_total", &[]), happened.accepted);
    for (what, counted, all) in [
        ("resumptions", sum("loopgate_runs_resumed_total", &[]), happened.resumed),
        ("completed steps", sum("loopgate_steps_total", &[("outcome", "completed")]), happened.completed),
        ("results of tools", sum("loopgate_tool_calls_total", &[]), happened.results),
        ("tokens", sum("loopgate_tokens_total", &[]), happened.tokens),
    ] {
        agree(what, counted, Count { all, untold: None });
    }
    let steps = sum("loopgate_steps_total", &[]);
    agree("steps", steps, Count { all: happened.completed + happened.discarded, untold: None });
    check_journals(evidence, &sum, (is_whole, happened.interrupted), &mut complaints);
}

/// The model and the tools were asked as often as the replicas counted it. What was asked by a replica that was cut off
/// from its run, or ended, is in the journals alone. An answer that was cut short with its run counts as one.
fn check_journals(
    evidence: &Evidence,
    sum: &impl Fn(&str, &[(&str, &str)]) -> u64,
    (is_whole, interrupted): (bool, u64),
    complaints: &mut Complaints<'_>,
) {
    // Runs that try a budget afterwards come after the counters.
    let asked: Vec<_> = evidence.model.iter().filter(|call| !call.what.tag.starts_with(TRIED)).collect();
    let given =
        interrupted + asked.iter().filter(|call| matches!(call.ended, Some((_, Ending::Finished)))).count() as u64;
    let asked = asked.len() as u64;
    let answered = sum("loopgate_model_call_duration_seconds_count", &[]);
    let failed = sum("loopgate_upstream_errors_total", &[]);
    if answered > given {
        complaints.add(Promise::Counters, format!("they have {answered} answers of the model, which gave {given}"));
    }
    let is_undisturbed = is_whole && sum("loopgate_runs_resumed_total", &[]) == 0;
    if answered + failed > asked || is_undisturbed && answered + failed != asked {
        let what =
            format!("they have {answered} answers and {failed} failures of the model, which was asked {asked} times");
        complaints.add(Promise::Counters, what);
    }
    let dispatched = evidence.tools.len() as u64;
    let answers = evidence.tools.iter().filter(|call| matches!(call.ended, Some((_, Ending::Finished)))).count() as u64;
    let good = sum("loopgate_tool_calls_total", &[("outcome", "ok")]);
    let made = good
        + ["error", "lost"]
            .map(|outcome| sum("loopgate_tool_calls_total", &[("outcome", outcome)]))
            .iter()
            .sum::<u64>();
    if good > answers {
        complaints.add(Promise::Counters, format!("they have {good} good answers of tools, which gave {answers}"));
    }
    let repeated = dispatched - answers.min(dispatched);
    if is_undisturbed && !(made..=made + repeated).contains(&dispatched) {
        let what =
            format!("they have {made} calls of tools, which were asked {dispatched} times, {repeated} without answer");
        complaints.add(Promise::Counters, what);
    }
}
