//! How a conversation is made to fit a model's context window, and what of it a model is shown.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::json::is_default;
use crate::types::price::StepModel;
use crate::types::reservation::Reservation;
use crate::types::usage::{Usage, Used};

/// How what a model is no longer shown is replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compaction {
    /// By the best method that works: a model's summary, else one made by rules, else a note.
    #[default]
    Auto,
    /// By a model's summary, else as `Local` does.
    Llm,
    /// By a summary that is made by rules, else a note.
    Local,
    /// By a note that says how much is left out.
    Truncate,
    /// Nothing is left out: a conversation that does not fit ends its run.
    Off,
}

impl Compaction {
    /// The methods that are tried, in their order.
    #[must_use]
    pub fn methods(self) -> &'static [Method] {
        match self {
            Self::Auto | Self::Llm => &[Method::Llm, Method::Local, Method::Truncate],
            Self::Local => &[Method::Local, Method::Truncate],
            Self::Truncate => &[Method::Truncate],
            Self::Off => &[],
        }
    }

    /// Whether an agent with this setting lets a request ask for `other`: it may spend nothing that the agent does not.
    #[must_use]
    pub fn allows(self, other: Self) -> bool {
        let asks_model = |compaction: Self| compaction.methods().contains(&Method::Llm);
        !asks_model(other) || asks_model(self)
    }
}

/// How messages were replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// A model wrote a summary.
    Llm,
    /// Rules made a summary.
    Local,
    /// A note says how many there were.
    Truncate,
}

impl Method {
    /// The method as it is written on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Llm => "llm",
            Self::Local => "local",
            Self::Truncate => "truncate",
        }
    }
}

/// When and how the conversations of an agent's runs are shortened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextRules {
    /// How what is left out is replaced.
    pub compaction: Compaction,
    /// Which part of the window, less the reserve, a conversation may fill before it is shortened.
    pub threshold: f64,
    /// Most tokens of the window that are kept free for the answer.
    pub reserve_tokens: u64,
    /// How many of the newest messages are kept as they are.
    pub keep_last: u32,
    /// Whether the first message of the user is kept as it is.
    pub keep_first_user: bool,
    /// How many turns of the user a model is shown at most; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_limit: Option<u32>,
    /// How old results of tools are shortened.
    pub pruning: PruningRules,
    /// How a model is asked for a summary.
    pub summary: SummaryRules,
}

impl Default for ContextRules {
    fn default() -> Self {
        Self {
            compaction: Compaction::Auto,
            threshold: 0.75,
            reserve_tokens: 8_192,
            keep_last: 6,
            keep_first_user: true,
            turn_limit: None,
            pruning: PruningRules::default(),
            summary: SummaryRules::default(),
        }
    }
}

impl ContextRules {
    /// Rules by which nothing is left out.
    #[must_use]
    pub fn off() -> Self {
        Self { compaction: Compaction::Off, ..Self::default() }
    }

    /// How many tokens of a window of so many are left for the conversation, where an answer has at most `output`.
    #[must_use]
    pub fn usable(&self, window: u64, output: u64) -> u64 {
        window - self.reserve_tokens.min(output).min(window / 4)
    }

    /// More tokens than this are too many in such a window.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a part of a number of tokens, which has fewer than 52 bits"
    )]
    pub fn most(&self, window: u64, output: u64) -> u64 {
        (self.usable(window, output) as f64 * self.threshold.clamp(0.0, 1.0)) as u64
    }
}

/// How old results of tools are shortened before messages are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PruningRules {
    /// Whether they are.
    pub enabled: bool,
    /// How many of the model's newest turns keep the results of their calls.
    pub keep_last_turns: u32,
    /// Longer results keep their beginning and their end, in characters.
    pub max_chars: u32,
    /// How much of the beginning.
    pub head_chars: u32,
    /// How much of the end.
    pub tail_chars: u32,
}

impl Default for PruningRules {
    fn default() -> Self {
        Self { enabled: true, keep_last_turns: 3, max_chars: 4_000, head_chars: 1_500, tail_chars: 1_500 }
    }
}

/// How a model is asked for a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SummaryRules {
    /// Which model, as `UPSTREAM/MODEL` or a bare name; `None` for the run's own.
    pub model: Option<String>,
    /// Most tokens of the summary.
    pub max_tokens: u32,
    /// How long it may take, in milliseconds.
    pub timeout_ms: u64,
}

impl Default for SummaryRules {
    fn default() -> Self {
        Self { model: None, max_tokens: 1_024, timeout_ms: 120_000 }
    }
}

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
        let context = Self { view, anchor, learned: self.learned.clone() };
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
    fn the_threshold_is_a_part_of_the_window_less_the_reserve() {
        let rules = ContextRules::default();
        assert_eq!(rules.most(200_000, 8_192), 143_856);
        assert_eq!(rules.most(1_000, 8_192), 562, "a small window keeps no more than a quarter free");
        assert_eq!(rules.most(200_000, 100), 149_925, "an answer that is bounded needs less");
    }

    #[test]
    fn a_request_may_ask_for_less_than_the_agent_spends_but_not_for_more() {
        assert!(Compaction::Auto.allows(Compaction::Llm) && Compaction::Auto.allows(Compaction::Off));
        assert!(Compaction::Truncate.allows(Compaction::Local) && Compaction::Off.allows(Compaction::Truncate));
        assert!(!Compaction::Local.allows(Compaction::Auto) && !Compaction::Off.allows(Compaction::Llm));
    }

    #[test]
    fn a_copy_of_the_beginning_keeps_what_holds_for_it() {
        let view = View { covers: 8, soft: 10, ..View::default() };
        let anchor = Some(Anchor { messages: 12, tokens: 7, beside: 1 });
        let context = SessionContext { view, anchor, learned: None };
        assert_eq!(context.of_first(12), Some(context.clone()));
        assert_eq!(context.of_first(10).map(|kept| (kept.view, kept.anchor)), Some((context.view.clone(), None)));
        assert_eq!(context.of_first(9), None);
    }
}
