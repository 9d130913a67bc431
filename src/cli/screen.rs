//! A run on the screen: its text as it comes, and lines beside it.

use std::fmt;
use std::io::Write;

use super::story::Told;

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Text on standard output; the lines beside it, dimmed where there are colours, go where it was told.
pub(super) struct Screen {
    colours: bool,
    note: fn(&str),
    in_text: bool,
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").field("colours", &self.colours).finish_non_exhaustive()
    }
}

impl Screen {
    pub(super) fn new(colours: bool, note: fn(&str)) -> Self {
        Self { colours, note, in_text: false }
    }

    pub(super) fn show(&mut self, told: &Told) {
        match told {
            Told::Text(text) => self.write(text),
            Told::Note(line) | Told::End { line, .. } => self.note(line),
        }
    }

    fn write(&mut self, text: &str) {
        let mut out = std::io::stdout().lock();
        // A closed pipe ends the output, not the run.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        self.in_text |= !text.is_empty();
    }

    /// A line that does not belong to the text.
    pub(super) fn note(&mut self, line: &str) {
        if std::mem::take(&mut self.in_text) {
            let _ = writeln!(std::io::stdout());
        }
        let (dim, plain) = if self.colours { (DIM, PLAIN) } else { ("", "") };
        (self.note)(&format!("{dim}{line}{plain}"));
    }
}
