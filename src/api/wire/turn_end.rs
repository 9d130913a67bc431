//! The finish reasons of a step's turn.

use crate::types::TurnEnd;

/// The word that an upstream which speaks as `OpenAI` does has for this end.
pub fn finish_reason(end: &TurnEnd) -> &str {
    match end {
        TurnEnd::Stop => "stop",
        TurnEnd::Length => "length",
        TurnEnd::ToolCalls => "tool_calls",
        TurnEnd::ContentFilter => "content_filter",
        TurnEnd::Paused => "paused",
        TurnEnd::Interrupted => "interrupted",
        TurnEnd::Other(word) => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::openai::finish_reason::read;

    #[test]
    fn an_upstreams_word_is_shown_as_it_came() {
        for word in ["stop", "length", "tool_calls", "content_filter", "interrupted", "max_tokens", "function_call"] {
            assert_eq!(finish_reason(&read(word.to_owned())), word);
        }
        assert_eq!(read("content_filter".to_owned()), TurnEnd::ContentFilter);
    }
}
