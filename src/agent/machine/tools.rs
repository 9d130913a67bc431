//! What a run knows of its tools and of their calls.

use super::calls::{Executor, OpenCall};
use super::{Run, Stop};
use crate::types::guard::ResultBounds;
use crate::types::run::OnUnknownOutcome;
use crate::types::tool::{CallEnding, FoundTool};
use crate::types::{CallId, Effect, ErrorKind, RunError, StopReason, ToolCall, ToolOutcome};

impl Run {
    /// How many tool calls it has named; the next id bears the next number.
    #[must_use]
    pub fn calls_minted(&self) -> u16 {
        self.calls_minted
    }

    /// Which time this call is dispatched now, counted from 1: more than once only after a crash, or if the caller
    /// asked for it.
    #[must_use]
    pub fn attempt(&self, call: &CallId) -> u32 {
        self.calls.iter().find(|open| open.call.id == *call).map_or(1, OpenCall::attempt)
    }

    /// What this call began as, if it was dispatched and has no result: a crash interrupted it.
    #[must_use]
    pub fn started(&self, call: &CallId) -> Option<Effect> {
        self.calls.iter().find(|open| open.call.id == *call).and_then(OpenCall::started)
    }

    /// How many bytes of pictures, sound and files its tools answered with, in base64.
    #[must_use]
    pub fn result_media(&self) -> usize {
        self.from_tools.media as usize
    }

    /// What is kept of the result of a call. A result takes half of the context window at most.
    #[must_use]
    pub fn result_bounds(&self) -> ResultBounds {
        self.spec.guards.results.within(self.terms().context_window)
    }

    /// The tools that it found, the latest last. The model is offered them beside those that it has from the start.
    #[must_use]
    pub fn found_tools(&self) -> &[FoundTool] {
        &self.from_tools.found
    }

    /// How many more tools it can find in this step, so that the model is offered all of them in the next.
    #[must_use]
    pub fn room_for_tools(&self) -> usize {
        self.spec.search.map_or(0, |search| self.from_tools.room(search))
    }

    /// Takes in the calls of a turn. The server's own are counted, and those beyond the run's limit are not made.
    pub(super) fn open_calls<'c>(&mut self, calls: impl Iterator<Item = &'c ToolCall>) {
        let mut calls: Vec<_> = calls.map(|call| self.open(call)).collect();
        let most = self.spec.limits.max_tool_calls.unwrap_or(u32::MAX);
        for open in calls.iter_mut().filter(|open| !open.executor.is_outside()) {
            open.is_cut = self.calls_made >= most;
            self.is_over_calls |= open.is_cut;
            self.calls_made += u32::from(!open.is_cut);
        }
        self.calls_minted += u16::try_from(calls.len()).unwrap_or(u16::MAX);
        self.calls = calls;
    }

    fn open(&self, call: &ToolCall) -> OpenCall {
        let is_clients = self.spec.client_tools.iter().any(|tool| tool.name == call.name);
        let is_own = self.spec.own_tools.iter().any(|tool| tool.name == call.name);
        let executor = match (is_clients, is_own) {
            (true, _) => Executor::Client,
            (false, true) if self.spec.question(&call.name, &call.arguments).is_some() => Executor::User,
            (false, true) => Executor::Run,
            (false, false) => Executor::Server,
        };
        OpenCall::new(call.clone(), executor)
    }

    /// Why a run stops in which this came of a call; `None` if it goes on.
    pub(super) fn stop_after(&self, call: &ToolCall, outcome: &ToolOutcome) -> Option<Stop> {
        let (id, name) = (&call.id, &call.name);
        let stop = |reason, kind, message| Stop { reason, error: Some(RunError::new(kind, message)), short: None };
        let policy = self.spec.options.on_unknown_outcome;
        match (outcome.ending, policy) {
            (CallEnding::Lost, OnUnknownOutcome::Fail) => {
                let message = format!("Whether the call {id} of `{name}` took effect is unknown.");
                Some(stop(StopReason::OutcomeUnknown, ErrorKind::OutcomeUnknown, message))
            }
            (CallEnding::Lost, OnUnknownOutcome::Ask) => None,
            // What the tool said stays in the report: it may quote anything.
            _ if self.spec.rules.tool_errors.end_run(name, outcome) => {
                let message = format!("The call {id} of `{name}` failed, and the run was to end then.");
                Some(stop(StopReason::ToolError, ErrorKind::ToolFailed, message))
            }
            _ => None,
        }
    }
}
