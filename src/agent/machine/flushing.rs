//! What a model writes down before messages are no longer shown to it: how far that is, and what comes next. Pure.
//!
//! It is a small loop of its own within the run: the model is called, uses its memory, and is called again, a few times at most.
//! What the model said is recorded before its calls are made, and each of these changes the memory once however often it is made.
//! So a run that is resumed goes on where it was, and nothing is written twice.

use super::Run;
use super::flushed::{Flush, Next};
use crate::types::context::{FlushAnswered, FlushAsked, FlushCalled, FlushEnded};
use crate::types::memory::{MEMORY_WRITE, MemoryScope};
use crate::types::report::FlushReport;
use crate::types::{Micros, Usage};

impl Run {
    /// What a model is writing down.
    #[must_use]
    pub fn flush(&self) -> Option<&Flush> {
        self.fitting.0.as_ref()?.flush.as_deref()
    }

    /// Whether that is to go on now. Where replicas died of the run again and again, only a call that was lost is charged.
    pub(super) fn goes_on_with_flush(&self, most_resumes: u32) -> bool {
        self.flush().is_some_and(|flush| flush.open.is_some() || self.resumes <= most_resumes)
    }

    /// What comes next of what a model is writing down.
    #[must_use]
    pub fn next_of_flush(&self) -> Option<Next> {
        Some(self.flush()?.next(&self.spec.rules.context.flush, self.stop.is_some()))
    }

    /// From which place on nobody wrote down yet what matters in the messages before `covers`, which are to be replaced, as far as the
    /// run knows; `None` if nothing is to be written down. That is for the memory of a session's user: where a run only shortens the conversation, and is
    /// not told whose memory that is, nothing is.
    #[must_use]
    pub fn due_flush(&self, covers: u64) -> Option<u64> {
        let (spec, rules) = (&self.spec, &self.spec.rules);
        let writes = spec.own_tools.iter().any(|tool| tool.name == MEMORY_WRITE);
        if !rules.context.flush.enabled || spec.session.is_none() || !writes {
            return None;
        }
        let has_user = spec.options.sampling.user.as_deref().is_some_and(|user| !user.is_empty());
        if spec.compacts && !has_user && rules.memory.scope != MemoryScope::Agent {
            return None;
        }
        let flushed = self.fitting.0.as_ref().map_or(0, |state| state.flushed);
        (flushed < covers).then_some(flushed)
    }

    pub(super) fn ask_flush(&mut self, asked: &FlushAsked) {
        self.fitting.state().flush.get_or_insert_with(|| Box::new(Flush::of(asked))).ask(asked);
    }

    pub(super) fn answer_flush(&mut self, answered: &FlushAnswered) {
        self.charge_beside(&answered.call, answered.latency_ms);
        if let Some(flush) = &mut self.fitting.state().flush {
            flush.answer(answered);
        }
    }

    pub(super) fn call_flush(&mut self, called: &FlushCalled) {
        if let Some(flush) = &mut self.fitting.state().flush {
            flush.call(called);
        }
    }

    pub(super) fn end_flush(&mut self, ended: &FlushEnded) {
        if let Some(call) = &ended.call {
            self.charge_beside(call, ended.latency_ms);
        }
        let state = self.fitting.state();
        state.flushed = state.flushed.max(ended.upto);
        let flush = state.flush.take();
        if ended.messages == 0 {
            return;
        }
        let mut report = FlushReport {
            step: ended.step,
            messages: ended.messages,
            iterations: ended.round,
            writes: ended.writes,
            error: ended.error.clone(),
            latency_ms: ended.latency_ms + flush.as_ref().map_or(0, |flush| flush.spent_ms),
            usage: flush.as_ref().map_or(Usage::default(), |flush| flush.usage),
            cost: flush.as_ref().map_or(Micros::default(), |flush| flush.cost),
        };
        if let Some(call) = &ended.call {
            report.usage += call.usage;
            report.cost += call.model.price.cost(&call.usage);
        }
        self.report.compactions.get_or_insert_default().1.push(report);
    }
}
