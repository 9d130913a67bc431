//! Whether the next model call fits, and what was done so that it does. Pure.
//!
//! A run looks before every call. Where its conversation has more tokens than the rules let it have, the run asks for it to be
//! shortened, round by round: each round shortens it, or another method follows, and there are few rounds before the model
//! answers again. A conversation that no round could make fit ends the run.

use xxhash_rust::xxh3::Xxh3;

use super::fitted::ContextEstimate;
use super::{Run, Step};
use crate::types::context::{
    Anchor, Compacted, CompactionFailed, CompactionStarted, ContextEvent, Method, Pruned, SessionContext, SummaryCall,
    View, WindowLearned,
};
use crate::types::price::StepModel;
use crate::types::report::CompactionReport;
use crate::types::{RunSpec, StopReason};

/// Most rounds before the model answers.
const MOST_ROUNDS: u32 = 4;
/// How often an upstream may refuse a conversation before the model answers.
const MOST_OVERFLOWS: u32 = 1;
/// A conversation that was shortened is left alone until it has grown by one part in so many.
const LEFT_ALONE: u64 = 8;
/// What is left of a conversation's room, as one part in so many, when it is shortened after a run.
const NEARLY: u64 = 10;

impl Run {
    /// What of its conversation the model is shown; `None` for all of it.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.fitting.0.as_ref().map(|state| &state.view).filter(|view| !view.is_whole())
    }

    /// The summary that a model is asked for.
    #[must_use]
    pub fn open_compaction(&self) -> Option<&CompactionStarted> {
        self.fitting.open()
    }

    /// Estimated input tokens of the next model call, without what is asked beside the conversation.
    #[must_use]
    pub fn context_tokens(&self) -> u64 {
        self.context.tokens()
    }

    /// More input tokens than this are too many for the next model call.
    #[must_use]
    pub fn most_context(&self) -> u64 {
        let terms = self.terms();
        self.spec.rules.context.most(terms.context_window, terms.max_output_tokens)
    }

    /// Whether the next call is to be made to fit. A model that takes more is asked in place of the present one, if there is one.
    pub(super) fn needs_fitting(&self) -> bool {
        let tokens = self.context.tokens();
        let is_long = tokens > self.most_context();
        let is_triggered = !self.spec.rules.context.triggers.after_run && self.is_triggered();
        if !(is_long || is_triggered) || self.spec.rules.context.compaction.methods().is_empty() {
            return false;
        }
        let (rounds, quiet) = self.fitting.0.as_ref().map_or((0, 0), |state| (state.rounds, state.quiet));
        let is_due = is_long && (tokens > quiet || tokens > self.terms().context_window) && !self.has_larger_model();
        (is_due || is_triggered) && rounds < MOST_ROUNDS
    }

    /// Whether the conversation is shortened although it is not too long for its model: as its messages or what they took are
    /// too many, or as that is all that the run is for.
    #[must_use]
    pub fn shortens_early(&self) -> bool {
        self.spec.compacts || self.context.tokens() <= self.most_context()
    }

    /// What a run does that only shortens its conversation: it tries one method after the other until one did.
    pub(super) fn next_of_compaction(&self) -> Step {
        let (done, rounds) = self.fitting.0.as_ref().map_or((0, 0), |state| (state.compactions, state.rounds));
        match self.next_method().filter(|_| done == 0 && rounds < MOST_ROUNDS) {
            Some(method) => Step::Fit(Some(method)),
            None => Step::Finish(StopReason::Done),
        }
    }

    /// Whether its conversation is to be shortened in the background, now that it has ended.
    #[must_use]
    pub fn is_to_be_compacted(&self) -> bool {
        let (spec, rules) = (&self.spec, &self.spec.rules.context);
        if !rules.triggers.after_run || spec.session.is_none() || spec.compacts || rules.compaction.methods().is_empty()
        {
            return false;
        }
        let (most, tokens) = (self.most_context(), self.context.tokens());
        self.is_triggered() || tokens > most - most / NEARLY
    }

    /// Whether the messages that the model is shown are too many, or what they took since they were replaced.
    fn is_triggered(&self) -> bool {
        let triggers = &self.spec.rules.context.triggers;
        if triggers.messages.is_none() && triggers.input_tokens.is_none() {
            return false;
        }
        let (quiet, input) = self.fitting.0.as_ref().map_or((0, 0), |state| (state.quiet_messages, state.input));
        let shown = self.shown_messages();
        // Fewer would be too many again at once.
        let least = 2 * u64::from(self.spec.rules.context.keep_last);
        triggers.messages.is_some_and(|most| shown > u64::from(most).max(least) && shown > quiet)
            || triggers.input_tokens.is_some_and(|most| input >= most)
    }

    /// How many messages the model is shown, about.
    fn shown_messages(&self) -> u64 {
        let removed = self.fitting.0.as_ref().map_or(0, |state| state.view.removed());
        (self.spec.history_len + self.messages.len() as u64).saturating_sub(removed)
    }

    /// Counts the input of a call that was answered.
    pub(super) fn note_input(&mut self, tokens: u64) {
        self.fitting.note_answer();
        if self.spec.rules.context.triggers.input_tokens.is_some() {
            self.fitting.state().input += tokens;
        }
    }

    /// Leaves the conversation alone until it has grown, as it was shortened or could not be.
    fn rest(&mut self) {
        let shown = self.shown_messages();
        let state = self.fitting.state();
        state.input = 0;
        state.quiet_messages = shown + (shown / LEFT_ALONE).max(1);
    }

    /// How it is to be shortened next; `None` once all methods were tried.
    pub(super) fn next_method(&self) -> Option<Method> {
        let tried = self.fitting.0.as_ref().map_or(0, |state| state.tried);
        self.spec.rules.context.compaction.methods().get(tried).copied()
    }

    /// Whether a conversation that the upstream refused as too long can be shortened, so that the call is made again.
    #[must_use]
    pub fn may_shorten(&self) -> bool {
        let overflows = self.fitting.0.as_ref().map_or(0, |state| state.overflows);
        overflows < MOST_OVERFLOWS && !self.spec.rules.context.compaction.methods().is_empty()
    }

    /// The window that this model turned out to have.
    pub(super) fn learned_window(&self, model: &StepModel) -> Option<u64> {
        let (name, window) = self.fitting.0.as_ref()?.learned.as_ref()?;
        is_named(name, &model.upstream, &model.model).then_some(*window)
    }

    /// Takes in what happened to what the model is shown.
    pub(super) fn take_context(&mut self, event: &ContextEvent) {
        match event {
            ContextEvent::Pruned(pruned) => self.prune(pruned),
            ContextEvent::CompactionStarted(started) => self.fitting.state().open = Some(started.clone()),
            ContextEvent::Compacted(compacted) => self.compact(compacted),
            ContextEvent::CompactionFailed(failed) => self.fail_compaction(failed),
            ContextEvent::WindowLearned(learned) => self.learn_window(learned),
            ContextEvent::FlushAsked(asked) => self.ask_flush(asked),
            ContextEvent::FlushAnswered(answered) => self.answer_flush(answered),
            ContextEvent::FlushCalled(called) => self.call_flush(called),
            ContextEvent::FlushEnded(ended) => self.end_flush(ended),
        }
    }

    fn prune(&mut self, pruned: &Pruned) {
        let state = self.fitting.state();
        state.view.soft = state.view.soft.max(pruned.soft);
        state.view.hard = state.view.hard.max(pruned.hard);
        self.end_round(pruned.after_tokens);
    }

    fn compact(&mut self, compacted: &Compacted) {
        self.settle_summary(compacted.call.as_deref(), compacted.latency_ms);
        let removed = self.fitting.0.as_ref().map_or(0, |state| state.view.removed());
        let state = self.fitting.state();
        state.compactions += 1;
        let view = &mut state.view;
        (view.covers, view.kept) = (compacted.covers, compacted.kept.clone());
        view.summary = Some(compacted.summary.clone());
        let removed_messages = view.removed().saturating_sub(removed);
        self.report_compaction(compacted, removed_messages);
        self.rest();
        self.end_round(compacted.after_tokens);
        if compacted.after_tokens > self.most_context() {
            self.fitting.state().tried += 1;
        }
    }

    fn report_compaction(&mut self, compacted: &Compacted, removed_messages: u64) {
        let call = compacted.call.as_deref();
        self.report.compactions.get_or_insert_default().0.push(CompactionReport {
            step: compacted.step,
            method: compacted.summary.method,
            version: compacted.summary.version,
            removed_messages,
            before_tokens: compacted.before_tokens,
            after_tokens: compacted.after_tokens,
            latency_ms: compacted.latency_ms,
            usage: call.map(|call| call.usage).unwrap_or_default(),
            cost: call.map(|call| call.model.price.cost(&call.usage)).unwrap_or_default(),
        });
    }

    fn fail_compaction(&mut self, failed: &CompactionFailed) {
        self.settle_summary(failed.call.as_deref(), failed.latency_ms);
        if failed.interrupted {
            return;
        }
        let (left, tokens) = (self.next_method().is_some(), self.context.tokens());
        let state = self.fitting.state();
        state.tried += 1;
        state.rounds = if left { state.rounds + 1 } else { MOST_ROUNDS };
        state.quiet = if left { 0 } else { tokens + tokens / LEFT_ALONE };
        if !left {
            self.rest();
        }
    }

    fn learn_window(&mut self, learned: &WindowLearned) {
        let state = self.fitting.state();
        state.learned = Some((learned.model.clone(), learned.window));
        state.overflows += 1;
        (state.rounds, state.tried, state.quiet) = (0, 0, 0);
        self.context = ContextEstimate { counted: learned.tokens, bytes_since: 0 };
    }

    fn end_round(&mut self, tokens: u64) {
        self.context = ContextEstimate { counted: tokens, bytes_since: 0 };
        let state = self.fitting.state();
        state.rounds += 1;
        state.quiet = tokens + tokens / LEFT_ALONE;
        self.resumes = 0;
    }

    /// Charges what a model took for a summary, which is no longer under way.
    fn settle_summary(&mut self, call: Option<&SummaryCall>, latency_ms: u64) {
        if let Some(state) = &mut self.fitting.0 {
            state.open = None;
        }
        if let Some(call) = call {
            self.charge_beside(call, latency_ms);
        }
    }

    /// Charges a call of a model that was asked something about the conversation.
    pub(super) fn charge_beside(&mut self, call: &SummaryCall, latency_ms: u64) {
        self.unconfirmed += call.unconfirmed;
        self.report.llm_time_ms += latency_ms;
        let is_own = call.model.upstream == self.spec.upstream && call.model.model == self.spec.upstream_model;
        self.charge(&call.model, usize::from(!is_own), call.usage);
    }

    /// What its session keeps of it, which has `count` messages once the run has ended; `None` if that is nothing.
    #[must_use]
    pub fn session_context(&self, count: u64) -> Option<SessionContext> {
        let tokens = self.context.tokens();
        let state = self.fitting.0.as_deref();
        // What is said in a short conversation is estimated closely enough.
        let is_long = tokens >= self.most_context() / 2 && self.from_tools.found.is_empty();
        let anchor = is_long.then(|| Anchor { messages: count, tokens, beside: beside(&self.spec, &self.model) });
        let view = state.map(|state| View { from: 0, ..state.view.clone() }).unwrap_or_default();
        let learned = state.and_then(|state| state.learned.clone());
        let input_tokens = state.map_or(0, |state| state.input);
        let flushed = state.map_or(0, |state| state.flushed);
        let context = SessionContext { view, anchor, learned, input_tokens, flushed };
        (!context.is_empty()).then_some(context)
    }
}

/// Whether this is the full name of a model.
#[must_use]
pub fn is_named(full_name: &str, upstream: &str, model: &str) -> bool {
    full_name.split_once('/') == Some((upstream, model))
}

/// Stands for what a run sends this model beside its conversation.
#[must_use]
pub fn beside(spec: &RunSpec, model: &StepModel) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(model.full_name().as_bytes());
    hash.update(spec.offer.as_str().as_bytes());
    for tool in spec.client_tools.iter().chain(&spec.own_tools) {
        hash.update(tool.name.as_bytes());
    }
    for message in &spec.system {
        hash.update(&message.weight().to_le_bytes());
    }
    hash.digest()
}
