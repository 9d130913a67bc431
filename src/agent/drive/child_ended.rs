//! What is recorded of a run that another one began, once it has ended. Pure.

use crate::agent::drive::pending::answered;
use crate::agent::machine::Run;
use crate::types::conversation::Part;
use crate::types::delegate::{ChildEnd, CompletedChild, Delegated, StartedChild};
use crate::types::taken::Taken;
use crate::types::{CallId, Event, RunStatus, StopReason, ToolOutcome};

/// What the model is told of how a run ended that it asked for.
fn outcome(end: &ChildEnd) -> ToolOutcome {
    ToolOutcome {
        parts: vec![Part::text(&end.text)],
        is_error: end.status != RunStatus::Completed,
        truncated: end.truncated,
        bytes: end.text.len() as u64,
        ..ToolOutcome::default()
    }
}

/// That a run has ended so which this one began.
pub(super) fn completed(child: &StartedChild, end: &ChildEnd) -> Event {
    let ChildEnd { status, reason, own, tree, .. } = *end;
    let completed = CompletedChild { status, reason: Some(reason), own, tree, ..unknown(child, status) };
    Event::Delegated(Box::new(Delegated::Completed(completed)))
}

/// The same of one of which nothing more is known.
pub(super) fn completed_unknown(child: &StartedChild, status: RunStatus) -> Event {
    Event::Delegated(Box::new(Delegated::Completed(unknown(child, status))))
}

fn unknown(StartedChild { step, call_id, run, .. }: &StartedChild, status: RunStatus) -> CompletedChild {
    let (own, tree) = (Taken::default(), Taken::default());
    CompletedChild { step: *step, call_id: call_id.clone(), run: run.clone(), status, reason: None, own, tree }
}

/// The end of a run that did not tell its own in time.
pub(super) fn late(child: &StartedChild) -> ChildEnd {
    ChildEnd {
        run: child.run.clone(),
        status: RunStatus::Cancelled,
        reason: StopReason::Cancelled,
        text: format!("The agent {:?} did not answer in time, and was stopped.", child.agent),
        truncated: false,
        own: Taken::default(),
        tree: Taken::default(),
    }
}

/// What is recorded of a run that never begins, for this reason.
pub(super) fn refused(run: &Run, child: &StartedChild, why: String, now_ms: u64) -> Vec<Event> {
    let answer = answered(run, &child.call_id, ToolOutcome::failed(why), now_ms);
    [completed_unknown(child, RunStatus::Failed)].into_iter().chain(answer).collect()
}

/// What is recorded once a run is told that one has ended which it began: nothing if it knows that, or began no such run.
pub(super) fn child_ended(run: &Run, call: &CallId, end: &ChildEnd, now_ms: u64) -> Vec<Event> {
    let Some(child) = run.child_of(call).filter(|child| child.run == end.run) else { return Vec::new() };
    let answer = answered(run, call, outcome(end), now_ms);
    [completed(child, end)].into_iter().chain(answer).collect()
}
