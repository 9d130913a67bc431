//! Reads `OpenAI`'s finish reasons.

use crate::types::TurnEnd;

/// Why a turn ended that ended with this word.
pub fn read(word: String) -> TurnEnd {
    match word.as_str() {
        "stop" => TurnEnd::Stop,
        "length" => TurnEnd::Length,
        "tool_calls" => TurnEnd::ToolCalls,
        "content_filter" => TurnEnd::ContentFilter,
        _ => TurnEnd::Other(word),
    }
}

/// What becomes of the calls of a turn that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// The model ended its turn itself: they are its calls.
    All,
    /// The upstream cut the turn short: the last one may be half a call.
    Whole,
    /// The upstream took them back.
    None,
    /// It is unknown whether the model or the upstream meant them to be made.
    Unknown,
}

impl Calls {
    /// By the word that ended the turn: `OpenAI`'s words, and those of other servers for the same.
    pub(super) fn after(word: &str) -> Self {
        match word {
            "stop" | "tool_calls" | "function_call" | "tool_use" | "end_turn" | "eos" | "eos_token"
            | "stop_sequence" => Self::All,
            "length" | "max_tokens" => Self::Whole,
            "content_filter" => Self::None,
            _ => Self::Unknown,
        }
    }
}
