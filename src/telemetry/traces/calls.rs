//! The tool calls of a run as spans. Pure.

use std::collections::HashMap;

use super::names::{self, operation};
use super::span::Span;
use super::subject::Subject;
use crate::telemetry::fold::call_outcome;
use crate::types::tool::CallEnding;
use crate::types::trace::SpanId;
use crate::types::{CallId, Effect, SpanKey, ToolCall, ToolOutcome};

/// The calls of a step that have no result yet.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: Vec<Call>,
    /// Those that were under way when the replica that made them left the run, with the ends of their spans.
    cut: Vec<Call>,
    /// How often a call was made of which the outcome is unknown: it may be made again.
    lost: HashMap<CallId, u32>,
}

/// Why a call has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// The step ended without it.
    Unanswered,
    /// The log ends before it.
    Unfinished,
}

#[derive(Debug)]
struct Call {
    id: CallId,
    /// Which time it is made, counted from 1.
    attempt: u32,
    span: Span,
}

impl Calls {
    /// A call begins.
    pub(super) fn start(&mut self, subject: &Subject, step: SpanId, call: &ToolCall, effect: Effect, at_ms: u64) {
        let attempt = self.lost.remove(&call.id).unwrap_or(0) + 1;
        let mut span = begin(subject, step, (&call.id, &call.name), attempt, at_ms);
        span.set(names::EFFECT, effect_word(effect));
        if let Some(arguments) = subject.content.text(&call.arguments) {
            span.set(names::CALL_ARGUMENTS, arguments);
        }
        self.open.push(Call { id: call.id.clone(), attempt, span });
    }

    /// The replica that made them left them at this time.
    pub(super) fn interrupt(&mut self, at_ms: u64) -> Vec<Span> {
        // One that was interrupted before is told now: what comes of it comes of a later attempt.
        let told = std::mem::take(&mut self.cut).into_iter().map(|call| call.span).collect();
        for mut call in std::mem::take(&mut self.open) {
            call.span.end_ms = at_ms;
            call.span.fail("interrupted", "");
            self.cut.push(call);
        }
        told
    }

    /// A call ended. Returns its span, and before it the span of the attempt that was interrupted, if there is one.
    pub(super) fn finish(
        &mut self,
        subject: &Subject,
        (step, step_ms): (SpanId, u64),
        (id, name): (&CallId, &str),
        outcome: &ToolOutcome,
        at_ms: u64,
    ) -> Vec<Span> {
        let mut told = Vec::new();
        let begun_ms = at_ms.saturating_sub(outcome.latency_ms).max(step_ms);
        let mut call = if let Some(at) = self.open.iter().position(|call| call.id == *id) {
            self.open.swap_remove(at)
        } else if let Some(at) = self.cut.iter().position(|call| call.id == *id) {
            let cut = self.cut.swap_remove(at);
            if outcome.latency_ms == 0 && outcome.ending.is_without_answer() {
                // It was not made again: this is what came of the attempt that was interrupted.
                let mut span = cut.span;
                span.set(names::CALL_OUTCOME, call_outcome(outcome));
                self.note_lost(id, cut.attempt, outcome);
                return vec![span];
            }
            let attempt = cut.attempt + 1;
            let mut span = begin(subject, step, (id, name), attempt, begun_ms.max(cut.span.end_ms));
            span.links.push(cut.span.id);
            told.push(cut.span);
            Call { id: id.clone(), attempt, span }
        } else {
            Call { id: id.clone(), attempt: 1, span: begin(subject, step, (id, name), 1, begun_ms) }
        };
        self.note_lost(id, call.attempt, outcome);
        call.span.end_ms = at_ms;
        describe(&mut call.span, subject, outcome);
        told.push(call.span);
        told
    }

    /// Those that are left have no result, at least not yet.
    pub(super) fn close(&mut self, left: Left, at_ms: u64) -> Vec<Span> {
        let open = std::mem::take(&mut self.open).into_iter().map(|mut call| {
            call.span.end_ms = at_ms;
            match left {
                Left::Unanswered => call.span.fail("unanswered", ""),
                Left::Unfinished => call.span.set(names::UNFINISHED, true),
            }
            call.span
        });
        open.chain(std::mem::take(&mut self.cut).into_iter().map(|call| call.span)).collect()
    }

    fn note_lost(&mut self, id: &CallId, attempt: u32, outcome: &ToolOutcome) {
        if outcome.ending == CallEnding::Lost {
            self.lost.insert(id.clone(), attempt);
        }
    }
}

fn begin(subject: &Subject, step: SpanId, (id, name): (&CallId, &str), attempt: u32, at_ms: u64) -> Span {
    let title = format!("{} {name}", operation::EXECUTE_TOOL);
    let mut span = Span::begin(&subject.run, SpanKey::ToolCall(id, attempt), title, at_ms).within(step);
    span.set(names::OPERATION, operation::EXECUTE_TOOL);
    span.set(names::TOOL, name.to_owned());
    span.set(names::TOOL_TYPE, "function");
    span.set(names::CALL, id.to_string());
    span.set(names::ATTEMPT, attempt);
    span
}

fn describe(span: &mut Span, subject: &Subject, outcome: &ToolOutcome) {
    span.set(names::CALL_OUTCOME, call_outcome(outcome));
    span.set(names::RESULT_BYTES, outcome.bytes);
    if let Some(status) = outcome.status {
        span.set(names::HTTP_STATUS, u64::from(status));
    }
    let failure = match outcome.ending {
        CallEnding::Answered => outcome.is_error.then_some("tool_error"),
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

fn effect_word(effect: Effect) -> &'static str {
    match effect {
        Effect::Read => "read",
        Effect::Idempotent => "idempotent",
        Effect::Write => "write",
    }
}
