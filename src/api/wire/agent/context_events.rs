//! The events by which a stream tells that a conversation was shortened.

use serde::Serialize;
use utoipa::ToSchema;

use crate::types::context::{Compacted, CompactionFailed, CompactionStarted, FlushAsked, FlushEnded, Method, Pruned};

/// Old results of tools are shortened in what the model is sent, so that the conversation fits.
#[derive(Debug, Serialize, ToSchema)]
pub struct PrunedContext {
    /// The event's number.
    pub seq: u64,
    /// The step that is to begin.
    pub step: u32,
    /// How many results are shorter than before.
    pub results: u64,
    /// How many tokens the next call had before, about.
    pub before_tokens: u64,
    /// How many it has now.
    pub after_tokens: u64,
}

/// A model is asked for a summary of earlier messages.
#[derive(Debug, Serialize, ToSchema)]
pub struct StartedCompaction<'a> {
    /// The event's number.
    pub seq: u64,
    /// The step that is to begin.
    pub step: u32,
    /// `llm`, `local` or `truncate`.
    pub method: &'static str,
    /// How many messages the summary is of.
    pub messages: u64,
    /// The upstream that is asked.
    pub upstream: &'a str,
    /// Its model.
    pub model: &'a str,
}

/// Earlier messages are replaced in what the model is sent. The run and its session keep them.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompactedContext {
    /// The event's number.
    pub seq: u64,
    /// The step that is to begin.
    pub step: u32,
    /// `llm`, `local` or `truncate`.
    pub method: &'static str,
    /// How often the conversation was compacted, this time included.
    pub version: u32,
    /// How many messages from its beginning are replaced.
    pub covers: u64,
    /// How many tokens the next call had before, about.
    pub before_tokens: u64,
    /// How many it has now.
    pub after_tokens: u64,
    /// How long it took.
    pub latency_ms: u64,
}

/// A method did not shorten the conversation; the next one is tried, if there is one.
#[derive(Debug, Serialize, ToSchema)]
pub struct FailedCompaction<'a> {
    /// The event's number.
    pub seq: u64,
    /// The step that is to begin.
    pub step: u32,
    /// `llm`, `local` or `truncate`.
    pub method: &'static str,
    /// Why, in a sentence.
    pub reason: &'a str,
}

/// A model is to write into its memory what matters in messages that are about to be replaced.
#[derive(Debug, Serialize, ToSchema)]
pub struct StartedFlush<'a> {
    /// The event's number.
    pub seq: u64,
    /// The step that is to begin.
    pub step: u32,
    /// How many messages it is about.
    pub messages: u64,
    /// The upstream that is asked.
    pub upstream: &'a str,
    /// Its model.
    pub model: &'a str,
}

/// The model has written down what matters.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompletedFlush {
    /// The event's number.
    pub seq: u64,
    /// The step that is to begin.
    pub step: u32,
    /// How many messages it was about.
    pub messages: u64,
    /// How often the model was called.
    pub iterations: u32,
    /// How often it wrote a note.
    pub writes: u32,
}

/// The model has not written down what matters, or not to the end. The conversation is shortened all the same.
#[derive(Debug, Serialize, ToSchema)]
pub struct FailedFlush<'a> {
    /// The event's number.
    pub seq: u64,
    /// The step that is to begin.
    pub step: u32,
    /// How many messages it was about.
    pub messages: u64,
    /// How often the model was called.
    pub iterations: u32,
    /// How often it wrote a note.
    pub writes: u32,
    /// Why, in a sentence.
    pub reason: &'a str,
}

impl<'a> StartedFlush<'a> {
    /// The first call of a flush; the others are no events.
    pub(super) fn new(seq: u64, asked: &'a FlushAsked) -> Option<Self> {
        let FlushAsked { step, round, messages, model, .. } = asked;
        let (step, messages) = (*step, *messages);
        (*round == 1).then(|| Self { seq, step, messages, upstream: &model.upstream, model: &model.model })
    }
}

impl CompletedFlush {
    pub(super) fn new(seq: u64, ended: &FlushEnded) -> Self {
        let &FlushEnded { step, round: iterations, messages, writes, .. } = ended;
        Self { seq, step, messages, iterations, writes }
    }
}

impl<'a> FailedFlush<'a> {
    pub(super) fn new(seq: u64, ended: &FlushEnded, reason: &'a str) -> Self {
        let &FlushEnded { step, round: iterations, messages, writes, .. } = ended;
        Self { seq, step, messages, iterations, writes, reason }
    }
}

impl PrunedContext {
    pub(super) fn new(seq: u64, pruned: &Pruned) -> Self {
        let Pruned { step, results, before_tokens, after_tokens, .. } = *pruned;
        Self { seq, step, results, before_tokens, after_tokens }
    }
}

impl<'a> StartedCompaction<'a> {
    pub(super) fn new(seq: u64, started: &'a CompactionStarted) -> Self {
        let CompactionStarted { step, messages, model, .. } = started;
        let (step, messages, method) = (*step, *messages, Method::Llm.as_str());
        Self { seq, step, method, messages, upstream: &model.upstream, model: &model.model }
    }
}

impl<'a> FailedCompaction<'a> {
    pub(super) fn new(seq: u64, failed: &'a CompactionFailed) -> Self {
        Self { seq, step: failed.step, method: failed.method.as_str(), reason: &failed.reason }
    }
}

impl CompactedContext {
    pub(super) fn new(seq: u64, compacted: &Compacted) -> Self {
        let Compacted { step, covers, summary, before_tokens, after_tokens, latency_ms, .. } = compacted;
        Self {
            seq,
            step: *step,
            method: summary.method.as_str(),
            version: summary.version,
            covers: *covers,
            before_tokens: *before_tokens,
            after_tokens: *after_tokens,
            latency_ms: *latency_ms,
        }
    }
}
