//! Splits off what a model thinks in tags, as models do whose servers do not read them.
//!
//! Thinking begins where an answer does, behind other thinking, or with a line. Elsewhere a tag is one that the text speaks of.

use memchr::memchr;

use super::tag::{Read, read};
use crate::guard::code::Code;

/// The tags, in lower case.
const NAMES: [&str; 4] = ["think", "thinking", "thought", "antthinking"];

/// A piece of what a model said.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Of the answer.
    Text(String),
    /// Of its thinking.
    Thinking(String),
}

/// Splits a text into an answer and thinking.
#[derive(Debug, Default)]
pub struct ThinkingSplit {
    code: Code,
    is_thinking: bool,
    /// What may become a tag.
    tag: String,
    /// Space before the answer, which goes if thinking follows it.
    space: String,
    has_text: bool,
    found_any: bool,
    /// Whether nothing but space came since the last thinking.
    after_thinking: bool,
    /// Whether the tags that follow are text.
    is_over: bool,
}

impl ThinkingSplit {
    /// Takes the next piece of the text.
    pub fn push(&mut self, text: String, mut take: impl FnMut(Piece)) {
        if text.is_empty() {
            return;
        }
        let has_tag = !self.tag.is_empty() || memchr(b'<', text.as_bytes()).is_some();
        if !has_tag {
            let text = if self.is_thinking { text } else { self.say_all(text) };
            return give(text, self.is_thinking, take);
        }
        let (mut answer, mut thought) = (String::new(), String::new());
        for c in text.chars() {
            let was_thinking = self.is_thinking;
            self.step(c, &mut answer, &mut thought);
            if was_thinking != self.is_thinking {
                // In their order: the one that ended first.
                let ended = if was_thinking { &mut thought } else { &mut answer };
                give(std::mem::take(ended), was_thinking, &mut take);
            }
        }
        let rest = if self.is_thinking { thought } else { answer };
        give(rest, self.is_thinking, take);
    }

    /// Ends the text. Thinking that is not closed stays thinking.
    pub fn finish(&mut self, take: impl FnMut(Piece)) {
        let mut rest = if self.found_any { String::new() } else { std::mem::take(&mut self.space) };
        rest.push_str(&std::mem::take(&mut self.tag));
        give(rest, self.is_thinking, take);
    }

    /// Takes all tags that are not closed yet for text: the model's thinking comes by itself.
    pub fn stop(&mut self) {
        self.is_over = true;
    }

    /// Whether anything was split off.
    #[must_use]
    pub fn found_any(&self) -> bool {
        self.found_any
    }

    fn step(&mut self, c: char, answer: &mut String, thought: &mut String) {
        if self.tag.is_empty() && (c != '<' || !self.is_thinking && !self.may_begin()) {
            return self.say(c, answer, thought);
        }
        // A tag begins anew at each `<`.
        if c == '<' {
            self.release(answer, thought);
            if !self.is_thinking && !self.may_begin() {
                return self.say(c, answer, thought);
            }
        }
        self.tag.push(c);
        match read(&self.tag, &NAMES, false) {
            Read::MayBe => {}
            Read::Whole(tag) if self.is_thinking => {
                self.is_thinking = !tag.is_closing;
                self.tag.clear();
            }
            Read::Whole(tag) if !tag.is_closing && !self.is_over => {
                (self.is_thinking, self.found_any, self.after_thinking) = (true, true, true);
                self.tag.clear();
                self.space.clear();
            }
            Read::Whole(_) | Read::Not => self.release(answer, thought),
        }
    }

    /// Whether thinking may begin here.
    fn may_begin(&self) -> bool {
        let begins_line = self.code.is_line_start() && !self.code.is_open();
        !self.is_over && (!self.has_text || self.after_thinking || begins_line)
    }

    /// What is held is no tag.
    fn release(&mut self, answer: &mut String, thought: &mut String) {
        for c in std::mem::take(&mut self.tag).chars() {
            self.say(c, answer, thought);
        }
    }

    /// Takes a text of the answer that has no tag, and gives what is to be shown of it now.
    fn say_all(&mut self, mut text: String) -> String {
        self.code.read(&text);
        let space = text.len() - text.trim_start().len();
        let is_space = space == text.len();
        self.after_thinking &= is_space;
        if self.has_text {
            return text;
        }
        if is_space {
            self.space.push_str(&text);
            return String::new();
        }
        self.has_text = true;
        let before = std::mem::take(&mut self.space);
        if self.found_any {
            text.drain(..space);
        } else if !before.is_empty() {
            text.insert_str(0, &before);
        }
        text
    }

