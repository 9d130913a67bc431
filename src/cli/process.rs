//! What every command needs of its process: its environment, its output, its runtime and its exit code.

use std::io::Write;

/// Why a command failed.
#[derive(Debug)]
pub(super) struct Failure {
    /// Empty if everything was said.
    pub(super) message: String,
    pub(super) code: u8,
}

/// The exit code of a command whose configuration is wrong: `EX_CONFIG` of sysexits.h.
const EX_CONFIG: u8 = 78;

impl Failure {
    pub(super) fn new(message: impl std::fmt::Display) -> Self {
        Self { message: message.to_string(), code: 1 }
    }

    /// A command that did its work and tells by its exit code alone what came of it.
    pub(super) fn code(code: u8) -> Self {
        Self { message: String::new(), code }
    }

    pub(super) fn config(message: impl std::fmt::Display) -> Self {
        Self { message: message.to_string(), code: EX_CONFIG }
    }

    /// The same, told to the log instead of to a person, unless the log leaves out even errors.
    pub(super) fn logged(self) -> Self {
        if !tracing::enabled!(tracing::Level::ERROR) {
            return self;
        }
        tracing::error!(why = self.message, "the server cannot serve");
        Self::code(self.code)
    }
}

/// An environment variable; the one place that reads them besides the flags' own.
pub(super) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Writes what a command answers to standard output. A reader that closed the pipe wants no more of it.
pub(super) fn say(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// The same for what ends in a line's end already, or is no text.
pub(super) fn say_bytes(bytes: &[u8]) {
    let _ = std::io::stdout().write_all(bytes);
}

/// Writes what a person should see beside the answer to standard error.
#[expect(clippy::print_stderr, reason = "what a person should see beside the answer goes to standard error")]
pub(super) fn complain(text: impl std::fmt::Display) {
    eprintln!("{text}");
}

/// Whether a stream gets colours that is a terminal or not: <https://no-color.org>.
pub(super) fn takes_colours(is_terminal: bool) -> bool {
    is_terminal && env("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// How wide a table may be: as `COLUMNS` says, or the terminal; elsewhere there is no bound.
pub(super) fn output_width() -> Option<usize> {
    let said = env("COLUMNS").and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
    said.or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
}

/// A runtime for one command.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::new)
}
