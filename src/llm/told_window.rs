//! Reads how many tokens a model takes, and how many it was given, in the words by which an upstream refuses a conversation as too
//! long. Pure.
//!
//! Vendors and servers say it in many ways, and many of them change their words. What is not understood is left open.

use serde_json::Value;

/// What an upstream says of a window that was too small.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    /// How many tokens the model takes.
    pub window: Option<u64>,
    /// How many it was given.
    pub tokens: Option<u64>,
}

/// What comes before the number of tokens that a model takes.
const BEFORE_WINDOW: [&str; 12] = [
    "maximum context length is ",
    "maximum context length of ",
    "maximum prompt length is ",
    "maximum model length of ",
    "context length (",
    "context size (",
    "context window of ",
    "tokens allowed (",
    "tokens allowed ",
    "must be <= ",
    "cannot exceed ",
    "> ",
];
/// What comes after it.
const AFTER_WINDOW: [&str; 2] = [" maximum context length", " token limit"];

/// What comes before the number of tokens that it was given. The first that is found counts.
const BEFORE_TOKENS: [&str; 15] = [
    "resulted in ",
    "request has ",
    "request contains ",
    "prompt contains ",
    "received ",
    "given: ",
    "token count (",
    "token count of ",
    "(length ",
    "the input (",
    "request (",
    "too long: ",
    "context limit: ",
    "your prompt is ",
    "you requested ",
];
/// What comes after it, which is more exact where it is there.
const AFTER_TOKENS: [&str; 2] = [" in the messages", " input tokens"];

/// Windows that are smaller or larger are misread.
const WINDOWS: std::ops::RangeInclusive<u64> = 128..=100_000_000;

impl Told {
    /// What is said in an error object and its message; `None` if that is nothing.
    #[must_use]
    pub fn read(error: &Value, message: &str) -> Option<Self> {
        let member = |name: &str| error.get(name).and_then(Value::as_u64);
        let words = message.to_lowercase();
        let window =
            member("n_ctx").or_else(|| after(&words, &BEFORE_WINDOW)).or_else(|| before(&words, &AFTER_WINDOW));
        let tokens = member("n_prompt_tokens");
        let tokens = tokens.or_else(|| before(&words, &AFTER_TOKENS)).or_else(|| after(&words, &BEFORE_TOKENS));
        let told = Self { window: window.filter(|window| WINDOWS.contains(window)), tokens };
        (told != Self::default()).then_some(told)
    }
}

/// The number behind the first of these phrases that has one.
fn after(words: &str, phrases: &[&str]) -> Option<u64> {
    phrases
        .iter()
        .find_map(|phrase| words.match_indices(phrase).find_map(|(at, _)| leading(&words[at + phrase.len()..])))
}

/// The number before the first of these phrases that has one.
fn before(words: &str, phrases: &[&str]) -> Option<u64> {
    phrases.iter().find_map(|phrase| words.match_indices(phrase).find_map(|(at, _)| trailing(&words[..at])))
}

fn leading(words: &str) -> Option<u64> {
    let end = words.find(|letter: char| !is_of_number(letter)).unwrap_or(words.len());
    number(&words[..end])
}

fn trailing(words: &str) -> Option<u64> {
    let begin = words.rfind(|letter: char| !is_of_number(letter)).map_or(0, |at| at + 1);
    number(words.get(begin..)?)
}

fn is_of_number(letter: char) -> bool {
    letter.is_ascii_digit() || letter == ','
}

fn number(digits: &str) -> Option<u64> {
    digits.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn assert_told(message: &str, window: Option<u64>, tokens: Option<u64>) {
        let told = Told::read(&json!({}), message).unwrap_or_default();
        assert_eq!((told.window, told.tokens), (window, tokens), "{message}");
    }

    #[test]
    fn windows_are_read_in_the_words_of_vendors() {
        for (message, window, tokens) in [
            (
                "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
                Some(128_000),
                Some(130_000),
            ),
            (
                "This model's maximum context length is 4,097 tokens. However, you requested 5000 tokens (4000 in the messages, \
                 1000 in the completion).",
                Some(4_097),
                Some(4_000),
            ),
            (
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
                None,
                None,
            ),
            ("prompt is too long: 200001 tokens > 200000 maximum", Some(200_000), Some(200_001)),
            (
                "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length",
                Some(200_000),
                Some(188_240),
            ),
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                Some(1_048_576),
                Some(1_200_000),
            ),
            ("The input token count exceeds the maximum number of tokens allowed 1048576.", Some(1_048_576), None),
        ] {
            assert_told(message, window, tokens);
        }
    }

    #[test]
    fn windows_are_read_in_the_words_of_servers() {
        for (message, window, tokens) in [
            (
                "'max_tokens' is too large: 4096. This model's maximum context length is 8192 tokens and your request has 5000 input \
                 tokens",
                Some(8_192),
                Some(5_000),
            ),
            (
                "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
                Some(4_096),
                Some(5_000),
            ),
            (
                "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
                Some(4_096),
                Some(5_000),
            ),
            (
                "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
                Some(8_192),
                Some(9_000),
            ),
            (
                "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
                Some(32_768),
                Some(40_000),
            ),
            (
                "This model's maximum prompt length is 131072 but the request contains 135000 tokens.",
                Some(131_072),
                Some(135_000),
            ),
            (
                "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens and 512 `max_new_tokens`",
                Some(4_097),
                Some(5_000),
            ),
            ("Input is too long for requested model.", None, None),
        ] {
            assert_told(message, window, tokens);
        }
    }

    #[test]
    fn members_count_before_words() {
        let error = json!({"type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096});
        let told = Told::read(&error, "the request exceeds the available context size, try increasing it");
        assert_eq!(told, Some(Told { window: Some(4_096), tokens: Some(5_000) }));
    }

    #[test]
    fn what_can_be_no_window_is_none() {
        assert_eq!(Told::read(&json!({}), "1 > 0"), None);
        assert_eq!(Told::read(&json!({}), "maximum context length is 99999999999999999999999 tokens"), None);
    }
}
