//! Calls that are all that a turn's text says.
//!
//! A model that explains or quotes a call has not made it. Only a text that holds nothing but calls is taken for them,
//! so it is held back for as long as it may be one, and shown as it came once it is not.

use super::{MAX_HELD_BYTES, TextToolCalls};
use crate::llm::ModelCall;

/// What a text begins with that may be calls.
const BEGINNINGS: [char; 4] = ['{', '[', '`', '<'];

/// Finds calls in a text that holds nothing else.
#[derive(Debug)]
pub struct LoneCalls<F> {
    /// `None` once the text has said something else.
    scanner: Option<TextToolCalls<F>>,
    /// The text so far, as it came.
    held: String,
}

impl<F: Fn(&str, &str) -> bool> LoneCalls<F> {
    /// At the beginning of a text. `is_call` says whether a name and arguments, a JSON object, are a call that may be
    /// made.
    pub fn new(is_call: F) -> Self {
        Self { scanner: Some(TextToolCalls::new(is_call)), held: String::new() }
    }

    /// Takes the next piece of text and returns what may be shown now.
    pub fn push(&mut self, text: &str) -> String {
        let Some(scanner) = &mut self.scanner else { return text.to_owned() };
        // Most texts show at their first character that they are no calls.
        if self.held.is_empty() && text.trim_start().starts_with(|first| !BEGINNINGS.contains(&first)) {
            self.scanner = None;
            return text.to_owned();
        }
        self.held.push_str(text);
        if scanner.push(text).trim().is_empty() && self.held.len() <= MAX_HELD_BYTES {
            return String::new();
        }
        self.scanner = None;
        std::mem::take(&mut self.held)
    }

    /// Ends the text: what is left to show, or the calls in their order. After a text that a length limit cut off, the
    /// half call at its end is nothing.
    pub fn finish(self, was_cut: bool) -> (String, Vec<ModelCall>) {
        let Some(scanner) = self.scanner else { return (String::new(), Vec::new()) };
        let (rest, calls) = scanner.finish();
        let is_half_call = was_cut && rest.trim_start().starts_with(BEGINNINGS);
        if calls.is_empty() || !(rest.trim().is_empty() || is_half_call) {
            return (self.held, Vec::new());
        }
        (String::new(), calls)
    }

    /// Ends a text that is only text, whatever it says: what is left to show.
    pub fn into_text(self) -> String {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"name": "add", "arguments": {"a": 1}}"#;

    /// What is shown, and the number of calls.
    fn recover(text: &str, was_cut: bool) -> (String, usize) {
        let mut shown = String::new();
        let mut lone = LoneCalls::new(|name: &str, _: &str| name == "add");
        for piece in text.split_inclusive(' ') {
            shown += &lone.push(piece);
        }
        let (rest, calls) = lone.finish(was_cut);
        (shown + &rest, calls.len())
    }

    #[test]
    fn a_text_of_nothing_but_calls_is_calls() {
        for (text, calls) in [
            (CALL.to_owned(), 1),
            (format!(" \n{CALL}\n{CALL}\n"), 2),
            (format!("```json\n{CALL}\n```\n"), 1),
            (format!("<tool_call>\n{CALL}\n</tool_call>"), 1),
            (format!("[{CALL}, {CALL}]"), 2),
        ] {
            assert_eq!(recover(&text, false), (String::new(), calls), "{text}");
        }
    }

    #[test]
    fn a_call_beside_anything_else_is_text() {
        for text in [
            format!("To pay you would send:\n```json\n{CALL}\n```\nShall I?"),
            format!("To pay you would send:\n{CALL}"),
            format!("{CALL}\nShall I?"),
            format!("{CALL}\n{}", CALL.replace("add", "subtract")),
            "  \n".to_owned(),
            format!("{CALL}\n{{\"name\": \"ad"),
        ] {
            assert_eq!(recover(&text, false), (text.clone(), 0), "{text}");
        }
    }

    #[test]
    fn a_half_call_at_a_length_limit_is_nothing() {
        assert_eq!(recover(&format!("{CALL}\n{{\"name\": \"ad"), true), (String::new(), 1));
        let said = format!("{CALL}\nand so");
        assert_eq!(recover(&said, true), (said.clone(), 0));
    }

    #[test]
    fn text_is_shown_once_it_cannot_be_a_call_and_held_back_within_bounds() {
        let mut lone = LoneCalls::new(|_: &str, _: &str| true);
        assert_eq!((lone.push("{\"na"), lone.push("me\": 1, x")), (String::new(), "{\"name\": 1, x".to_owned()));
        assert_eq!(lone.push(CALL), CALL);
        let many = format!("{CALL}\n").repeat(MAX_HELD_BYTES / CALL.len() + 1);
        assert_eq!(LoneCalls::new(|_: &str, _: &str| true).push(&many), many);
    }
}
