//! Removes what small models copy from their prompts line by line: calls and results in brackets, notes on the history, and
//! system messages.

use crate::guard::code::{Code, CodeBlock};
use crate::guard::json::{JsonScan, Scanned};

/// What a line begins with that goes, in lower case. What ends with a letter has none behind it.
const HEADS: [(&str, Head); 4] = [
    ("[tool call:", Head::Call),
    ("[tool result", Head::Block),
    ("[historical context:", Head::Block),
    ("[system message]", Head::Block),
];
const ARGUMENTS: &str = "arguments:";
/// Most bytes that are held of a line, its indentation among them.
const MAX_HELD: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Head {
    /// The line goes, and JSON behind it.
    Call,
    /// All goes up to the next empty line.
    Block,
}

/// Removes such lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The code of what stays.
    code: Code,
    state: State,
    /// The line so far, while it may be one that goes.
    held: String,
    /// The JSON that goes.
    json: JsonScan,
    /// The code of the block that goes: empty lines in it do not end that.
    gone: CodeBlock,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum State {
    /// At the beginning of a line, or in what may be the beginning of one that goes.
    #[default]
    LineStart,
    /// The same in the line that follows a call.
    AfterCall,
    /// In a line that stays.
    Text,
    /// In a line that goes.
    Skipped(Head),
    /// In the JSON of a call; whether the line is empty so far.
    Json { is_empty: bool },
    /// In a block that goes; whether the line is empty so far.
    Block { is_empty: bool },
}

impl Lines {
    pub(super) fn step(&mut self, c: char, out: &mut String) {
        self.state = match self.state {
            State::LineStart | State::AfterCall => return self.begin(c, out),
            State::Text => return self.say(c, out),
            State::Skipped(Head::Call) if c == '{' => self.begin_json(),
            State::Skipped(Head::Call) if c == '\n' => State::AfterCall,
            State::Skipped(Head::Block) if c == '\n' => {
                self.gone = CodeBlock::default();
                State::Block { is_empty: true }
            }
            State::Skipped(head) => State::Skipped(head),
            State::Json { is_empty: true } if c == '\n' => State::LineStart,
            State::Json { is_empty } => match self.json.step(c) {
                Scanned::More => State::Json { is_empty: is_line_empty(is_empty, c) },
                // What is no JSON ends it, and goes with the rest of its line unless it begins that.
                Scanned::Bad if c == '\n' => State::AfterCall,
                Scanned::Bad if is_empty => {
                    self.state = State::AfterCall;
                    return self.begin(c, out);
                }
                Scanned::End | Scanned::Bad => State::Skipped(Head::Call),
            },
            State::Block { is_empty: true } if c == '\n' && !self.gone.is_open() => State::LineStart,
            State::Block { is_empty } => {
                self.gone.step(c);
                State::Block { is_empty: is_line_empty(is_empty, c) }
            }
        };
    }

    pub(super) fn finish(&mut self, out: &mut String) {
        self.release(out);
    }

    /// Takes a character of a line of which is not known yet whether it stays.
    fn begin(&mut self, c: char, out: &mut String) {
        self.held.push(c);
        if self.code.is_open() || c == '\n' && self.held.trim_ascii().is_empty() || self.held.len() > MAX_HELD {
            return self.release(out);
        }
        let after_call = self.state == State::AfterCall;
        let line = self.held.trim_start().to_lowercase();
        if let Some(head) = HEADS.iter().find_map(|head| begun(&line, head)) {
            self.held.clear();
            self.state = State::Skipped(head);
            if c == '\n' {
                self.step(c, out);
            }
        } else if after_call && line == "{" {
            self.held.clear();
            self.state = self.begin_json();
        } else if after_call && line == ARGUMENTS {
            self.held.clear();
            self.state = State::Skipped(Head::Call);
        } else if !(HEADS.iter().any(|(text, _)| text.starts_with(&line)) || after_call && ARGUMENTS.starts_with(&line))
        {
            self.release(out);
        }
    }

    fn begin_json(&mut self) -> State {
        self.json = JsonScan::default();
        self.json.step('{');
        State::Json { is_empty: false }
    }

    fn release(&mut self, out: &mut String) {
        self.state = State::Text;
        for c in std::mem::take(&mut self.held).chars() {
            self.say(c, out);
        }
    }

    fn say(&mut self, c: char, out: &mut String) {
        self.code.step(c);
        out.push(c);
        self.state = if c == '\n' { State::LineStart } else { State::Text };
    }
}

/// What the line is that begins so, if it is one that goes. A word goes on with letters.
fn begun(line: &str, (text, head): &(&str, Head)) -> Option<Head> {
    let rest = line.strip_prefix(text)?;
    let ends_with_word = text.ends_with(char::is_alphabetic);
    let is_whole = !ends_with_word || rest.chars().next().is_some_and(|c| !c.is_alphabetic());
    is_whole.then_some(*head)
}

fn is_line_empty(was_empty: bool, c: char) -> bool {
    c == '\n' || (was_empty && c.is_whitespace())
}
