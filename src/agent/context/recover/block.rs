//! Follows the fenced code blocks of Markdown: text in them is quoted.

/// Where a text stands. Blocks are fenced by three or more backticks at the beginning of a line and
/// end with at least as many.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum CodeBlock {
    /// In no block.
    #[default]
    Outside,
    /// After backticks at the beginning of a line.
    Ticks(usize),
    /// In the rest of the line that opens a block.
    Info(usize),
    /// In a block that so many backticks opened.
    Inside(usize),
    /// In such a block, after `seen` backticks at the beginning of a line.
    Closing { opened: usize, seen: usize },
}

impl CodeBlock {
    /// Whether the next line is in a block.
    pub(super) fn is_open(self) -> bool {
        match self {
            Self::Outside => false,
            Self::Ticks(ticks) => ticks >= 3,
            Self::Info(_) | Self::Inside(_) | Self::Closing { .. } => true,
        }
    }

    /// Takes the next character. `line_start` says whether only white space came before it.
    pub(super) fn step(&mut self, c: char, line_start: bool) {
        *self = match (*self, c) {
            (Self::Outside, '`') if line_start => Self::Ticks(1),
            // Backticks further on in the line that opens a block make it code within that line.
            (Self::Outside, _) | (Self::Info(_), '`') => Self::Outside,
            (Self::Ticks(ticks), '`') => Self::Ticks(ticks + 1),
            (Self::Ticks(ticks), _) if ticks < 3 => Self::Outside,
            (Self::Ticks(ticks) | Self::Info(ticks), '\n') => Self::Inside(ticks),
            (Self::Ticks(ticks) | Self::Info(ticks), _) => Self::Info(ticks),
            (Self::Inside(opened), '`') if line_start => Self::Closing { opened, seen: 1 },
            (Self::Closing { opened, seen }, '`') if seen + 1 >= opened => Self::Outside,
            (Self::Closing { opened, seen }, '`') => Self::Closing { opened, seen: seen + 1 },
            (Self::Inside(opened) | Self::Closing { opened, .. }, _) => Self::Inside(opened),
        };
    }
}
