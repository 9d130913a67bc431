//! The rules by which a conversation is made to fit. Data, and what follows from it alone.

use serde::{Deserialize, Serialize};

use super::flush::FlushRules;

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
    /// What else makes a conversation too long.
    #[serde(skip_serializing_if = "TriggerRules::are_none")]
    pub triggers: TriggerRules,
    /// What a model writes down before.
    #[serde(skip_serializing_if = "FlushRules::are_off")]
    pub flush: FlushRules,
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
            triggers: TriggerRules::default(),
            flush: FlushRules::default(),
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

/// What makes a conversation too long beside its window, and when it is shortened for that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TriggerRules {
    /// More messages than this that a model is shown; `None` for any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u32>,
    /// So many input tokens of all calls since it was last shortened; `None` for any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Whether it is shortened in the background after a run, and not before the next call.
    pub after_run: bool,
}

impl TriggerRules {
    /// Whether the window alone makes a conversation too long.
    #[must_use]
    pub fn are_none(&self) -> bool {
        *self == Self::default()
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
}
