//! Agents that are made of others: which of these work on what their runs are asked, and in which order.

use serde::{Deserialize, Serialize};

/// What a composite agent is made of: pinned with a run's specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Composite {
    /// One works after the other, and is told what the one before it answered. The last one's answer is the run's.
    Chain(Vec<String>),
    /// All work at the same time.
    Parallel {
        /// The agents.
        agents: Vec<String>,
        /// The agent that makes one answer of theirs; `None` if the run's answer has all of theirs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        consolidate: Option<String>,
    },
}

impl Composite {
    /// The agents that work for it, in the order in which they begin.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        let (first, last) = match self {
            Self::Chain(agents) => (agents, None),
            Self::Parallel { agents, consolidate } => (agents, consolidate.as_ref()),
        };
        first.iter().chain(last).map(String::as_str)
    }

    /// Whether what the agent at this place says is what the caller asked for, and no step on the way to it.
    #[must_use]
    pub fn answers(&self, place: usize) -> bool {
        match self {
            Self::Chain(agents) => place + 1 == agents.len(),
            Self::Parallel { agents, consolidate } => consolidate.is_none() || place == agents.len(),
        }
    }

    /// Whether its answer is that of one agent.
    #[must_use]
    pub fn has_one_answer(&self) -> bool {
        match self {
            Self::Chain(_) => true,
            Self::Parallel { consolidate, .. } => consolidate.is_some(),
        }
    }
}
