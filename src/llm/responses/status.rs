//! Why a turn ended.

use crate::llm::turn_calls::Calls;
use crate::types::TurnEnd;

/// Why a response ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// The model was done.
    Completed,
    /// The upstream cut it short for this reason.
    Incomplete(String),
}

impl Ended {
    /// The reason in the upstream's word.
    pub(super) fn word(&self) -> &str {
        match self {
            Self::Completed => "completed",
            Self::Incomplete(reason) => reason,
        }
    }

    /// What a turn ended with, and what becomes of its calls, of which it may have some.
    pub(super) fn read(&self, has_calls: bool) -> (TurnEnd, Calls) {
        match self {
            Self::Completed if has_calls => (TurnEnd::ToolCalls, Calls::All),
            Self::Completed => (TurnEnd::Stop, Calls::All),
            Self::Incomplete(reason) => match reason.as_str() {
                "max_output_tokens" | "max_tokens" | "length" => (TurnEnd::Length, Calls::Whole),
                "content_filter" => (TurnEnd::ContentFilter, Calls::None),
                _ => (TurnEnd::Other(reason.clone()), Calls::Unknown),
            },
        }
    }
}
