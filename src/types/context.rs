//! How a conversation is made to fit a model's context window, and what of it a model is shown.

mod flush;
mod rules;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::flush::{FLUSH_PROMPT, FlushAnswered, FlushAsked, FlushCalled, FlushEnded, FlushRules};
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
    /// How many messages from the beginning a model has written down what matters of, or has begun to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub flushed: u64,
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
        // What was written down is, whatever is shown.
        let flushed = self.flushed.min(count);
        let context = Self { view, anchor, learned: self.learned.clone(), input_tokens, flushed };
        (!context.is_empty()).then_some(context)
    }
}

impl SessionContext {
    /// What of it holds once `removed` messages behind the first `after` have made place for `inserted` others. A summary that stands
    /// for any of those, or for what stood around them, would tell of what is no longer there: it is dropped, and all is shown again
    /// until it is summarised anew.
    #[must_use]
    pub fn spliced(&self, after: u64, removed: u64, inserted: u64) -> Self {
        let is_covered = after < self.view.covers;
        let view = if is_covered {
            View::default()
        } else {
            View { soft: self.view.soft.min(after), hard: self.view.hard.min(after), ..self.view.clone() }
        };
        // What was written down is not written down again; what is new there is as good as written down, where what follows it is.
        let flushed = match self.flushed {
            flushed if flushed >= after + removed => flushed - removed + inserted,
            flushed => flushed.min(after),
        };
        let input_tokens = if is_covered { 0 } else { self.input_tokens };
        Self { view, anchor: None, learned: self.learned.clone(), input_tokens, flushed }
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
    /// A model is called so that it writes down what matters in messages that are to be replaced.
    FlushAsked(FlushAsked),
    /// What it said. Internal.
    FlushAnswered(FlushAnswered),
    /// What came of one of its calls. Internal.
    FlushCalled(FlushCalled),
    /// What matters is written down, or is not.
    FlushEnded(FlushEnded),
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

/// What a model took for a summary, or for what it writes down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SummaryCall {
    /// The model.
    pub model: Arc<StepModel>,
    /// How many messages it is about.
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
            Self::FlushAsked(asked) => asked.round == 1,
            Self::FlushEnded(ended) => ended.messages > 0,
            Self::WindowLearned(_) | Self::FlushAnswered(_) | Self::FlushCalled(_) => false,
        }
    }

    /// That a model is asked, under the number of which step, and what is set aside for its call.
    #[must_use]
    pub fn asked(&self) -> Option<(u32, &Arc<StepModel>, Reservation)> {
        match self {
            Self::CompactionStarted(asked) => Some((asked.step, &asked.model, asked.reserved)),
            Self::FlushAsked(asked) => Some((asked.step, &asked.model, asked.reserved)),
            Self::Pruned(_)
            | Self::Compacted(_)
            | Self::CompactionFailed(_)
            | Self::WindowLearned(_)
            | Self::FlushAnswered(_)
            | Self::FlushCalled(_)
            | Self::FlushEnded(_) => None,
        }
    }

    /// What a model took that was asked, under the number of which step.
    #[must_use]
    pub fn call(&self) -> Option<(u32, &SummaryCall)> {
        match self {
            Self::Compacted(Compacted { step, call, .. })
            | Self::CompactionFailed(CompactionFailed { step, call, .. })
            | Self::FlushEnded(FlushEnded { step, call, .. }) => Some((*step, call.as_deref()?)),
            Self::FlushAnswered(FlushAnswered { step, call, .. }) => Some((*step, call)),
            Self::Pruned(_)
            | Self::CompactionStarted(_)
            | Self::WindowLearned(_)
            | Self::FlushAsked(_)
            | Self::FlushCalled(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_splice_drops_a_summary_of_what_it_replaces_and_keeps_one_of_what_stands_before() {
        let view = View { covers: 8, kept: vec![0], soft: 10, hard: 9, ..View::default() };
        let anchor = Some(Anchor { messages: 12, tokens: 7, beside: 1 });
        let context = SessionContext { view: view.clone(), anchor, flushed: 8, ..SessionContext::default() };
        let behind = context.spliced(9, 2, 1);
        assert_eq!(behind, SessionContext { view: View { soft: 9, ..view }, anchor: None, ..context.clone() });
        let within = context.spliced(7, 1, 3);
        assert_eq!((within.view.is_whole(), within.flushed), (true, 10));
        assert_eq!(context.spliced(6, 4, 0).flushed, 6, "half of it was written down, and is gone");
    }

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
