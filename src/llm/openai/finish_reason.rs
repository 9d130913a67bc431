//! Reads `OpenAI`'s finish reasons.

use crate::llm::turn_calls::Calls;
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

/// What becomes of the calls of a turn that ended with this word: one of `OpenAI`'s words, or of other servers for the
/// same.
pub(super) fn calls_after(word: &str) -> Calls {
    match word {
        "stop" | "tool_calls" | "function_call" | "tool_use" | "end_turn" | "eos" | "eos_token" | "stop_sequence" => {
            Calls::All
        }
        "length" | "max_tokens" => Calls::Whole,
        "content_filter" => Calls::None,
        _ => Calls::Unknown,
    }
}
