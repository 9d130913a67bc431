//! What a run has done so that its conversation fits. Data.

use super::budget;
use super::flushed::Flush;
use crate::types::context::{CompactionStarted, View};
use crate::types::conversation::{Part, PartKind};
use crate::types::event::{Reservation, Turn};
use crate::types::{RunSpec, Usage};

/// Input tokens of the next call: what the upstream last counted, and a token for each four bytes since.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContextEstimate {
    pub(super) counted: u64,
    pub(super) bytes_since: usize,
}

impl ContextEstimate {
    pub(super) fn tokens(self) -> u64 {
        self.counted.saturating_add(budget::estimate(self.bytes_since))
    }
}

/// What was done so that a conversation fits. Boxed, as nothing has to be done for most.
#[derive(Debug, Clone, Default)]
pub(super) struct Fitting(pub(super) Option<Box<State>>);

/// What was done, and what is under way.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) view: View,
    /// The window that a model turned out to have, with the model's full name.
    pub(super) learned: Option<(String, u64)>,
    /// How many rounds there were since the model answered.
    pub(super) rounds: u32,
    /// How many methods did not do.
    pub(super) tried: usize,
    /// Up to how many tokens the conversation is left alone.
    pub(super) quiet: u64,
    /// How often the upstream refused the conversation since the model answered.
    pub(super) overflows: u32,
    /// The summary that a model is asked for.
    pub(super) open: Option<CompactionStarted>,
    /// How often messages were replaced in this run.
    pub(super) compactions: u32,
    /// How many input tokens calls took since messages were replaced, where the rules go by that.
    pub(super) input: u64,
    /// Up to how many messages the conversation is left alone.
    pub(super) quiet_messages: u64,
    /// Of how many messages from the beginning it wrote down what matters, or knows that others did.
    pub(super) flushed: u64,
    /// What is being written down.
    pub(super) flush: Option<Box<Flush>>,
}

impl Fitting {
    /// Of a run that begins with this specification.
    pub(super) fn of(spec: &RunSpec) -> Self {
        let (view, input) = (spec.view.as_deref().cloned(), spec.input_since);
        let is_any = view.is_some() || input > 0;
        Self(is_any.then(|| Box::new(State { view: view.unwrap_or_default(), input, ..State::default() })))
    }

    pub(super) fn state(&mut self) -> &mut State {
        self.0.get_or_insert_default()
    }

    /// The run goes on as another agent, which is shown nothing before this place if there is one.
    pub(super) fn begin_anew(&mut self, shown_from: Option<u64>) {
        if let Some(from) = shown_from {
            let view = &mut self.state().view;
            view.from = if from > view.covers { from } else { 0 };
        }
        if let Some(state) = &mut self.0 {
            (state.rounds, state.tried, state.quiet, state.overflows) = (0, 0, 0, 0);
        }
    }

    /// The model has answered.
    pub(super) fn note_answer(&mut self) {
        if let Some(state) = &mut self.0 {
            (state.rounds, state.tried, state.overflows) = (0, 0, 0);
        }
    }

    /// What is set aside for a summary that a model is asked for, or for what it is to write down.
    pub(super) fn reserved(&self) -> Reservation {
        let Some(state) = &self.0 else { return Reservation::default() };
        let flush = state.flush.as_ref().and_then(|flush| flush.open.as_ref()).map(|asked| asked.reserved);
        let reserved = state.open.as_ref().map(|open| open.reserved).or(flush);
        reserved.unwrap_or_default()
    }

    pub(super) fn open(&self) -> Option<&CompactionStarted> {
        self.0.as_ref()?.open.as_ref()
    }
}

/// How many tokens the next request has of a turn and what came before it: reasoning goes back to no model unless its
/// vendor sealed it.
pub(super) fn sent_back(turn: &Turn) -> u64 {
    let is_sealed = |part: &Part| matches!(part.kind, PartKind::Thinking(_)) && !part.is_unsealed_thinking();
    let Usage { completion_tokens, reasoning_tokens, .. } = turn.usage;
    let unsent = if turn.parts.iter().any(is_sealed) { 0 } else { reasoning_tokens.min(completion_tokens) };
    turn.usage.total().saturating_sub(unsent)
}
