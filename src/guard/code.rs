//! Follows the code of Markdown through a text: fenced blocks, and code within a line. What stands in it is quoted.

use memchr::memchr2;

/// Follows a text through its fenced blocks: three or more backticks or tildes at the beginning of a line, up to at least as
/// many that stand alone in theirs. Blocks may stand in quotes and lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CodeBlock {
    fence: Fence,
    margin: Margin,
    /// Whether the line has more than white space.
    has_text: bool,
}

/// Where a text stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Fence {
    /// In no block.
    #[default]
    Outside,
    /// After what may open a block.
    Opening(Marks),
    /// In the rest of the line that opens a block.
    Info(Marks),
    /// In a block.
    Inside(Marks),
    /// In a block, after so many of the characters that close it; whether space follows them.
    Closing(Marks, usize, bool),
}

/// The characters that open a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marks {
    mark: char,
    count: usize,
}

/// What of a line came before its text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Margin {
    /// White space, the marks of quotes, and those of items of lists.
    #[default]
    Space,
    /// A mark of an item, behind which there is to be space.
    Item,
    /// So many digits, which may number an item.
    Number(u8),
    /// The text has begun.
    Over,
}

/// Most digits of the number of an item.
const MOST_DIGITS: u8 = 9;

impl CodeBlock {
    /// Whether what comes next is in a block.
    #[must_use]
    pub fn is_open(self) -> bool {
        match self.fence {
            Fence::Outside => false,
            Fence::Opening(marks) => marks.count >= 3,
            Fence::Info(_) | Fence::Inside(_) | Fence::Closing(..) => true,
        }
    }

    /// Whether there is only white space in the line so far.
    #[must_use]
    pub fn is_line_start(self) -> bool {
        !self.has_text
    }

    /// Whether nothing changes before the line ends or a backtick comes.
    fn is_within_line(self) -> bool {
        let is_settled = match self.fence {
            Fence::Outside | Fence::Info(_) | Fence::Inside(_) => true,
            Fence::Opening(_) | Fence::Closing(..) => false,
        };
        is_settled && self.margin == Margin::Over
    }

    /// Takes the next character for the first of a line.
    pub fn begin_line(&mut self) {
        (self.margin, self.has_text) = (Margin::Space, false);
    }

    /// Takes the next character.
    pub fn step(&mut self, c: char) {
        self.fence = match self.fence {
            Fence::Outside if self.margin == Margin::Space && matches!(c, '`' | '~') => {
                Fence::Opening(Marks { mark: c, count: 1 })
            }
            Fence::Opening(marks) if c == marks.mark => Fence::Opening(Marks { count: marks.count + 1, ..marks }),
            Fence::Opening(marks) if marks.count < 3 => Fence::Outside,
            // Backticks further on in the line that opens a block make it code within that line.
            Fence::Outside | Fence::Info(Marks { mark: '`', .. }) if c == '`' => Fence::Outside,
            Fence::Outside => Fence::Outside,
            Fence::Opening(marks) | Fence::Info(marks) if c == '\n' => Fence::Inside(marks),
            Fence::Opening(marks) | Fence::Info(marks) => Fence::Info(marks),
            Fence::Inside(marks) if self.margin == Margin::Space && c == marks.mark => Fence::Closing(marks, 1, false),
            Fence::Closing(marks, seen, false) if c == marks.mark => Fence::Closing(marks, seen + 1, false),
            Fence::Closing(marks, seen, _) if seen >= marks.count && c == '\n' => Fence::Outside,
            Fence::Closing(marks, seen, _) if seen >= marks.count && c.is_whitespace() => {
                Fence::Closing(marks, seen, true)
            }
            Fence::Inside(marks) | Fence::Closing(marks, ..) => Fence::Inside(marks),
        };
        if c == '\n' {
            return self.begin_line();
        }
        let may_be_item = !self.is_open();
        self.margin = match (self.margin, c) {
            (Margin::Space | Margin::Item, c) if c.is_whitespace() => Margin::Space,
            (Margin::Space, '>') => Margin::Space,
            (Margin::Space, '-' | '*' | '+') if may_be_item => Margin::Item,
            (Margin::Space, '0'..='9') if may_be_item => Margin::Number(1),
            (Margin::Number(digits), '0'..='9') if digits < MOST_DIGITS => Margin::Number(digits + 1),
            (Margin::Number(_), '.' | ')') => Margin::Item,
            (Margin::Space | Margin::Item | Margin::Number(_) | Margin::Over, _) => Margin::Over,
        };
        self.has_text |= !c.is_whitespace();
    }
}

