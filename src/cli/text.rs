//! Text on a terminal: counts in words, and text from elsewhere. Pure.
//!
//! What a model, a tool or a caller wrote may hold characters that a terminal takes for commands: that move its cursor, set
//! its title or fill its clipboard. None of them is shown.

use std::fmt::Display;

/// Stands for a character that is not shown.
const UNSHOWN: char = '\u{FFFD}';

/// So many of what the noun names.
pub(super) fn count(number: impl Display, noun: &str) -> String {
    let number = number.to_string();
    let ending = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// The text with line breaks and tabs, and without any other character that a terminal obeys.
pub(super) fn clean(text: &str) -> String {
    // The line feed of a line's end says all that its carriage return does.
    let text = text.replace("\r\n", "\n");
    text.chars().map(|c| if matches!(c, '\n' | '\t') || !is_command(c) { c } else { UNSHOWN }).collect()
}

/// The text on one line, of at most so many characters.
pub(super) fn line(text: &str, most: usize) -> String {
    let joined = clean(text).split_whitespace().collect::<Vec<_>>().join(" ");
    clip(&joined, most)
}

/// The beginning of the text, with a sign that there is more.
pub(super) fn clip(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// JSON with every character escaped that a terminal obeys and that stands in a text: JSON has none elsewhere.
pub(super) fn clean_json(json: &str) -> String {
    use std::fmt::Write;
    let mut clean = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && is_command(c) {
            write!(clean, "\\u{:04x}", u32::from(c)).expect("writing to a string cannot fail");
        } else {
            clean.push(c);
        }
    }
    clean
}

/// Control characters, and those that turn the direction of the text that follows.
fn is_command(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_commands_the_terminal() {
        let hostile = "a\x1b]0;title\x07b\r\nc\u{9b}2Jd\u{202e}e\tf\rg";
        assert_eq!(clean(hostile), "a\u{fffd}]0;title\u{fffd}b\nc\u{fffd}2Jd\u{fffd}e\tf\u{fffd}g");
        assert_eq!(line(hostile, 12), "a\u{fffd}]0;title\u{fffd}…");
        assert_eq!(line(" a\n\n b ", 12), "a b");
        let json = clean_json("{\n\"a\": \"\u{7f}\u{9b}é\"}");
        assert_eq!(json, "{\n\"a\": \"\\u007f\\u009bé\"}");
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["a"], "\u{7f}\u{9b}é");
    }
}