    fn say(&mut self, c: char, answer: &mut String, thought: &mut String) {
        if self.is_thinking {
            return thought.push(c);
        }
        self.code.step(c);
        self.after_thinking &= c.is_whitespace();
        if !self.has_text && c.is_whitespace() {
            return self.space.push(c);
        }
        if !self.has_text {
            self.has_text = true;
            let space = std::mem::take(&mut self.space);
            if !self.found_any {
                answer.push_str(&space);
            }
        }
        answer.push(c);
    }
}

fn give(text: String, is_thinking: bool, mut take: impl FnMut(Piece)) {
    if !text.is_empty() {
        take(if is_thinking { Piece::Thinking(text) } else { Piece::Text(text) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answer and thinking.
    fn split(text: &str) -> (String, String) {
        let (mut answer, mut thought) = (String::new(), String::new());
        let mut take = |piece| match piece {
            Piece::Text(text) => answer.push_str(&text),
            Piece::Thinking(text) => thought.push_str(&text),
        };
        let mut machine = ThinkingSplit::default();
        for c in text.chars() {
            machine.push(c.to_string(), &mut take);
        }
        machine.finish(&mut take);
        let mut pieces = Vec::new();
        let mut whole = ThinkingSplit::default();
        whole.push(text.to_owned(), |piece| pieces.push(piece));
        whole.finish(|piece| pieces.push(piece));
        let of = |is_text| {
            let text = |piece: &Piece| match (piece, is_text) {
                (Piece::Text(text), true) | (Piece::Thinking(text), false) => text.clone(),
                _ => String::new(),
            };
            pieces.iter().map(text).collect::<String>()
        };
        assert_eq!((of(true), of(false)), (answer.clone(), thought.clone()), "{text}");
        (answer, thought)
    }

    #[test]
    fn thinking_in_tags_is_split_off() {
        for (text, answer, thought) in [
            ("<think>why</think>so", "so", "why"),
            ("\n<THINK >why\n</Think>\n\nso", "so", "why\n"),
            ("<thinking>a</thinking>\n<thought>c</thought>d", "d", "ac"),
            ("<thinking>a</thinking>b\n  <thought>c</thought>d", "b\n  d", "ac"),
            ("a\n<think>b</think>\n<think>c</think>\n\nd", "a\n\n\n\nd", "bc"),
            ("<antThinking>a</antThinking> b", "b", "a"),
            ("<think>a <b> </thin k> <think> c</think>d", "d", "a <b> </thin k>  c"),
            ("<think>never closed", "", "never closed"),
            ("a < b <thinker> <think", "a < b <thinker> <think", ""),
            ("  plain \n", "  plain \n", ""),
            (" \n ", " \n ", ""),
            ("<think></think>\n", "", ""),
        ] {
            assert_eq!(split(text), (answer.to_owned(), thought.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_tag_of_which_a_text_speaks_begins_no_thinking() {
        for text in [
            "R1 writes <think> and then reasons. Use it so:\n\n1. Ask.",
            "{\"tag\":\"<think>\"}",
            "said</think> more",
            "<<think>a</think>b",
            "</think>so",
        ] {
            assert_eq!(split(text), (text.to_owned(), String::new()));
        }
        let mut machine = ThinkingSplit::default();
        let mut pieces = Vec::new();
        machine.push("<think>a</think>".to_owned(), |piece| pieces.push(piece));
        machine.stop();
        machine.push("<think>b</think>".to_owned(), |piece| pieces.push(piece));
        machine.finish(|piece| pieces.push(piece));
        assert_eq!(pieces, [Piece::Thinking("a".to_owned()), Piece::Text("<think>b</think>".to_owned())]);
    }

    #[test]
    fn code_is_not_touched() {
        for text in [
            "Use `<think>` and `</think>`.",
            "```xml\n<think>a</think>\n```\n",
            "x\n````\n```\n<think>\n````",
            "plain text, then\n```\ncode\n\n<think>",
        ] {
            assert_eq!(split(text), (text.to_owned(), String::new()));
        }
        assert_eq!(split("a `b\n<think>c</think>d"), ("a `b\nd".to_owned(), "c".to_owned()));
        assert_eq!(split("```\na\n```\n<think>c</think>d"), ("```\na\n```\nd".to_owned(), "c".to_owned()));
    }

    #[test]
    fn plain_text_is_passed_on_in_one_piece() {
        let mut machine = ThinkingSplit::default();
        machine.push("one".to_owned(), |_| {});
        let mut pieces = Vec::new();
        machine.push(" two\n three".to_owned(), |piece| pieces.push(piece));
        assert_eq!(pieces, [Piece::Text(" two\n three".to_owned())]);
    }
}
