//! Removes paragraphs that repeat the one before, as models stutter.

use crate::guard::code::CodeBlock;

/// A longer paragraph is not compared.
const MAX_PARAGRAPH: usize = 16 * 1024;

/// Removes repeated paragraphs.
#[derive(Debug, Default)]
pub(super) struct Paragraphs {
    block: CodeBlock,
    /// The paragraph before; `None` where there is none to compare with.
    before: Option<String>,
    /// The present one, as far as it came.
    present: String,
    /// What is held while the present paragraph may repeat the one before: then that begins with the present one.
    held: Option<String>,
    /// Space since the last character that is none.
    space: String,
    is_long: bool,
}

impl Paragraphs {
    pub(super) fn step(&mut self, c: char, out: &mut String) {
        if c.is_whitespace() {
            return self.space.push(c);
        }
        let space = std::mem::take(&mut self.space);
        space.chars().for_each(|c| self.block.step(c));
        let is_code = self.block.is_open();
        let begins = !is_code && space.matches('\n').count() >= 2;
        if begins {
            self.end_paragraph(out);
            // A block of code is not touched.
            self.held = (!matches!(c, '`' | '~') && self.before.is_some()).then(String::new);
        }
        self.held.as_mut().unwrap_or(out).push_str(&space);
        let added = self.present.len();
        if !begins {
            self.present.push_str(&space);
        }
        self.block.step(c);
        self.is_long |= is_code || self.block.is_open() || self.present.len() > MAX_PARAGRAPH;
        self.present.push(c);
        self.held.as_mut().unwrap_or(out).push(c);
        // Only what was added is compared.
        let goes_on = |before: &String| before.as_bytes()[added..].starts_with(&self.present.as_bytes()[added..]);
        if self.held.is_some() && !self.before.as_ref().is_some_and(goes_on) {
            out.push_str(&self.held.take().unwrap_or_default());
        }
    }

    pub(super) fn finish(&mut self, out: &mut String) {
        self.end_paragraph(out);
        out.push_str(&std::mem::take(&mut self.space));
    }

    fn end_paragraph(&mut self, out: &mut String) {
        let present = std::mem::take(&mut self.present);
        if let Some(held) = self.held.take() {
            if self.before.as_ref() == Some(&present) {
                return;
            }
            out.push_str(&held);
        }
        let is_comparable = !std::mem::take(&mut self.is_long) && !present.is_empty();
        self.before = is_comparable.then_some(present);
    }
}
