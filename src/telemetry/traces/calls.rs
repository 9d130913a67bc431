//! The tool calls of a run as spans. Pure.
//!
//! Each attempt is a span of its own, which tools are told as their parent. So attempts are counted here as the run counts
//! them: a call that was under way when its replica left the run is taken to be made again by the next one, unless its
//! result says that it was not.

use std::collections::{HashMap, HashSet};

use super::names::{self, operation};
use super::span::{Room, Span};
use super::subject::Subject;
use crate::telemetry::fold::call_outcome;
use crate::types::tool::CallEnding;
use crate::types::trace::SpanId;
use crate::types::{CallId, Effect, SpanKey, ToolCall, ToolOutcome};

/// What stands for a name that no tool has, as in metrics.
const OTHER: &str = "other";

/// The longest name of a tool.
const LONGEST_NAME: usize = 64;

/// The calls of a step that have no result yet.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: Vec<Call>,
    /// Those that were under way when the replica that made them left the run.
    interrupted: Vec<Call>,
    /// How often each call was made, or may have been.
    attempts: HashMap<CallId, u32>,
    /// The names of the tools that were called. Another name is a model's own words.
    called: HashSet<String>,
}

/// Why a call has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// The step ended without it.
    Unanswered,
    /// The run waits, for the services of those that are pending too.
    Waiting,
    /// The log ends before it.
    Unfinished,
}

#[derive(Debug)]
struct Call {
    id: CallId,
    name: String,
    span: Span,
    /// The attempt before, which was interrupted.
    before: Option<Span>,
    /// Whether its service goes on with it, whatever becomes of the replica.
    is_pending: bool,
}

impl Calls {
    /// A call begins.
    pub(super) fn start(
        &mut self,
        (subject, room): (&Subject, &mut Room),
        step: SpanId,
        call: &ToolCall,
        effect: Effect,
        at_ms: u64,
    ) {
        let mut span = self.begin(subject, step, (&call.id, &call.name), at_ms).admitted(room);
        span.set(names::EFFECT, effect.as_str());
        if let Some(arguments) = subject.content.text(&call.arguments) {
            span.set(names::CALL_ARGUMENTS, arguments);
        }
        self.open.push(Call { id: call.id.clone(), name: call.name.clone(), span, before: None, is_pending: false });
    }

    /// The service of a call goes on with it, beyond its step: it is a part of the run itself.
    pub(super) fn leave_pending(&mut self, id: &CallId, run: SpanId) {
        for call in self.open.iter_mut().filter(|call| call.id == *id) {
            call.is_pending = true;
            call.span.parent = Some(run);
        }
    }

    /// The replica that made them left them at this time. Returns the spans of attempts that were followed by others.
    pub(super) fn interrupt(&mut self, at_ms: u64) -> Vec<Span> {
        let mut told = Vec::new();
        for mut call in self.open.extract_if(.., |call| !call.is_pending) {
            call.span.end_ms = at_ms;
            call.span.fail("interrupted", "");
            told.extend(call.before.take());
            self.interrupted.push(call);
        }
        told
    }

    /// Whether calls were interrupted and are not yet taken up again.
    pub(super) fn has_interrupted(&self) -> bool {
        !self.interrupted.is_empty()
    }

    /// Another replica takes the interrupted calls up.
    pub(super) fn resume(&mut self, (subject, room): (&Subject, &mut Room), step: SpanId, at_ms: u64) {
        for Call { id, name, span: before, .. } in std::mem::take(&mut self.interrupted) {
            let mut span = self.begin(subject, step, (&id, &name), at_ms).admitted(room);
            let is_kept = |name| [names::EFFECT, names::CALL_ARGUMENTS].contains(&name);
            span.attributes.extend(before.attributes.iter().filter(|kept| is_kept(kept.name)).cloned());
            span.links.push(before.id);
            self.open.push(Call { id, name, span, before: Some(before), is_pending: false });
        }
    }

