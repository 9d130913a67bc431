//! Checks what clients saw against the log.

use super::log::{Log, show};
use super::{Complaints, Promise, clip};
use crate::support::cluster::evidence::{Cancellation, ClientTrace, End, Evidence, RunView};
use crate::support::cluster::plan::Tool;

/// What a client complains of itself.
pub(super) fn check_client(trace: &ClientTrace, complaints: &mut Complaints<'_>) {
    for complaint in &trace.complaints {
        complaints.add(Promise::Streams, clip(complaint));
    }
    for other in trace.runs.iter().filter(|run| Some(run.as_str()) != trace.run()) {
        complaints.add(Promise::Runs, format!("its request made another run as well, {other}"));
    }
    if trace.accepted_ms.is_some() && trace.run().is_none() {
        complaints.add(Promise::Runs, "it was accepted without an id");
    }
}

/// Each connection goes on where it was told to, and all of them together are the log.
pub(super) fn check_readings(trace: &ClientTrace, log: &Log, complaints: &mut Complaints<'_>) {
    let mut last = 0;
    for reading in &trace.readings {
        let at = &reading.address;
        for (event, expected) in reading.events.iter().map(|(_, event)| event).zip(reading.after + 1..) {
            let id = event.id.unwrap_or(0);
            if id != expected {
                complaints.add(Promise::Streams, format!("{at} sent event {id} where {expected} was next"));
                break;
            }
            if id <= last {
                complaints.add(Promise::Streams, format!("{at} sent event {id} again, after {last}"));
            }
            let stored = usize::try_from(id - 1).ok().and_then(|index| log.events.get(index));
            if stored != Some(event) {
                let (sent, kept) = (show(Some(event)), show(stored));
                complaints.add(Promise::Streams, format!("{at} sent {sent}, and its log has {kept}"));
            }
            last = last.max(id);
        }
        let ends = reading.events.last().is_none_or(|(_, event)| is_terminal(&event.name));
        if reading.end == End::Done && !ends {
            complaints
                .add(Promise::Streams, format!("{at} said that it was done after event {last}, which is not the last"));
        }
    }
    if trace.ended_ms.is_some() && last != log.events.len() as u64 {
        let what = format!("its client was told that there is no more after event {last} of {}", log.events.len());
        complaints.add(Promise::Streams, what);
    }
}

/// The run came to one of the ends that it may have, and everyone knows the same one.
pub(super) fn check_end(
    trace: &ClientTrace,
    view: &RunView,
    log: &Log,
    allowed: &[String],
    complaints: &mut Complaints<'_>,
) {
    if trace.ended_ms.is_none() {
        let last = show(log.events.last());
        complaints.add(Promise::Runs, format!("its client never saw it end; its log's last event is {last}"));
    }
    check_terminal(view, log, allowed, complaints);
    let is_unknown = log.calls().any(|call| call.result.as_ref().is_some_and(|result| result.is_unknown));
    let reason = log.terminal.as_ref().map(|terminal| &terminal["agent"]["stop_reason"]);
    let is_wrong = match reason.and_then(|reason| reason.as_str()) {
        Some("done") => is_unknown && trace.fails_if_unknown,
        Some("outcome_unknown") => !trace.fails_if_unknown,
        _ => false,
    };
    if is_wrong {
        let policy = if trace.fails_if_unknown { "was" } else { "was not" };
        complaints.add(Promise::Runs, format!("it {policy} to fail of an unknown outcome, and ended for {reason:?}"));
    }
}

/// How long a run may go on that is cancelled: until it is taken over, if its replica has died, and until its driver looks
/// for commands of which no nudge told it.
const STOPS_WITHIN_MS: u64 = 20_000;

/// A run that its client cancelled begins nothing more soon after that was asked, nor after it was answered; and it is then
/// as the answer says.
pub(super) fn check_cancellation(
    trace: &ClientTrace,
    view: &RunView,
    evidence: &Evidence,
    complaints: &mut Complaints<'_>,
) {
    let Some(Cancellation { first_ms: _, asked_ms, answered_ms, status }) = &trace.cancellation else { return };
    // What the store forgot, the run does not know.
    if evidence.forgotten_between(*asked_ms, *answered_ms) > 0 {
        return;
    }
    if view.object["status"] != status.as_str() {
        let what = format!("its cancellation was answered with {status}, and it is {}", view.object["status"]);
        complaints.add(Promise::Runs, what);
    }
    let last_ms = (asked_ms + STOPS_WITHIN_MS).min(*answered_ms);
    let late = |at_ms: u64| format!("{} ms after it was to be cancelled", at_ms.saturating_sub(*asked_ms));
    for call in evidence.model.iter().filter(|call| call.what.tag == trace.plan.tag && call.at_ms > last_ms) {
        complaints.add(Promise::Steps, format!("turn {} was asked for {}", call.what.round, late(call.at_ms)));
    }
    let of_run = |run: &str| Some(run) == trace.run();
    for call in evidence.tools.iter().filter(|call| of_run(&call.what.run) && call.at_ms > last_ms) {
        let name = call.what.tool.name();
        complaints.add(Promise::Tools, format!("{name} was asked for {} {}", call.what.call, late(call.at_ms)));
    }
}

/// The log ends as runs may end, and the run itself says the same.
pub(super) fn check_terminal(view: &RunView, log: &Log, allowed: &[String], complaints: &mut Complaints<'_>) {
    let Some(terminal) = &log.terminal else {
        return complaints
            .add(Promise::Runs, format!("it has no last event, and its status is {}", view.object["status"]));
    };
    let (status, reason) = (&terminal["agent"]["status"], &terminal["agent"]["stop_reason"]);
    if view.object["status"] != *status || view.object["stop_reason"] != *reason {
        let object = (&view.object["status"], &view.object["stop_reason"]);
        let what = format!("its last event says {status} {reason}, and the run itself {} {}", object.0, object.1);
        complaints.add(Promise::Runs, what);
    }
    if terminal["type"].as_str().and_then(|name| name.strip_prefix("run.")) != status.as_str() {
        complaints.add(Promise::Runs, format!("its last event is {}, and says that it is {status}", terminal["type"]));
    }
    let interrupted = |tool: Tool| log.calls().any(|call| call.is_open() && call.name == tool.name());
    let is_good = match reason.as_str() {
        Some("done") => status == "completed",
        Some("outcome_unknown") => status == "failed" && interrupted(Tool::Book),
        Some(reason) => allowed.iter().any(|allowed| allowed == reason),
        None => false,
    };
    if !is_good {
        complaints.add(Promise::Runs, clip(&format!("it ended as {status} for {reason}: {}", terminal["error"])));
    }
}

fn is_terminal(name: &str) -> bool {
    ["run.completed", "run.incomplete", "run.cancelled", "run.failed", "run.requires_action"].contains(&name)
}
