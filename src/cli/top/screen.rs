//! The terminal on which everything is drawn anew each second.
//!
//! A library would bring more than is needed: the cursor's way to the first line, and the end of each line cleared, are the
//! same few characters on every terminal that is in use. No key is read, hence no mode is changed; Ctrl-C ends.

use std::fmt::Write as _;
use std::io::{IsTerminal, Stdout, Write, stdout};

use terminal_size::{Height, Width, terminal_size_of};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::super::process::{env, takes_colours};
use super::display::{Display, Look, Seen};

/// Another screen than that of the shell, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const FIRST_LINE: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The terminal, which gets its own screen back when this is dropped.
#[derive(Debug)]
pub(super) struct Screen {
    output: Stdout,
    colours: bool,
    interrupt: Signal,
    terminate: Signal,
}

/// Whether everything can be drawn on standard output again and again.
pub(super) fn is_there() -> bool {
    stdout().is_terminal() && env("TERM").is_none_or(|terminal| terminal != "dumb")
}

impl Screen {
    pub(super) fn enter() -> std::io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut screen = Self { output: stdout(), colours: takes_colours(true), interrupt, terminate };
        screen.write(ENTER);
        Ok(screen)
    }

    /// Waits for Ctrl-C or SIGTERM.
    pub(super) async fn interrupted(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    pub(super) fn draw(&mut self, seen: &Seen<'_>) {
        let size = terminal_size_of(&self.output).filter(|(Width(columns), Height(rows))| *columns > 0 && *rows > 0);
        let (columns, rows) = size.map_or((80, 24), |(Width(columns), Height(rows))| (columns, rows));
        let display = Display { columns: Some(columns.into()), rows: Some(rows.into()) };
        let mut frame = FIRST_LINE.to_owned();
        for (index, line) in display.lines(seen).iter().enumerate() {
            // The last line is not ended, as that would move all of them.
            let begin = if index == 0 { "" } else { "\r\n" };
            let (colour, plain) = if self.colours { looks(line.look) } else { ("", "") };
            write!(frame, "{begin}{CLEAR_LINE}{colour}{}{plain}", line.text).expect("a string takes it");
        }
        frame.push_str(CLEAR_BELOW);
        self.write(&frame);
    }

    /// A terminal that is gone ends the command by a signal.
    fn write(&mut self, text: &str) {
        let _ = self.output.write_all(text.as_bytes()).and_then(|()| self.output.flush());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.write(LEAVE);
    }
}

fn looks(look: Look) -> (&'static str, &'static str) {
    match look {
        Look::Plain => ("", ""),
        Look::Title => ("\x1b[1m", "\x1b[0m"),
        Look::Bad => ("\x1b[31m", "\x1b[0m"),
        Look::Odd => ("\x1b[33m", "\x1b[0m"),
    }
}
