//! Why a turn ended.

use crate::llm::turn_calls::Calls;
use crate::types::TurnEnd;

/// What a turn that ended with this word ended with, and what becomes of its calls.
pub(super) fn read(word: &str) -> (TurnEnd, Calls) {
    match word {
        "end_turn" | "stop_sequence" => (TurnEnd::Stop, Calls::All),
        "tool_use" => (TurnEnd::ToolCalls, Calls::All),
        "pause_turn" => (TurnEnd::Paused, Calls::All),
        "max_tokens" | "model_context_window_exceeded" => (TurnEnd::Length, Calls::Whole),
        "refusal" => (TurnEnd::ContentFilter, Calls::None),
        _ => (TurnEnd::Other(word.to_owned()), Calls::Unknown),
    }
}
