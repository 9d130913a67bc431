//! Checks histories, budgets, and that nothing ran that nobody asked for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::log::data;
use super::{Complaints, Promise, Violation, clip};
use crate::support::cluster::evidence::{ClientTrace, Evidence, Probe, SessionView};
use crate::support::cluster::plan::{Plan, Tool};

/// One run for each request.
pub(super) fn check_runs(evidence: &Evidence, all: &mut Vec<Violation>) {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for trace in &evidence.clients {
        let mut complaints = Complaints { of: trace.plan.tag.clone(), all };
        for run in &trace.runs {
            if let Some(other) = owners.insert(run, &trace.plan.tag).filter(|other| *other != trace.plan.tag) {
                complaints.add(Promise::Runs, format!("it has the run {run}, which is {other}'s"));
            }
        }
        if trace.run().is_none() && evidence.keyed {
            complaints.add(Promise::Runs, "its request was never accepted");
        }
    }
}

/// A session's history is whole, its runs stand in it one after the other, and its budget was kept.
pub(super) fn check_session(
    session: &SessionView,
    evidence: &Evidence,
    by_tag: &BTreeMap<&str, &ClientTrace>,
    complaints: &mut Complaints<'_>,
) {
    let mut rest = session.messages.as_slice();
    let mut told = BTreeSet::new();
    while let Some((first, after)) = rest.split_first() {
        let plan = first["content"].as_str().unwrap_or_default().parse::<Plan>();
        let (Ok(plan), true) = (plan, first["role"] == "user") else {
            let what = format!("its history goes on with {first}, which begins no run");
            complaints.add(Promise::Runs, clip(&what));
            break;
        };
        let length = after.iter().position(|message| message["role"] == "user").unwrap_or(after.len());
        let (turns, next) = after.split_at(length);
        if !told.insert(plan.tag.clone()) {
            complaints.add(Promise::Runs, format!("its history has the run {} twice", plan.tag));
        }
        let completed = by_tag.get(plan.tag.as_str()).is_some_and(|trace| is_completed(trace, evidence));
        if completed && turns.len() != expected_messages(&plan) {
            let what =
                format!("its history of {} has {} messages of {}", plan.tag, turns.len(), expected_messages(&plan));
            complaints.add(Promise::Runs, what);
        }
        if let Some(what) = history_fault(&plan, turns) {
            complaints.add(Promise::Runs, clip(&format!("its history of {} is not what happened: {what}", plan.tag)));
        }
        rest = next;
    }
    let own = evidence.clients.iter().filter(|trace| Some(&complaints.of) == trace.session.as_ref());
    let own: Vec<&ClientTrace> = own.collect();
    for trace in &own {
        if is_completed(trace, evidence) && !told.contains(&trace.plan.tag) {
            complaints.add(Promise::Runs, format!("its history lacks the run {}", trace.plan.tag));
        }
    }
    for tag in told.iter().filter(|tag| !by_tag.contains_key(tag.as_str())) {
        complaints.add(Promise::Runs, format!("its history has the run {tag}, which nobody asked for"));
    }
    let known: BTreeSet<&str> = own.iter().flat_map(|trace| trace.runs.iter().map(String::as_str)).collect();
    for run in session.runs.iter().filter(|run| evidence.keyed && !known.contains(run.as_str())) {
        complaints.add(Promise::Runs, format!("it has the run {run}, which no client has"));
    }
    if !session.object["active_run_id"].is_null() {
        complaints.add(Promise::Runs, format!("the run {} still holds it", session.object["active_run_id"]));
    }
    // A session whose first run broke off before it was accepted may not exist.
    if !session.object["id"].is_null() {
        check_budget(session, evidence, complaints);
    } else if own.iter().any(|trace| trace.run().is_some()) {
        complaints.add(Promise::Runs, format!("it does not exist: {}", session.object));
    }
}

fn is_completed(trace: &ClientTrace, evidence: &Evidence) -> bool {
    let view = trace.run().and_then(|run| evidence.runs.get(run));
    view.is_some_and(|view| view.object["status"] == "completed")
}

/// How many messages a whole run leaves behind, besides the user's.
fn expected_messages(plan: &Plan) -> usize {
    (0..=plan.rounds).map(|round| 1 + plan.tasks(round).len()).sum()
}

fn check_budget(session: &SessionView, evidence: &Evidence, complaints: &mut Complaints<'_>) {
    let ends = session.runs.iter().filter_map(|run| evidence.runs.get(run));
    let ends = ends.filter_map(|run| run.streams.values().next()?.last().map(data));
    let charged: u64 = ends.filter_map(|end| end["usage"]["total_tokens"].as_u64()).sum();
    let counted = session.object["usage"]["total_tokens"].as_u64().unwrap_or(0);
    if counted < charged {
        complaints.add(Promise::Budgets, format!("it counts {counted} tokens, and its runs took {charged}"));
    }
    check_probe(session.probe, complaints);
    let budget = &session.object["budget"];
    if let Some(limit) = budget["token_limit"].as_u64() {
        if charged > limit {
            complaints.add(Promise::Budgets, format!("its runs took {charged} tokens of {limit}"));
        }
        let left = budget["tokens_remaining"].as_u64().unwrap_or(0);
        if left != limit.saturating_sub(charged) {
            complaints.add(Promise::Budgets, format!("it has {left} tokens left of {limit} after {charged}"));
        }
    }
}

/// What a budget counts as taken is what was charged, and nothing is reserved for ever.
pub(super) fn check_probe(probe: Probe, complaints: &mut Complaints<'_>) {
    let Probe { nothing_left, enough_left } = probe;
    if nothing_left != 429 {
        complaints
            .add(Promise::Budgets, format!("with nothing left of its budget, a run was answered by {nothing_left}"));
    }
    if enough_left != 200 {
        let what = format!("with enough left of its budget, a run was answered by {enough_left}: more is reserved");
        complaints.add(Promise::Budgets, what);
    }
}

/// What is wrong with a run's messages after the user's.
fn history_fault(plan: &Plan, turns: &[Value]) -> Option<String> {
    let mut rest = turns;
    for round in 0..=plan.rounds {
        let (turn, after) = rest.split_first()?;
        let said = turn["content"].as_str().unwrap_or_default();
        if turn["role"] != "assistant" || !plan.text(round).starts_with(said) {
            return Some(format!("turn {round} is {turn}"));
        }
        let tasks = plan.tasks(round);
        let calls = turn["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        if calls.len() != tasks.len() {
            // A turn that was cut short calls nothing, and is the last.
            return (!calls.is_empty() || !after.is_empty()).then(|| format!("turn {round} calls {calls:?}"));
        }
        if after.len() < calls.len() {
            return Some(format!("turn {round} has {} calls and {} results", calls.len(), after.len()));
        }
        let (results, next) = after.split_at(calls.len());
        for ((call, result), (tool, task)) in calls.iter().zip(results).zip(&tasks) {
            let content = result["content"].as_str().unwrap_or_default();
            let is_unknown = *tool == Tool::Book && content.contains("unknown");
            let answers = result["role"] == "tool" && result["tool_call_id"] == call["id"];
            if !answers || !(content == task.answer(*tool) || is_unknown) {
                return Some(format!("the call {call} has the result {result}"));
            }
        }
        rest = next;
    }
    rest.first().map(|message| format!("{message} follows its end"))
}
