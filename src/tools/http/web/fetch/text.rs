//! Text as it is put together from a page: white space is joined, and paragraphs are parted. Pure.

use std::ops::Range;

/// Longest text that is made of a page.
const MAX_TEXT: usize = 4 << 20;

/// What parts the text so far from what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Gap {
    #[default]
    None,
    Space,
    Line,
    Paragraph,
}

/// Text that grows.
#[derive(Debug, Default)]
pub(super) struct Text {
    out: String,
    gap: Gap,
    is_preformatted: bool,
    /// Where a mark ends that its words follow on the same line.
    marked: Option<usize>,
}

impl Text {
    /// How long it is.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// Text of the page.
    pub(super) fn push(&mut self, text: &str) {
        if self.is_full() {
            return;
        }
        if self.is_preformatted {
            self.close_gap();
            self.out.push_str(text);
            return;
        }
        let is_space = |c: char| c.is_whitespace() && c != '\u{a0}';
        for (index, word) in text.split(is_space).enumerate() {
            if index > 0 {
                self.gap = self.gap.max(Gap::Space);
            }
            if !word.is_empty() {
                self.close_gap();
                self.out.extend(word.chars().map(|c| if c == '\u{a0}' { ' ' } else { c }));
            }
        }
    }

    /// A mark whose words follow on the same line. Returns where it stands.
    pub(super) fn mark(&mut self, mark: &str) -> usize {
        let at = self.rule(mark);
        self.marked = Some(self.out.len());
        at
    }

    /// A mark by itself. Returns where it stands.
    pub(super) fn rule(&mut self, mark: &str) -> usize {
        if !self.is_full() {
            self.close_gap();
            self.out.push_str(mark);
            return self.out.len() - mark.len();
        }
        self.out.len()
    }

    /// A mark around words of a line; text that is preformatted has none.
    pub(super) fn inline_mark(&mut self, mark: &str) {
        if !self.is_preformatted {
            self.rule(mark);
        }
    }

    /// Ends the link whose mark stands at `begin`. One without words is none.
    pub(super) fn close_link(&mut self, begin: usize, address: &str) {
        if self.is_full() {
            return;
        }
        let words = self.out.get(begin + 1..).unwrap_or_default();
        if words.trim().is_empty() {
            self.out.truncate(begin);
            self.gap = self.gap.max(Gap::Space);
        } else if words == address {
            self.out.remove(begin);
        } else {
            self.out.push_str("](");
            self.out.push_str(address);
            self.out.push(')');
        }
    }

    /// What comes next stands on a line of its own.
    pub(super) fn line(&mut self) {
        self.part(Gap::Line);
    }

    /// What comes next is another paragraph.
    pub(super) fn paragraph(&mut self) {
        self.part(Gap::Paragraph);
    }

    /// Whether white space counts from here on.
    pub(super) fn preformat(&mut self, is_preformatted: bool) {
        self.is_preformatted = is_preformatted;
        if is_preformatted {
            self.gap = Gap::None;
        }
    }

    /// The text: what is marked as the content, if that is at least one in `part` bytes of the whole.
    pub(super) fn finish(self, content: &[Range<usize>], part: usize) -> String {
        let mut chosen = String::new();
        for range in content {
            let piece = self.out.get(range.clone()).unwrap_or_default().trim_matches(['\n', ' ']);
            if !piece.is_empty() {
                let gap = if chosen.is_empty() { "" } else { "\n\n" };
                chosen.push_str(gap);
                chosen.push_str(piece);
            }
        }
        if !chosen.is_empty() && chosen.len() >= self.out.len() / part {
            return chosen;
        }
        self.out.trim_matches(['\n', ' ']).to_owned()
    }

    fn part(&mut self, gap: Gap) {
        if self.marked != Some(self.out.len()) {
            self.gap = self.gap.max(gap);
        }
    }

    fn is_full(&self) -> bool {
        self.out.len() > MAX_TEXT
    }

    fn close_gap(&mut self) {
        let gap = std::mem::take(&mut self.gap);
        if self.out.is_empty() {
            return;
        }
        match gap {
            Gap::None => {}
            Gap::Space if self.out.ends_with(['\n', ' ']) => {}
            Gap::Space => self.out.push(' '),
            Gap::Line if self.out.ends_with('\n') => {}
            Gap::Line => self.out.push('\n'),
            Gap::Paragraph if self.out.ends_with("\n\n") => {}
            Gap::Paragraph if self.out.ends_with('\n') => self.out.push('\n'),
            Gap::Paragraph => self.out.push_str("\n\n"),
        }
    }
}
