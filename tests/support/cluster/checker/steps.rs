//! Checks a run's steps against its plan, and what it was charged against what the model was asked.

use super::log::{Log, Step, StepEnd};
use super::{Complaints, Promise, clip};
use crate::support::cluster::model::ModelCall;
use crate::support::cluster::plan::Plan;
use crate::support::journal::{Ending, Entry};

/// Each turn of the plan is there once, in order, with its whole text; whatever else was begun is void.
pub(super) fn check_steps(plan: &Plan, log: &Log, complaints: &mut Complaints<'_>) {
    let kept: Vec<&Step> = log.steps.iter().filter(|step| step.end != StepEnd::Discarded).collect();
    let mut round = 0;
    for step in &log.steps {
        let expected = plan.text(round);
        match step.end {
            StepEnd::Discarded | StepEnd::Open if step.calls.is_empty() => {
                if !expected.starts_with(&step.text) {
                    complaints.add(Promise::Steps, odd_text(step, &step.text, &expected));
                }
            }
            StepEnd::Discarded | StepEnd::Open | StepEnd::Completed => {
                if step.text != expected {
                    complaints.add(Promise::Steps, odd_text(step, &step.text, &expected));
                }
                check_calls(plan, round, step, complaints);
            }
        }
        round += u32::from(step.end == StepEnd::Completed);
    }
    let Some(terminal) = &log.terminal else { return };
    if kept.iter().filter(|step| step.end == StepEnd::Open).count() > 0 && terminal["type"] == "run.completed" {
        complaints.add(Promise::Steps, "it completed with a step that is open");
    }
    if terminal["type"] != "run.completed" {
        return;
    }
    if round != plan.rounds + 1 {
        complaints.add(Promise::Steps, format!("it completed after {round} of {} turns", plan.rounds + 1));
    }
    let said = terminal["output_text"].as_str().unwrap_or_default();
    if said != plan.text(plan.rounds) {
        complaints.add(Promise::Steps, format!("its output is {:?}", clip(said)));
    }
}

fn odd_text(step: &Step, text: &str, expected: &str) -> String {
    format!("step {} says {:?} where its plan says {:?}", step.number, clip(text), clip(expected))
}

fn check_calls(plan: &Plan, round: u32, step: &Step, complaints: &mut Complaints<'_>) {
    let tasks = plan.tasks(round);
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

/// Every model call was reserved by a step that was recorded before, and is charged.
pub(super) fn check_charges(plan: &Plan, log: &Log, model: &[Entry<ModelCall>], complaints: &mut Complaints<'_>) {
    let calls: Vec<_> = model.iter().filter(|call| call.what.tag == plan.tag).collect();
    let reserved = log.steps.len() + log.retried;
    if calls.len() > reserved {
        let what = format!("the model was asked {} times, and {reserved} of these were recorded before", calls.len());
        complaints.add(Promise::Steps, what);
    }
    let Some(terminal) = &log.terminal else { return };
    let finished = calls.iter().filter(|call| matches!(call.ended, Some((_, Ending::Finished))));
    let taken: u64 = finished.map(|call| call.what.tokens).sum();
    let charged = terminal["usage"]["total_tokens"].as_u64().unwrap_or(0);
    if charged < taken {
        complaints.add(Promise::Steps, format!("it is charged {charged} tokens, and the model gave it {taken}"));
    }
    if terminal["agent"]["budget"]["tokens_used"].as_u64() < Some(charged) {
        complaints.add(
            Promise::Budgets,
            format!("its budget counts {} of {charged} tokens", terminal["agent"]["budget"]["tokens_used"]),
        );
    }
    if let Some(limit) = terminal["agent"]["budget"]["token_limit"].as_u64().filter(|limit| charged > *limit) {
        complaints.add(Promise::Budgets, format!("it took {charged} tokens of {limit}"));
    }
}
