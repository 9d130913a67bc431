//! Checks a run's steps against its plan, and what it was charged against what the model was asked.

use super::log::{Log, Step, StepEnd};
use super::{Complaints, Promise, clip};
use crate::support::cluster::evidence::Evidence;
use crate::support::cluster::harm::{Break, Progress};
use crate::support::cluster::model::ModelCall;
use crate::support::cluster::plan::Plan;
use crate::support::journal::{Ending, Entry};
use serde_json::Value;

/// More than any step of the cluster's runs reserves besides a long input: the most output by default, and the tools.
const MOST_RESERVED: u64 = MOST_OUTPUT + 4_096;
/// The output that a step reserves by default, in tokens, and at most.
const MOST_OUTPUT: u64 = 8_192;

/// Each turn of the plan is there once, in order, with its whole text; whatever else was begun is void. A run that took messages
/// so many times may have as many turns more, as each may have come when it was about to end.
pub(super) fn check_steps(plan: &Plan, log: &Log, steered: usize, complaints: &mut Complaints<'_>) {
    let kept: Vec<&Step> = log.steps.iter().filter(|step| step.end != StepEnd::Discarded).collect();
    let mut progress = Progress::default();
    for step in &log.steps {
        let expected = plan.text(progress.round);
        match step.end {
            StepEnd::Discarded | StepEnd::Open | StepEnd::Interrupted if step.calls.is_empty() => {
                if !expected.starts_with(&step.text) {
                    complaints.add(Promise::Steps, odd_text(step, &step.text, &expected));
                }
            }
            StepEnd::Discarded | StepEnd::Open | StepEnd::Interrupted | StepEnd::Completed => {
                if step.text != expected {
                    complaints.add(Promise::Steps, odd_text(step, &step.text, &expected));
                }
                check_calls(plan, &progress, step, complaints);
            }
        }
        if step.end == StepEnd::Completed {
            progress = progress.after(plan, &results(step));
        }
    }
    let Some(terminal) = &log.terminal else { return };
    let is_half = |step: &&Step| matches!(step.end, StepEnd::Open | StepEnd::Interrupted);
    if kept.iter().copied().any(|step| is_half(&step)) && terminal["type"] == "run.completed" {
        complaints.add(Promise::Steps, "it completed with a step that is open");
    }
    if terminal["type"] != "run.completed" {
        return;
    }
    check_completed(plan, progress.round, steered, terminal, complaints);
}

/// A run that completed took all turns of its plan, and at most as many more as it took messages. Its output is what it said in
/// the last one.
fn check_completed(plan: &Plan, taken: u32, steered: usize, terminal: &Value, complaints: &mut Complaints<'_>) {
    let planned = plan.rounds + 1;
    if taken < planned || (taken - planned) as usize > steered {
        let what = format!("it completed after {taken} of {planned} turns, and took messages {steered} times");
        complaints.add(Promise::Steps, what);
    }
    let said = terminal["output_text"].as_str().unwrap_or_default();
    if said != plan.text(plan.rounds.max(taken.saturating_sub(1))) {
        complaints.add(Promise::Steps, format!("its output is {:?}", clip(said)));
    }
}

fn odd_text(step: &Step, text: &str, expected: &str) -> String {
    format!("step {} says {:?} where its plan says {:?}", step.number, clip(text), clip(expected))
}

/// What the step's calls came to, in the order of the plan.
fn results(step: &Step) -> Vec<&str> {
    let mut calls: Vec<_> = step.calls.iter().collect();
    calls.sort_by_key(|call| call.arguments["index"].as_u64());
    calls.iter().map(|call| call.result.as_ref().map_or("", |result| result.content.as_str())).collect()
}

fn check_calls(plan: &Plan, progress: &Progress, step: &Step, complaints: &mut Complaints<'_>) {
    let tasks = progress.tasks(plan);
    let expected: Vec<_> =
        tasks.iter().map(|(tool, task)| (tool.name(), serde_json::to_value(task).expect("it is plain data"))).collect();
    let mut found: Vec<_> = step.calls.iter().map(|call| (call.name.as_str(), call.arguments.clone())).collect();
    // A run that stops has not made all of its calls.
    let complete = step.end == StepEnd::Completed;
    found.sort_by_key(|(_, arguments)| arguments["index"].as_u64());
    if (complete && found != expected) || found.iter().any(|call| !expected.contains(call)) {
        let what = format!("step {} calls {found:?} where its plan has {expected:?}", step.number);
        complaints.add(Promise::Steps, clip(&what));
    }
    for call in step.calls.iter().filter(|call| complete && call.result.is_none()) {
        complaints.add(Promise::Runs, format!("the call {} of step {} has no result", call.id, step.number));
    }
}

/// The model is shown what the tools answered, as the log has it, and nothing else. What it was shown before a primary of
/// the store was replaced stays in the log, and after that drivers know the log anew: only in between may it have been
/// shown what the store forgot.
pub(super) fn check_shown(plan: &Plan, log: &Log, evidence: &Evidence, complaints: &mut Complaints<'_>) {
    let kept = log.steps.iter().filter(|step| step.end == StepEnd::Completed);
    let turns: Vec<Vec<&str>> = kept.map(results).collect();
    let calls = evidence.model.iter().filter(|call| call.what.tag == plan.tag);
    let calls = calls.filter(|call| evidence.forgotten_between(call.at_ms, call.at_ms) == 0);
    for ModelCall { round, results, .. } in calls.map(|call| &call.what) {
        let before = turns.get(..*round as usize).map(<[_]>::concat);
        if before.as_ref().is_none_or(|before| before != results) {
            let what = format!("turn {round} was asked for with the results {results:?}, and its log has {before:?}");
            complaints.add(Promise::Steps, clip(&what));
        }
    }
}

