//! Removes blank lines before a text, and space behind it. The indentation of its first line stays.

/// Removes what surrounds a text.
#[derive(Debug, Default)]
pub(super) struct Margins {
    /// What goes unless more text follows.
    space: String,
    has_text: bool,
}

impl Margins {
    pub(super) fn step(&mut self, c: char, out: &mut String) {
        if c.is_whitespace() {
            return self.space.push(c);
        }
        let space = std::mem::take(&mut self.space);
        let kept = if self.has_text { &*space } else { space.rsplit('\n').next().unwrap_or_default() };
        out.push_str(kept);
        out.push(c);
        self.has_text = true;
    }
}
