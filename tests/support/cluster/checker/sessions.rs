//! Checks histories, budgets, and that nothing ran that nobody asked for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::log::{data, string};
use super::{Complaints, Promise, Violation, clip};
use crate::support::cluster::evidence::{ClientTrace, Evidence, Probe, RunView, SessionView};
use crate::support::cluster::harm::{Loss, Progress};
use crate::support::cluster::plan::{Plan, Tool, ToolTask};

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

/// What all runs took by the server's usage is the sum of what they took, unless the store may have forgotten some of it.
pub(super) fn check_usage(evidence: &Evidence, complaints: &mut Complaints<'_>) {
    let (Some(usage), true) = (&evidence.usage, evidence.forgotten.is_empty()) else { return };
    for (name, sum) in evidence.took().as_object().into_iter().flatten() {
        let counted = usage[name].as_u64().unwrap_or(0);
        if Some(counted) != sum.as_u64() {
            complaints.add(Promise::Budgets, format!("it has {counted} {name}, and the runs {sum} together"));
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
    let results = results_of(session, evidence);
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
        match history(&plan, turns, &results) {
            Ok(true) => {}
            Ok(false) if !completed => {}
            Ok(false) => {
                let what = format!("its history of {} ends after {} messages", plan.tag, turns.len());
                complaints.add(Promise::Runs, what);
            }
            Err(what) => {
                let what = format!("its history of {} is not what happened: {what}", plan.tag);
                complaints.add(Promise::Runs, clip(&what));
            }
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
    for trace in own.iter().filter(|trace| !may_be_unlisted(trace, evidence)) {
        for run in trace.runs.iter().filter(|run| !session.runs.contains(run)) {
            complaints.add(Promise::Runs, format!("the list of its runs lacks {run}"));
        }
    }
    check_compactions(session, evidence, complaints);
    let of_clients = |run: &&String| !evidence.runs.get(*run).is_some_and(compacts);
    for run in session.runs.iter().filter(of_clients).filter(|run| evidence.keyed && !known.contains(run.as_str())) {
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

/// Whether a run only shortens its session's conversation, which no client asks for.
pub(super) fn compacts(view: &RunView) -> bool {
    view.object["purpose"] == "compaction"
}

/// A session's conversation was shortened as often as the logs of its runs say, each time once and further.
fn check_compactions(session: &SessionView, evidence: &Evidence, complaints: &mut Complaints<'_>) {
    let views = session.runs.iter().filter_map(|run| evidence.runs.get(run));
    let events = views.filter_map(|view| view.streams.values().next()).flatten();
    let mut done: Vec<(u64, u64)> = events
        .filter(|event| event.name == "context.compacted")
        .map(data)
        .map(|event| (event["version"].as_u64().unwrap_or(0), event["covers"].as_u64().unwrap_or(0)))
        .collect();
    done.sort_unstable();
    let counted = session.object["compactions"].as_u64().unwrap_or(0);
    if counted != done.len() as u64 {
        complaints.add(Promise::Runs, format!("it was shortened {counted} times, and its runs say {done:?}"));
    }
    let is_once = done.iter().zip(1..).all(|((version, _), number)| *version == number);
    if !is_once || done.windows(2).any(|pair| pair[0].1 >= pair[1].1) {
        complaints.add(Promise::Runs, format!("it was not shortened once each time and further: {done:?}"));
    }
}

/// Whether the store may have forgotten that a run is one of its session's.
fn may_be_unlisted(trace: &ClientTrace, evidence: &Evidence) -> bool {
    evidence.forgotten_between(trace.asked_ms, trace.accepted_ms.unwrap_or(u64::MAX)) > 0
}

fn is_completed(trace: &ClientTrace, evidence: &Evidence) -> bool {
    let view = trace.run().and_then(|run| evidence.runs.get(run));
    view.is_some_and(|view| view.object["status"] == "completed")
}

fn check_budget(session: &SessionView, evidence: &Evidence, complaints: &mut Complaints<'_>) {
    let ends = session.runs.iter().filter_map(|run| evidence.runs.get(run));
    let ends = ends.filter_map(|run| run.streams.values().next()?.last().map(data));
    let charged: u64 = ends.filter_map(|end| end["usage"]["total_tokens"].as_u64()).sum();
    let counted = session.object["usage"]["total_tokens"].as_u64().unwrap_or(0);
    if counted != charged {
        complaints.add(Promise::Budgets, format!("it counts {counted} tokens, and its runs took {charged}"));
    }
    check_probe(&session.probe, complaints);
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
pub(super) fn check_probe(probe: &Probe, complaints: &mut Complaints<'_>) {
    let Probe { nothing_left, told, enough_left } = probe;
    // A budget of which a little is left has no room for a run either, and says so in other words.
    if *nothing_left != 429 || !told.contains("is used up") {
        let what = format!("with nothing left of its budget, a run was answered by {nothing_left}: {told}");
        complaints.add(Promise::Budgets, clip(&what));
    }
    if *enough_left != 200 {
        let what = format!("with enough left of its budget, a run was answered by {enough_left}: more is reserved");
        complaints.add(Promise::Budgets, what);
    }
}

/// What the logs of a session's runs say that each call came to.
fn results_of(session: &SessionView, evidence: &Evidence) -> BTreeMap<String, String> {
    let views = session.runs.iter().filter_map(|run| evidence.runs.get(run));
    let events = views.filter_map(|view| view.streams.values().next()).flatten();
    let results = events.filter(|event| event.name == "tool.result").map(data);
    results.map(|result| (string(&result["call_id"]), string(&result["content"]))).collect()
}

/// Whether a run's messages after the user's are all that the plan has, or else what is wrong with them.
fn history(plan: &Plan, turns: &[Value], results: &BTreeMap<String, String>) -> Result<bool, String> {
    let (mut rest, mut progress) = (turns, Progress::default());
    while !progress.is_over(plan) {
        let Some((turn, after)) = rest.split_first() else { return Ok(false) };
        let round = progress.round;
        let said = turn["content"].as_str().unwrap_or_default();
        if turn["role"] != "assistant" || !plan.text(round).starts_with(said) {
            return Err(format!("turn {round} is {turn}"));
        }
        let tasks = progress.tasks(plan);
        let calls = turn["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        if calls.len() != tasks.len() || said != plan.text(round) {
            // A turn that was cut short calls nothing, and is the last.
            let is_last = calls.is_empty() && after.is_empty();
            return if is_last { Ok(false) } else { Err(format!("turn {round} calls {calls:?}")) };
        }
        if after.len() < calls.len() {
            return Err(format!("turn {round} has {} calls and {} results", calls.len(), after.len()));
        }
        let (answers, next) = after.split_at(calls.len());
        let mut contents = Vec::new();
        for ((call, result), (tool, task)) in calls.iter().zip(answers).zip(&tasks) {
            let content = result["content"].as_str().unwrap_or_default();
            let answers = result["role"] == "tool" && result["tool_call_id"] == call["id"];
            // Whether it may be another answer than the tool's is seen in the log.
            let is_told = match tool {
                Tool::Book => content.contains("unknown") || content.contains("was not made"),
                Tool::Look | Tool::Put => task.loss != Loss::Kept || plan.cancel_after.is_some(),
            };
            if !answers || !(content == task.answer(*tool) || is_told) {
                return Err(format!("the call {call} has the result {result}"));
            }
            let (name, arguments) = (&call["function"]["name"], string(&call["function"]["arguments"]));
            if *name != tool.name() || serde_json::from_str::<ToolTask>(&arguments).ok().as_ref() != Some(task) {
                return Err(format!("turn {round} makes the call {call} in place of {} {task:?}", tool.name()));
            }
            // A call that a run left open has no result in its log, and is closed in the history.
            let logged = results.get(&string(&call["id"]));
            if logged.is_some_and(|logged| logged != content) {
                return Err(format!("the call {call} has the result {content:?}, and in its log {logged:?}"));
            }
            contents.push(content);
        }
        progress = progress.after(plan, &contents);
        rest = next;
    }
    rest.first().map_or(Ok(true), |message| Err(format!("{message} follows its end")))
}