    /// A call ended. Returns its span, and before it the span of the attempt that was interrupted, if there is one.
    pub(super) fn finish(
        &mut self,
        (subject, room): (&Subject, &mut Room),
        (step, step_ms): (SpanId, u64),
        (id, name): (&CallId, &str),
        outcome: &ToolOutcome,
        at_ms: u64,
    ) -> Vec<Span> {
        let begun_ms = at_ms.saturating_sub(outcome.latency_ms).max(step_ms);
        let (mut span, before) = match self.open.iter().position(|call| call.id == *id) {
            Some(at) => {
                let Call { span, before, .. } = self.open.swap_remove(at);
                (span, before)
            }
            None => (self.begin(subject, step, (id, name), begun_ms).admitted(room), None),
        };
        self.rename(&mut span, subject, name, outcome);
        let mut told = Vec::new();
        if let Some(mut before) = before {
            if !was_made(outcome) {
                // This is what came of the attempt that was interrupted.
                before.set(names::CALL_OUTCOME, call_outcome(outcome));
                return vec![before];
            }
            span.start_ms = span.start_ms.max(begun_ms);
            told.push(before);
        }
        span.end_ms = at_ms;
        describe(&mut span, subject, outcome);
        told.push(span);
        told
    }

    /// Those that are left have no result, at least not yet.
    pub(super) fn close(&mut self, left: Left, at_ms: u64) -> Vec<Span> {
        let mut told = Vec::new();
        for Call { mut span, before, .. } in self.open.extract_if(.., |call| left != Left::Waiting || !call.is_pending)
        {
            span.end_ms = at_ms;
            match left {
                Left::Unanswered | Left::Waiting => span.fail("unanswered", ""),
                Left::Unfinished => span.set(names::UNFINISHED, true),
            }
            told.extend(before.into_iter().chain([span]));
        }
        told
    }

    /// Takes the name from the span of a call that was refused, unless a tool is known by it: a model may write anything
    /// there.
    fn rename(&mut self, span: &mut Span, subject: &Subject, name: &str, outcome: &ToolOutcome) {
        if outcome.ending != CallEnding::Skipped {
            if !self.called.contains(name) {
                self.called.insert(name.to_owned());
            }
        } else if !self.called.contains(name) {
            let told =
                subject.content.text(name).map_or(OTHER.to_owned(), |told| told.chars().take(LONGEST_NAME).collect());
            span.name = format!("{} {told}", operation::EXECUTE_TOOL);
            span.attributes.retain(|attribute| attribute.name != names::TOOL);
            span.set(names::TOOL, told);
        }
    }

    /// The next attempt of a call begins.
    fn begin(&mut self, subject: &Subject, step: SpanId, (id, name): (&CallId, &str), at_ms: u64) -> Span {
        let attempt = self.attempts.entry(id.clone()).or_default();
        *attempt += 1;
        let title = format!("{} {name}", operation::EXECUTE_TOOL);
        let mut span = Span::begin(&subject.run, SpanKey::ToolCall(id, *attempt), title, at_ms).within(step);
        span.set(names::OPERATION, operation::EXECUTE_TOOL);
        span.set(names::TOOL, name.to_owned());
        span.set(names::TOOL_TYPE, "function");
        span.set(names::CALL, id.to_string());
        span.set(names::ATTEMPT, *attempt);
        span
    }
}

/// Whether a call that was interrupted was made again, by what came of it: what failed took time, if it was made.
fn was_made(outcome: &ToolOutcome) -> bool {
    outcome.latency_ms > 0 || !outcome.is_error
}

fn describe(span: &mut Span, subject: &Subject, outcome: &ToolOutcome) {
    span.set(names::CALL_OUTCOME, call_outcome(outcome));
    span.set(names::RESULT_BYTES, outcome.bytes);
    if let Some(status) = outcome.status {
        span.set(names::HTTP_STATUS, u64::from(status));
    }
    let failure = match outcome.ending {
        CallEnding::Answered => outcome.has_failed().then_some("tool_error"),
        CallEnding::Pending => None,
        CallEnding::Stopped => Some("stopped"),
        CallEnding::Skipped => Some("skipped"),
        CallEnding::Lost => Some("outcome_unknown"),
    };
    if let Some(failure) = failure {
        span.fail(failure, "");
    }
    if let Some(result) = subject.content.text(&outcome.text()) {
        span.set(names::CALL_RESULT, result);
    }
}
