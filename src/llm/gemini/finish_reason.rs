//! Why a turn ended.

use crate::llm::turn_calls::Calls;
use crate::types::TurnEnd;

/// What a turn that ended with this word ended with, and what becomes of its calls.
pub(super) fn read(word: String, has_calls: bool) -> (TurnEnd, Calls) {
    match word.as_str() {
        "STOP" if has_calls => (TurnEnd::ToolCalls, Calls::All),
        "STOP" => (TurnEnd::Stop, Calls::All),
        "MAX_TOKENS" => (TurnEnd::Length, Calls::Whole),
        withheld if withholds(withheld) => (TurnEnd::ContentFilter, Calls::None),
        _ => (TurnEnd::Other(word), Calls::Unknown),
    }
}

/// Whether the upstream holds the rest of the answer back.
pub(super) fn withholds(word: &str) -> bool {
    matches!(
        word,
        "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION"
    )
}

/// Whether the model wrote a call that the upstream could not use: asked again it may write a better one.
pub(super) fn is_unusable_call(word: &str) -> bool {
    matches!(word, "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL")
}
