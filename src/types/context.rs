//! How a conversation is made to fit a model's context window, and what of it a model is shown.

mod rules;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::rules::{Compaction, ContextRules, Method, PruningRules, SummaryRules, TriggerRules};
use crate::types::json::is_default;
use crate::types::price::StepModel;
use crate::types::reservation::Reservation;
use crate::types::usage::{Usage, Used};

/// What of a conversation a model is shown. The places of messages are counted from 0 over all that was said, which is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// How many messages from the beginning are replaced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub covers: u64,
    /// The places of those among them that are shown all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<u64>,
    /// What replaces the others; `None` while none are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Arc<Summary>>,
    /// Messages between those and this place are not shown, as the turns of the user are limited.
    #[serde(default, skip_serializing_if = "is_default")]
    pub from: u64,
    /// Long results of tools before this place keep their beginning and end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub soft: u64,
    /// Results of tools before this place are replaced by a note.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hard: u64,
}

impl View {
    /// Whether all is shown as it is.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        *self == Self::default()
    }

    /// From which place on messages are shown.
    #[must_use]
    pub fn begins(&self) -> u64 {
        self.covers.max(self.from)
    }

    /// How many messages are replaced.
    #[must_use]
    pub fn removed(&self) -> u64 {
        self.covers.saturating_sub(self.kept.len() as u64)
    }
}

/// What replaces messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// How often the conversation was shortened, this time included.
    pub version: u32,
    /// How it was made.
    pub method: Method,
    /// What it says; empty where a note takes its place.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// What an upstream last counted for a session's conversation, so that the next run estimates only what is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// How many messages there were.
    pub messages: u64,
    /// How many tokens they had, with all that is sent beside them.
    pub tokens: u64,
    /// Stands for all that is sent beside them, and for the model.
    pub beside: u64,
}

/// What a session keeps about how it is shown to models.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionContext {
    /// What is shown.
    #[serde(default, skip_serializing_if = "View::is_whole")]
    pub view: View,
    /// What it was last counted as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchor>,
    /// The window that a model turned out to have, with the model's full name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<(String, u64)>,
    /// How many input tokens its runs took since it was shortened, where their rules go by that.
    #[serde(default, skip_serializing_if = "is_default")]
    pub input_tokens: u64,
}

impl SessionContext {
    /// Whether there is nothing to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What of it holds for a session that has only the first `count` of these messages.
    #[must_use]
    pub fn of_first(&self, count: u64) -> Option<Self> {
        let holds = self.view.covers <= count && self.view.soft.max(self.view.hard) <= count;
        let view = if holds { self.view.clone() } else { View::default() };
        let anchor = self.anchor.filter(|anchor| anchor.messages == count && holds);
        let input_tokens = if holds { self.input_tokens } else { 0 };
        let context = Self { view, anchor, learned: self.learned.clone(), input_tokens };
        (!context.is_empty()).then_some(context)
    }
}

/// Something that happened to what a model is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextEvent {
    /// Old results of tools are shortened.
    Pruned(Pruned),
    /// A model is asked for a summary.
    CompactionStarted(CompactionStarted),
    /// Messages are replaced.
    Compacted(Compacted),
    /// A method did not shorten the conversation.
    CompactionFailed(CompactionFailed),
    /// The upstream refused a conversation that is longer than it takes. Internal.
    WindowLearned(WindowLearned),
}

/// Old results of tools are shortened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pruned {
    /// The step that is to begin.
    pub step: u32,
    /// Long results before this place keep their beginning and end.
    pub soft: u64,
    /// Results before this place are replaced by a note.
    pub hard: u64,
    /// How many results are shorter than before.
    pub results: u64,
    /// How many tokens the next call had before, about.
    pub before_tokens: u64,
    /// How many it has now.
    pub after_tokens: u64,
}

/// A model is asked for a summary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompactionStarted {
    /// The step that is to begin.
    pub step: u32,
    /// How many messages the summary is of.
    pub messages: u64,
    /// Which model.
    pub model: Arc<StepModel>,
    /// What is set aside for its call.
    pub reserved: Reservation,
}

/// Messages are replaced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compacted {
    /// The step that is to begin.
    pub step: u32,
    /// How many messages from the conversation's beginning are replaced now.
    pub covers: u64,
    /// The places of those among them that are shown all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<u64>,
    /// What replaces the others.
    pub summary: Arc<Summary>,
    /// How many tokens the next call had before, about.
    pub before_tokens: u64,
    /// How many it has now.
    pub after_tokens: u64,
    /// How long it took.
    pub latency_ms: u64,
    /// What a model took for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Box<SummaryCall>>,
}

/// A method did not shorten the conversation; the next one is tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompactionFailed {
    /// The step that is to begin.
    pub step: u32,
    /// Which one.
    pub method: Method,
    /// Why, in a sentence that may be shown.
    pub reason: String,
    /// Whether a crash or a shutdown interrupted it, so that it may be tried again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interrupted: bool,
    /// How long it took.
    pub latency_ms: u64,
    /// What a model took for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Box<SummaryCall>>,
}

/// What a model took for a summary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SummaryCall {
    /// The model.
    pub model: Arc<StepModel>,
    /// How many messages the summary is of.
    pub messages: u64,
    /// What the run is charged.
    pub usage: Usage,
    /// What the call may have taken beyond that.
    #[serde(default, skip_serializing_if = "Used::is_nothing")]
    pub unconfirmed: Used,
}

/// An upstream refused a conversation that is longer than it takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowLearned {
    /// The step that was void.
    pub step: u32,
    /// The model's full name.
    pub model: String,
    /// How many tokens it takes.
    pub window: u64,
    /// How many tokens the refused call had.
    pub tokens: u64,
}

impl ContextEvent {
    /// Whether clients see it.
    #[must_use]
    pub fn is_public(&self) -> bool {
        match self {
            Self::Pruned(_) | Self::CompactionStarted(_) | Self::Compacted(_) | Self::CompactionFailed(_) => true,
            Self::WindowLearned(_) => false,
        }
    }

    /// What a model took for a summary that was made or not, under the number of which step.
    #[must_use]
    pub fn call(&self) -> Option<(u32, &SummaryCall)> {
        match self {
            Self::Compacted(Compacted { step, call, .. })
            | Self::CompactionFailed(CompactionFailed { step, call, .. }) => Some((*step, call.as_deref()?)),
            Self::Pruned(_) | Self::CompactionStarted(_) | Self::WindowLearned(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_beginning_keeps_what_holds_for_it() {
        let view = View { covers: 8, soft: 10, ..View::default() };
        let anchor = Some(Anchor { messages: 12, tokens: 7, beside: 1 });
        let context = SessionContext { view, anchor, ..SessionContext::default() };
        assert_eq!(context.of_first(12), Some(context.clone()));
        assert_eq!(context.of_first(10).map(|kept| (kept.view, kept.anchor)), Some((context.view.clone(), None)));
        assert_eq!(context.of_first(9), None);
    }
}
