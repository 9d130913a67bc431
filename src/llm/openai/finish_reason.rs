//! The words that `OpenAI` has for the end of a turn.

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
