//! What a model writes down before messages are no longer shown to it: how far that is, and what comes next. Pure.
//!
//! It is a small loop of its own within the run: the model is called, uses its memory, and is called again, a few times at most.
//! What the model said is recorded before its calls are made, and each of these changes the memory once however often it is made.
//! So a run that is resumed goes on where it was, and nothing is written twice.

use super::Run;
use crate::types::context::{FlushAnswered, FlushAsked, FlushCalled, FlushEnded, FlushRules};
use crate::types::conversation::{Extra, Part, Parts, ToolResult};
use crate::types::memory::{MEMORY_WRITE, MemoryScope};
use crate::types::report::FlushReport;
use crate::types::{CallId, Message, Micros, Role, ToolCall, Usage};

/// What a model is writing down.
#[derive(Debug, Clone)]
pub struct Flush {
    /// The place of the first message that it is about.
    pub from: u64,
    /// The place behind the last.
    pub upto: u64,
    /// How many messages that are.
    pub messages: u64,
    /// How often the model was called.
    pub round: u32,
    /// The call of it that is under way.
    pub open: Option<FlushAsked>,
    /// How often it wrote a note.
    pub writes: u32,
    turns: Vec<Turn>,
    spent_ms: u64,
    usage: Usage,
    cost: Micros,
}

/// What the model said once, and what came of its calls.
#[derive(Debug, Clone)]
struct Turn {
    parts: Vec<Part>,
    lost: bool,
    results: Vec<(CallId, String, bool)>,
}

impl Turn {
    fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(Part::as_call)
    }

    fn result(&self, id: &CallId) -> Option<&(CallId, String, bool)> {
        self.results.iter().find(|(call, ..)| call == id)
    }
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// The model is called, which may take so long.
    Ask {
        /// For the how many-th time, counted from 1.
        round: u32,
        /// In milliseconds.
        within_ms: u64,
    },
    /// This call is made. It may have been made before.
    Call(ToolCall),
    /// It is over, for this reason if not all is written down that might be.
    End(Option<String>),
}

impl Flush {
    /// What was said in it so far, behind the messages that it is about.
    pub fn said(&self) -> impl Iterator<Item = Message> {
        self.turns.iter().filter(|turn| !turn.lost).flat_map(|turn| {
            let parts = Parts { list: turn.parts.clone(), extra: Extra::default() };
            let results = turn.calls().filter_map(|call| turn.result(&call.id)).map(|(call, text, is_error)| {
                let (call, parts, is_error) = (call.clone(), vec![Part::text(text.as_str())], *is_error);
                Message::result(ToolResult { call, parts, structured: None, is_error })
            });
            std::iter::once(Message::from_parts(Role::Assistant, parts)).chain(results).collect::<Vec<_>>()
        })
    }

    fn next(&self, rules: &FlushRules, is_stopping: bool) -> Next {
        if is_stopping {
            return Next::End(Some("the run is to stop".to_owned()));
        }
        let last = self.turns.last();
        let open = last.and_then(|last| last.calls().find(|call| last.result(&call.id).is_none()));
        if let Some(call) = open {
            return Next::Call(call.clone());
        }
        let is_done = last.is_some_and(|last| !last.lost && last.calls().next().is_none());
        if is_done || self.round >= rules.max_iterations {
            let unheard = self.turns.iter().all(|turn| turn.lost);
            return Next::End(unheard.then(|| "the model was interrupted again and again".to_owned()));
        }
        match rules.timeout_ms.saturating_sub(self.spent_ms) {
            0 => Next::End(Some(format!("it was not done within {} ms", rules.timeout_ms))),
            within_ms => Next::Ask { round: self.round + 1, within_ms },
        }
    }
}

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
        let state = self.fitting.state();
        let begun = state.flush.take();
        let mut flush = begun.unwrap_or_else(|| {
            Box::new(Flush {
                from: asked.from,
                upto: asked.upto,
                messages: asked.messages,
                round: 0,
                open: None,
                turns: Vec::new(),
                writes: 0,
                spent_ms: 0,
                usage: Usage::default(),
                cost: Micros::default(),
            })
        });
        (flush.round, flush.open) = (asked.round, Some(asked.clone()));
        state.flush = Some(flush);
    }

    pub(super) fn answer_flush(&mut self, answered: &FlushAnswered) {
        let FlushAnswered { parts, lost, latency_ms, call, .. } = answered;
        self.charge_beside(call, *latency_ms);
        let Some(flush) = &mut self.fitting.state().flush else { return };
        flush.open = None;
        flush.spent_ms += latency_ms;
        flush.usage += call.usage;
        flush.cost += call.model.price.cost(&call.usage);
        flush.turns.push(Turn { parts: parts.clone(), lost: *lost, results: Vec::new() });
    }

    pub(super) fn call_flush(&mut self, called: &FlushCalled) {
        let FlushCalled { call_id, text, is_error, wrote, latency_ms } = called;
        let Some(flush) = &mut self.fitting.state().flush else { return };
        flush.spent_ms += latency_ms;
        flush.writes += u32::from(*wrote);
        if let Some(turn) = flush.turns.last_mut() {
            turn.results.push((call_id.clone(), text.clone(), *is_error));
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
