//! Removes tool calls that a model writes in tags, with what stands in them, and the tags around a final answer.

use super::tag::{Read, Tag, read};
use crate::guard::code::Code;

/// Tags that go, most of them with what stands in them.
const NAMES: [&str; 9] = [
    "tool_call",
    "tool_calls",
    "function_call",
    "function_calls",
    "tool_use",
    "minimax:tool_call",
    "invoke",
    PARAMETER,
    FINAL,
];
/// The tag that is one of a call where it bears a name.
const PARAMETER: &str = "parameter";
/// The tag that goes and leaves its text.
const FINAL: &str = "final";

/// Removes tags.
#[derive(Debug, Default)]
pub(super) struct Tags {
    code: Code,
    /// What may become a tag.
    tag: String,
    /// The element whose end is awaited.
    within: Option<&'static str>,
}

impl Tags {
    pub(super) fn step(&mut self, c: char, out: &mut String) {
        if self.tag.is_empty() && (c != '<' || self.within.is_none() && self.code.is_open()) {
            return self.say(c, out);
        }
        if c == '<' {
            self.release(out);
        }
        self.tag.push(c);
        match read(&self.tag, &NAMES, true) {
            Read::MayBe => {}
            Read::Whole(Tag { name: PARAMETER, is_closing: false, has_attributes: false, .. }) | Read::Not => {
                self.release(out);
            }
            Read::Whole(tag) => {
                self.within = within(self.within, tag);
                self.tag.clear();
            }
        }
    }

    /// Ends the text. What is not closed goes.
    pub(super) fn finish(&mut self, out: &mut String) {
        self.release(out);
    }

    fn release(&mut self, out: &mut String) {
        for c in std::mem::take(&mut self.tag).chars() {
            self.say(c, out);
        }
    }

    fn say(&mut self, c: char, out: &mut String) {
        if self.within.is_none() {
            self.code.step(c);
            out.push(c);
        }
    }
}

/// In which element the text stands after a tag. Models close calls with whatever tag of a call comes to them.
fn within(open: Option<&'static str>, tag: Tag) -> Option<&'static str> {
    match open {
        _ if tag.name == FINAL => open,
        Some(PARAMETER) if tag.is_closing => None,
        Some(_) if tag.is_closing && tag.name != PARAMETER => None,
        Some(_) => open,
        None => (!tag.is_closing && !tag.is_empty).then_some(tag.name),
    }
}