/// The run is charged the output of each turn that it kept, and what it showed of the others: at four bytes a token a
/// server cannot come below one token for eight bytes. The server tells the upstream a bound, because the key has a budget,
/// and charges no more than that bound for an answer that broke off, whatever an upstream says beyond it.
fn check_output(plan: &Plan, log: &Log, terminal: &Value, complaints: &mut Complaints<'_>) {
    let (kept, void): (Vec<&Step>, Vec<_>) = log.steps.iter().partition(|step| step.end == StepEnd::Completed);
    let shown = void.iter().map(|step| (step.text.len() as u64).div_ceil(8).min(MOST_OUTPUT));
    let least = kept.len() as u64 * plan.usage(0).1 + shown.sum::<u64>();
    let charged = terminal["usage"]["completion_tokens"].as_u64().unwrap_or(0);
    if charged < least {
        complaints
            .add(Promise::Steps, format!("it is charged {charged} tokens of output, and showed at least {least}"));
    }
}

/// Every model call was reserved by a step that was recorded before, and what the upstream bills for it is charged: all of
/// what it said that it took, and no more; where the server did not hear that, its input at least and a reservation at most.
pub(super) fn check_charges(plan: &Plan, log: &Log, evidence: &Evidence, complaints: &mut Complaints<'_>) {
    let calls: Vec<_> = evidence.model.iter().filter(|call| call.what.tag == plan.tag).collect();
    let reserved = log.steps.len() + log.retried;
    if calls.len() > reserved {
        let what = format!("the model was asked {} times, and {reserved} of these were recorded before", calls.len());
        complaints.add(Promise::Steps, what);
    }
    let Some(terminal) = &log.terminal else { return };
    let is_finished = |call: &&&Entry<ModelCall>| {
        call.what.breaks != Break::Gateway && matches!(call.ended, Some((_, Ending::Finished)))
    };
    let (finished, broken): (Vec<&Entry<ModelCall>>, Vec<_>) = calls.iter().partition(|call| is_finished(call));
    let billed = finished.iter().map(|call| call.what.tokens).sum::<u64>()
        + broken.iter().map(|call| call.what.input).sum::<u64>();
    let charged = terminal["usage"]["total_tokens"].as_u64().unwrap_or(0);
    // A driver that lost the store could not record what it heard. Of such a call the next driver knows the input alone.
    let mut outputs: Vec<u64> = finished.iter().map(|call| call.what.tokens.saturating_sub(call.what.input)).collect();
    outputs.sort_unstable_by(|one, other| other.cmp(one));
    let unheard: u64 = outputs.iter().take(log.interrupted_steps()).sum();
    if charged + unheard < billed {
        complaints.add(Promise::Steps, format!("it is charged {charged} tokens, and the upstream bills {billed}"));
    }
    check_output(plan, log, terminal, complaints);
    // What was billed and is not known to the run is the key's.
    let bills = |call: &&Entry<ModelCall>| match call.what.breaks {
        Break::Cut | Break::Stalled => call.what.billed,
        Break::Whole | Break::Closed | Break::Untold | Break::Gateway => call.what.input,
    };
    let of_key = finished.iter().map(|call| call.what.tokens).sum::<u64>()
        + broken.iter().copied().map(|call| bills(&call)).sum::<u64>();
    let unconfirmed = terminal["agent"]["budget"]["unconfirmed"]["tokens"].as_u64().unwrap_or(0);
    if charged + unconfirmed < of_key {
        let keyed = charged + unconfirmed;
        complaints.add(Promise::Budgets, format!("its key is charged {keyed} tokens, and the upstream bills {of_key}"));
    }
    // A replica that died before it recorded what the upstream had said does not know it.
    let unsettled = log.steps.iter().filter(|step| step.end != StepEnd::Completed).count();
    let untold = finished.iter().filter(|call| call.what.breaks == Break::Untold).count();
    let most = MOST_RESERVED + 4 * calls.iter().map(|call| call.what.input).max().unwrap_or(0);
    let mut estimated = unsettled + untold + log.retried;
    if evidence.drivers_stayed {
        // Then a step that did not complete is charged only if its call was made.
        let completed = log.steps.len() - unsettled;
        estimated = estimated.min(calls.len().saturating_sub(completed) + untold);
    }
    let estimated = estimated as u64;
    if charged > billed + estimated * most {
        let what =
            format!("it is charged {charged} tokens, and the upstream bills {billed}, with {estimated} estimates");
        complaints.add(Promise::Steps, what);
    }
    // What the server did not hear is charged by estimate, and the run says so.
    let known: u64 =
        finished.iter().filter(|call| call.what.breaks != Break::Untold).map(|call| call.what.tokens).sum();
    if charged != known && terminal["usage"]["estimated"] != true {
        let what = format!("it is charged {charged} tokens as if these were known, and the upstream told of {known}");
        complaints.add(Promise::Steps, what);
    }
    if terminal["agent"]["budget"]["tokens_used"].as_u64() != Some(charged) {
        complaints.add(
            Promise::Budgets,
            format!("its budget counts {} of {charged} tokens", terminal["agent"]["budget"]["tokens_used"]),
        );
    }
    if let Some(limit) = terminal["agent"]["budget"]["token_limit"].as_u64().filter(|limit| charged > *limit) {
        complaints.add(Promise::Budgets, format!("it took {charged} tokens of {limit}"));
    }
}
