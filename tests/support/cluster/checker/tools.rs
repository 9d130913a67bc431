//! Checks what tools were asked against what the log says, and against their effects.

use std::collections::{BTreeMap, BTreeSet};

use super::log::{CallResult, Log};
use super::{Complaints, Promise, Violation};
use crate::support::cluster::evidence::{ClientTrace, Evidence};
use crate::support::cluster::plan::Tool;
use crate::support::cluster::tools::Dispatch;
use crate::support::journal::{Ending, Entry};

/// The dispatches of one run.
pub(super) fn check_run(trace: &ClientTrace, log: &Log, tools: &[Entry<Dispatch>], complaints: &mut Complaints<'_>) {
    let run = trace.run().unwrap_or_default();
    let all: Vec<&Entry<Dispatch>> = tools.iter().filter(|entry| entry.what.run == run).collect();
    let own: Vec<&Dispatch> = all.iter().map(|entry| &entry.what).collect();
    for dispatch in &own {
        let name = dispatch.tool.name();
        if !log.calls().any(|call| call.id == dispatch.call && call.name == name) {
            let what = format!("{name} was asked for the call {}, which is not in its log", dispatch.call);
            complaints.add(Promise::Tools, what);
        }
        if dispatch.task.tag != trace.plan.tag {
            complaints.add(Promise::Tools, format!("{name} was asked for an task of {}", dispatch.task.tag));
        }
    }
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for dispatch in &own {
        *times.entry(&dispatch.call).or_default() += 1;
    }
    for (call, times) in times {
        // What may be repeated is repeated after a takeover, and when its answer was lost.
        let is_lost = |entry: &&&Entry<Dispatch>| entry.what.call == call && entry.ended.is_some_and(is_dropped);
        let lost = all.iter().filter(is_lost).count();
        if times <= log.resumed + lost + 1 {
            continue;
        }
        let what = format!(
            "the call {call} was dispatched {times} times, the run was taken up {} times, and {lost} answers were lost",
            log.resumed
        );
        complaints.add(Promise::Tools, what);
    }
    for call in log.calls() {
        let Some(CallResult { content, is_error, is_unknown }) = &call.result else { continue };
        let dispatched = own.iter().find(|dispatch| dispatch.call == call.id);
        let answer = dispatched.map(|dispatch| dispatch.task.answer(dispatch.tool));
        if answer.as_ref() == Some(content) && !is_error && !is_unknown {
            continue;
        }
        // What else a call may have for a result, and never as if it had gone well: that its outcome is unknown
        // or, where that does no harm, that its answer was lost. Not that nothing was sent, if the tool was asked.
        let is_called_unknown = *is_unknown && content.contains("unknown");
        let is_told = if call.name == Tool::Book.name() {
            is_called_unknown
        } else {
            // A run that stops repeats nothing, so what a driver that died may have sent stays unknown; of what only reads
            // it is enough to say that it was interrupted.
            let says_so = is_called_unknown || (call.name == Tool::Look.name() && content.contains("interrupted"));
            let is_left = call.interrupted && log.has_failed() && says_so;
            is_left || call.lost && !content.contains("could not be reached")
        };
        // A run that stops makes no further call, and says so. The tool was never asked then.
        let is_unmade = content.contains("was not made") && dispatched.is_none() && log.has_failed();
        if !*is_error || !(call.is_open() && is_told || is_unmade) {
            let what = format!(
                "the call {} of {} has the result {content:?}, and {answer:?} was answered",
                call.id, call.name
            );
            complaints.add(Promise::Tools, what);
        }
    }
}

/// Whether an exchange ended without its whole answer.
fn is_dropped((_, ending): (u64, Ending)) -> bool {
    ending == Ending::Dropped
}

/// A dispatch for the same task before: its key, its run, and when and how it ended.
type Before<'a> = (&'a String, &'a String, Option<(u64, Ending)>);

/// Checks what holds for all dispatches, of every run.
pub(super) fn check_all(evidence: &Evidence, all: &mut Vec<Violation>) {
    let (mut keys, mut calls) = (BTreeMap::new(), BTreeMap::new());
    let mut fences: BTreeMap<&str, u64> = BTreeMap::new();
    let accepted: BTreeSet<&str> = evidence.clients.iter().filter_map(ClientTrace::run).collect();
    for entry in &evidence.tools {
        let Dispatch { tool, task, run, call, key, fence } = &entry.what;
        let (name, what) = (tool.name(), format!("{}.{}.{}", task.tag, task.round, task.index));
        let mut complaints = Complaints { of: run.clone(), all };
        if key.is_empty() || run.is_empty() || call.is_empty() {
            complaints.add(Promise::Tools, format!("{name} was asked without a key, run or call for {what}"));
        }
        let before: &mut Vec<Before<'_>> = keys.entry((tool, task)).or_default();
        match before.as_slice() {
            [] => {}
            _ if *tool == Tool::Book => {
                complaints.add(
                    Promise::Tools,
                    format!("{name} was asked again for {what}, with the key {key} after {before:?}"),
                );
            }
            [(first_key, first_run, ending), ..] => {
                // A model that is told that reading failed may read again.
                let may_ask_again = *tool == Tool::Look && (*ending).is_some_and(is_dropped);
                if *first_run == run && *first_key != key && !may_ask_again {
                    complaints.add(
                        Promise::Tools,
                        format!("{name} was asked for {what} with the key {key} after {first_key}"),
                    );
                }
            }
        }
        before.push((key, run, entry.ended));
        if calls.entry(key).or_insert((tool, task)) != &(tool, task) {
            complaints.add(Promise::Tools, format!("{name} was asked for {what} with a key of something else, {key}"));
        }
        let fence = fence.as_ref().and_then(|fence| fence.parse::<u64>().ok());
        if fence.is_none() {
            complaints.add(Promise::Tools, format!("{name} was asked for {what} without a fence"));
        }
        if let Some(fence) = fence {
            let newest = fences.entry(run).or_default();
            if fence < *newest {
                complaints
                    .add(Promise::Tools, format!("{name} was asked for {what} under fence {fence} after {newest}"));
            }
            *newest = fence.max(*newest);
        }
        if evidence.keyed && !accepted.contains(run.as_str()) {
            complaints.add(Promise::Runs, format!("{name} was asked for {what} by a run that no client has"));
        }
    }
}