/// Follows a text through its code: fenced blocks, and code within a line, which as many backticks end as begin it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Code {
    block: CodeBlock,
    /// How many backticks opened the code within a line; 0 outside.
    span: usize,
    /// How many backticks came just now.
    ticks: usize,
}

impl Code {
    /// Whether the next character is code, if it is no backtick.
    #[must_use]
    pub fn is_open(self) -> bool {
        self.block.is_open()
            || match (self.span, self.ticks) {
                (0, ticks) => ticks > 0,
                (span, ticks) => span != ticks,
            }
    }

    /// Whether there is only white space in the line so far, which is in no block.
    #[must_use]
    pub fn is_line_start(self) -> bool {
        !self.block.is_open() && self.block.is_line_start()
    }

    /// Takes the next text.
    pub fn read(&mut self, text: &str) {
        let mut rest = text;
        loop {
            if self.ticks == 0 && self.block.is_within_line() {
                let Some(plain) = memchr2(b'\n', b'`', rest.as_bytes()) else { return };
                rest = &rest[plain..];
            }
            let mut chars = rest.chars();
            let Some(c) = chars.next() else { return };
            self.step(c);
            rest = chars.as_str();
        }
    }

    /// Takes the next character.
    pub fn step(&mut self, c: char) {
        self.block.step(c);
        if c == '`' {
            self.ticks += 1;
            return;
        }
        let ticks = std::mem::take(&mut self.ticks);
        self.span = match self.span {
            _ if c == '\n' => 0,
            0 => ticks,
            span if span == ticks => 0,
            span => span,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The characters of a text that are in code, but for backticks. However the text is cut in two, it is read alike.
    fn code_in(text: &str) -> String {
        let mut code = Code::default();
        for (cut, _) in text.char_indices() {
            let (mut at_once, mut one_by_one) = (Code::default(), Code::default());
            at_once.read(&text[..cut]);
            at_once.read(&text[cut..]);
            text.chars().for_each(|c| one_by_one.step(c));
            assert_eq!(at_once, one_by_one, "{text}");
        }
        let is_code = |c: &char| {
            let is_open = code.is_open();
            code.step(*c);
            is_open && !matches!(c, '`' | '~')
        };
        text.chars().filter(is_code).collect()
    }

    #[test]
    fn code_within_a_line_ends_with_as_many_backticks_as_begin_it() {
        for (text, code) in [
            ("a `b` c", "b"),
            ("a ``b ` c`` d", "b  c"),
            ("a `b`` c` d", "b c"),
            ("`` ` `` d", "  "),
            ("a `b\nc", "b\n"),
            ("```x``` d", "x"),
            ("no code", ""),
        ] {
            assert_eq!(code_in(text), code, "{text}");
        }
    }

    #[test]
    fn a_block_ends_with_a_fence_that_stands_alone_and_is_no_shorter() {
        for (text, code) in [
            ("```\na\n```\nb", "\na\n\n"),
            ("````\na\n```\nb\n````\nc", "\na\n\nb\n\n"),
            ("~~~\na\n```\nb\n~~~ \nc", "\na\n\nb\n \n"),
            ("```js\na\n```js\nb\n`````\nc", "js\na\njs\nb\n\n"),
            ("~~~ a`b\nc\n~~~\nd", " ab\nc\n\n"),
            ("``\na", "\n"),
        ] {
            assert_eq!(code_in(text), code, "{text}");
        }
    }

    #[test]
    fn blocks_may_stand_in_quotes_and_lists() {
        for text in
            ["> ```\n> x\n> ```\n", "- ```\n  x\n  ```\n", "> 1. ```\n>    x\n>    ```\n", "  * > ~~~\nx\n~~~\n"]
        {
            assert!(code_in(text).contains('x'), "{text}");
            assert!(!code_in(&format!("{text}y")).contains('y'), "{text}");
        }
        for text in ["-```\nx", "1```\nx", "a. ```\nx", "1234567890. ```\nx"] {
            assert!(!code_in(text).contains('x'), "{text}");
        }
    }
}
