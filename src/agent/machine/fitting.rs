//! Whether the next model call fits, and what was done so that it does. Pure.
//!
//! A run looks before every call. Where its conversation has more tokens than the rules let it have, the run asks for it to be
//! shortened, round by round: each round shortens it, or another method follows, and there are few rounds before the model
//! answers again. A conversation that no round could make fit ends the run.

use xxhash_rust::xxh3::Xxh3;

use super::Run;
use super::fitted::ContextEstimate;
use crate::types::RunSpec;
use crate::types::context::{
    Anchor, Compacted, CompactionFailed, CompactionStarted, ContextEvent, Method, Pruned, SessionContext, SummaryCall,
    View, WindowLearned,
};
use crate::types::price::StepModel;

/// Most rounds before the model answers.
const MOST_ROUNDS: u32 = 4;
/// How often an upstream may refuse a conversation before the model answers.
const MOST_OVERFLOWS: u32 = 1;
/// A conversation that was shortened is left alone until it has grown by one part in so many.
const LEFT_ALONE: u64 = 8;

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
        if tokens <= self.most_context() || self.spec.rules.context.compaction.methods().is_empty() {
            return false;
        }
        let (rounds, quiet) = self.fitting.0.as_ref().map_or((0, 0), |state| (state.rounds, state.quiet));
        let is_due = tokens > quiet || tokens > self.terms().context_window;
        is_due && rounds < MOST_ROUNDS && !self.has_larger_model()
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
        let view = &mut self.fitting.state().view;
        (view.covers, view.kept) = (compacted.covers, compacted.kept.clone());
        view.summary = Some(compacted.summary.clone());
        self.end_round(compacted.after_tokens);
        if compacted.after_tokens > self.most_context() {
            self.fitting.state().tried += 1;
        }
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
        let Some(call) = call else { return };
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
        let context = SessionContext { view, anchor, learned };
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
