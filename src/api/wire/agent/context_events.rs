//! The events by which a stream tells that a conversation was shortened.

use serde::Serialize;
use utoipa::ToSchema;

use crate::types::context::{Compacted, CompactionFailed, CompactionStarted, Method, Pruned};

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
