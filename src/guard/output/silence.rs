//! Finds answers that say that there is nothing to say.

/// What a model answers that has nothing to say.
pub const NO_REPLY: &str = "NO_REPLY";

/// What may stand around the word.
const DECORATION: [char; 5] = ['*', '`', '"', '\'', '.'];
/// A longer answer says something, if only with space.
const MAX_ANSWER: usize = 64;

/// Whether a whole answer says that there is nothing to say.
#[must_use]
pub fn is_silent(text: &str) -> bool {
    text.len() <= MAX_ANSWER && bare(text) == NO_REPLY
}

/// Holds the beginning of a text for as long as it may be [`NO_REPLY`].
#[derive(Debug, Default)]
pub struct Silence {
    held: String,
    speaks: bool,
}

impl Silence {
    /// Takes the next piece of text and returns what may be shown now.
    pub fn push(&mut self, text: String) -> String {
        if self.speaks {
            return text;
        }
        self.held.push_str(&text);
        let word = bare(&self.held);
        // What stands behind the word ends it, unless that is decoration.
        let begun = self.held.trim_start_matches(|c: char| c.is_whitespace() || DECORATION.contains(&c));
        if self.held.len() <= MAX_ANSWER && (NO_REPLY.starts_with(begun) || word == NO_REPLY) {
            return String::new();
        }
        self.speaks = true;
        std::mem::take(&mut self.held)
    }

    /// Ends the text: what is left to show.
    pub fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        if is_silent(&held) { String::new() } else { held }
    }
}

fn bare(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || DECORATION.contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_held_only_while_it_may_be_the_word() {
        for (text, shown) in [
            ("NO_REPLY", ""),
            (" **NO_REPLY**.\n", ""),
            ("`NO_REPLY`", ""),
            ("NO_REPLY needed", "NO_REPLY needed"),
            ("NO", "NO"),
            ("No reply", "No reply"),
            ("\"Quoted\"", "\"Quoted\""),
            ("", ""),
            (&format!("NO_REPLY{}", " ".repeat(56)), ""),
            (&format!("NO_REPLY{0}", " ".repeat(57)), &format!("NO_REPLY{0}", " ".repeat(57))),
        ] {
            let mut machine = Silence::default();
            let mut all: String = text.chars().map(|c| machine.push(c.to_string())).collect();
            all.push_str(&machine.finish());
            assert_eq!(all, shown, "{text}");
            assert_eq!(is_silent(text), shown.is_empty() && !text.is_empty(), "{text}");
        }
        let mut machine = Silence::default();
        assert_eq!((machine.push("NO_".into()), machine.push("W".into())), (String::new(), "NO_W".to_owned()));
        assert_eq!(machine.push("hello".into()), "hello");
    }
}
