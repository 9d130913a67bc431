//! The tool calls of a run's last turn: who answers each, and how far it came.

use crate::types::event::Decision;
use crate::types::tool::CallEnding;
use crate::types::{Effect, ToolCall, ToolOutcome};

/// A call of the last turn.
#[derive(Debug, Clone)]
pub(super) struct OpenCall {
    pub(super) call: ToolCall,
    pub(super) executor: Executor,
    pub(super) state: CallState,
    /// How often it was dispatched before its caller asked for it once more.
    dispatched_before: u32,
    /// How often its run was resumed while it was dispatched.
    interrupted: u32,
}

/// Who answers a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Executor {
    /// A tool of the server, which knows nothing of runs.
    Server,
    /// The run itself: the tool needs it or the store.
    Run,
    /// The client.
    Client,
}

/// How far a call came.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallState {
    Pending,
    Started(Effect),
    /// It is unknown whether the call took effect, and the caller is asked.
    Asked(ToolOutcome),
    Finished(ToolOutcome),
}

impl OpenCall {
    pub(super) fn new(call: ToolCall, executor: Executor) -> Self {
        Self { call, executor, state: CallState::Pending, dispatched_before: 0, interrupted: 0 }
    }

    /// Whether the server has still to answer it.
    pub(super) fn is_open(&self) -> bool {
        match self.state {
            CallState::Pending | CallState::Started(_) => self.executor != Executor::Client,
            CallState::Asked(_) | CallState::Finished(_) => false,
        }
    }

    /// Whether the caller is to answer it.
    pub(super) fn waits_for_caller(&self) -> bool {
        match self.state {
            CallState::Pending | CallState::Started(_) => self.executor == Executor::Client,
            CallState::Asked(_) => true,
            CallState::Finished(_) => false,
        }
    }

    /// What it began as, if it is dispatched.
    pub(super) fn started(&self) -> Option<Effect> {
        match self.state {
            CallState::Started(effect) => Some(effect),
            CallState::Pending | CallState::Asked(_) | CallState::Finished(_) => None,
        }
    }

    /// Which time it is dispatched now, counted from 1.
    pub(super) fn attempt(&self) -> u32 {
        let interrupted = if self.started().is_some() { self.interrupted.max(1) } else { 0 };
        self.dispatched_before + interrupted + 1
    }

    /// Its run was resumed: if it was dispatched, that was interrupted.
    pub(super) fn interrupt(&mut self) {
        if self.started().is_some() {
            self.interrupted += 1;
        }
    }

    /// Keeps the call's outcome. With `asks`, the caller is asked for an outcome that is unknown.
    pub(super) fn finish(&mut self, outcome: &ToolOutcome, asks: bool) {
        self.state = if asks && outcome.ending == CallEnding::Lost {
            CallState::Asked(outcome.clone())
        } else {
            CallState::Finished(outcome.clone())
        };
    }

    /// Applies the caller's decision, if the caller was asked.
    pub(super) fn decide(&mut self, decision: Decision) {
        let CallState::Asked(outcome) = &self.state else { return };
        self.state = match decision {
            Decision::Skip => CallState::Finished(outcome.clone()),
            Decision::Retry => {
                self.dispatched_before += 1 + self.interrupted;
                self.interrupted = 0;
                CallState::Pending
            }
        };
    }

    /// Gives the call a result, if it has none.
    pub(super) fn close(&mut self, why: &str) {
        self.state = match std::mem::replace(&mut self.state, CallState::Pending) {
            CallState::Finished(outcome) | CallState::Asked(outcome) => CallState::Finished(outcome),
            CallState::Pending | CallState::Started(_) => CallState::Finished(ToolOutcome::skipped(why)),
        };
    }
}
