//! Tool calls that a model writes as text, as small models do.
//!
//! ```text
//! {"name": "add", "arguments": {"a": 1}}             at the beginning of a line,
//! ```json … ```   or   <tool_call> … </tool_call>    around one or several of them,
//! [{…}, {…}]                                         or several as an array
//! ```
//!
//! Text streams through [`TextToolCalls`] and loses the calls on the way. Text is held back only while
//! it can still become a call, and what is shown does not depend on how the stream was cut: each
//! character is judged by those before it alone. What is not a call of an offered tool is text; what is
//! quoted in a code block or in other JSON is text too, since it was not meant to be run.
//!
//! [`alone`] takes a text for calls only if it is nothing else; `dialects` has the forms of single vendors.

pub mod alone;
mod call;
mod dialects;
mod python;
mod reading;
mod xml;

use crate::guard::code::CodeBlock;
use crate::guard::json::{JsonScan, Scanned};
use crate::llm::ModelCall;

/// How much text is held back at most, in bytes.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// What may stand before calls. All that begin with the same character end alike.
const OPENINGS: [&str; 6] = ["```", "```json", "```tool", "```tool_call", "```tool_calls", "<tool_call>"];

/// Separates the calls from a stream of text.
#[derive(Debug)]
pub struct TextToolCalls<F> {
    is_call: F,
    state: State,
    /// What may become a call, from its first character.
    held: String,
    /// White space that goes if a call follows.
    space: String,
    /// Whether the last thing that was neither shown nor held is a call, perhaps with space after it.
    after_call: bool,
    shown_anything: bool,
    /// What was shown.
    block: CodeBlock,
    calls: Vec<ModelCall>,
}

#[derive(Debug)]
enum State {
    /// Nothing is held.
    Text,
    /// What is held is the beginning of one of [`OPENINGS`].
    Opening,
    /// What is held ends between values.
    Between(Candidate),
    /// What is held ends within a value that begins at byte `from`.
    Value { candidate: Candidate, scan: JsonScan, from: usize },
    /// What is held ends within the closing, of which `rest` is still to come.
    Closing { candidate: Candidate, rest: &'static str },
    /// Shows the rest of a JSON value that is no call.
    Foreign(JsonScan),
}

/// What is known of the text that is held.
#[derive(Debug, Default)]
struct Candidate {
    /// What ends it; `None` for a bare value, which ends itself.
    closing: Option<&'static str>,
    /// The calls in the values so far; `None` once one of them is something else.
    calls: Option<Vec<ModelCall>>,
}

impl<F: Fn(&str, &str) -> bool> TextToolCalls<F> {
    /// At the beginning of a text. `is_call` says whether a name and arguments, a JSON object, are a
    /// call of an offered tool.
    pub fn new(is_call: F) -> Self {
        Self {
            is_call,
            state: State::Text,
            held: String::new(),
            space: String::new(),
            after_call: false,
            shown_anything: false,
            block: CodeBlock::default(),
            calls: Vec::new(),
        }
    }

    /// Takes the next piece of text and returns what may be shown now.
    pub fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            self.step(c, &mut out);
        }
        out
    }

    /// Ends the text: what is left to show, and the calls in their order. A closing may be missing,
    /// since models stop at it.
    pub fn finish(&mut self) -> (String, Vec<ModelCall>) {
        let mut out = String::new();
        match std::mem::replace(&mut self.state, State::Text) {
            State::Between(candidate) | State::Closing { candidate, .. } => self.conclude(candidate, &mut out),
            State::Text | State::Opening | State::Value { .. } | State::Foreign(_) => {}
        }
        if !self.held.is_empty() {
            self.release(&mut out);
        }
        if !self.after_call {
            self.show_space(&mut out);
        }
        (out, std::mem::take(&mut self.calls))
    }

    fn step(&mut self, c: char, out: &mut String) {
        self.state = match std::mem::replace(&mut self.state, State::Text) {
            State::Text => self.text(c, out),
            State::Opening => self.opening(c, out),
            State::Between(candidate) => self.between(candidate, c, out),
            State::Value { candidate, scan, from } => self.value(candidate, scan, from, c, out),
            State::Closing { candidate, rest } => self.closing(candidate, rest, c, out),
            State::Foreign(scan) => self.foreign(scan, c, out),
        };
        if self.held.len() > MAX_HELD_BYTES {
            self.release(out);
            self.state = match std::mem::replace(&mut self.state, State::Text) {
                State::Value { scan, .. } => State::Foreign(scan),
                State::Text | State::Opening | State::Between(_) | State::Closing { .. } | State::Foreign(_) => {
                    State::Text
                }
            };
        }
    }

    fn text(&mut self, c: char, out: &mut String) -> State {
        if c.is_whitespace() {
            if !self.after_call {
                self.space.push(c);
            }
            if self.space.len() > MAX_HELD_BYTES {
                self.show_space(out);
            }
            return State::Text;
        }
        let begins_line = self.after_call || self.block.is_line_start() || self.space.contains('\n');
        if !begins_line || !matches!(c, '{' | '[' | '`' | '<') || self.is_in_block() {
            self.show_space(out);
            self.show(c, out);
            return State::Text;
        }
        if matches!(c, '`' | '<') {
            self.held.push(c);
            return State::Opening;
        }
        self.value_begins(Candidate { closing: None, calls: Some(Vec::new()) }, c, out)
    }

    /// Whether what follows the space is in a block of code.
    fn is_in_block(&self) -> bool {
        let mut block = self.block;
        self.space.chars().for_each(|c| block.step(c));
        block.is_open()
    }

    fn opening(&mut self, c: char, out: &mut String) -> State {
        let (complete, longer) =
            (OPENINGS.contains(&self.held.as_str()), self.held.clone() + c.encode_utf8(&mut [0; 4]));
        if OPENINGS.iter().any(|opening| opening.starts_with(&longer)) {
            self.held = longer;
            return State::Opening;
        }
        if !complete {
            return self.reject(c, out);
        }
        let closing = if self.held.starts_with('`') { "```" } else { "</tool_call>" };
        self.between(Candidate { closing: Some(closing), calls: Some(Vec::new()) }, c, out)
    }

    fn between(&mut self, candidate: Candidate, c: char, out: &mut String) -> State {
        let any = candidate.calls.as_ref().is_none_or(|calls| !calls.is_empty());
        match candidate.closing.and_then(|closing| closing.strip_prefix(c)) {
            Some(rest) if any => {
                self.held.push(c);
                State::Closing { candidate, rest }
            }
            _ if c.is_whitespace() => {
                self.held.push(c);
                State::Between(candidate)
            }
            _ if matches!(c, '{' | '[') => self.value_begins(candidate, c, out),
            _ => self.reject(c, out),
        }
    }

    fn value_begins(&mut self, candidate: Candidate, c: char, out: &mut String) -> State {
        let from = self.held.len();
        self.value(candidate, JsonScan::default(), from, c, out)
    }

    fn value(&mut self, mut candidate: Candidate, mut scan: JsonScan, from: usize, c: char, out: &mut String) -> State {
        match scan.step(c) {
            Scanned::Bad => self.reject(c, out),
            Scanned::More if scan.may_be_call() => {
                self.held.push(c);
                State::Value { candidate, scan, from }
            }
            Scanned::More => {
                self.held.push(c);
                self.release(out);
                State::Foreign(scan)
            }
            Scanned::End => {
                self.held.push(c);
                let found = call::decode(&self.held[from..]);
                let found = found.filter(|calls| calls.iter().all(|call| (self.is_call)(&call.name, &call.arguments)));
                candidate.calls = candidate.calls.zip(found).map(|(calls, found)| [calls, found].concat());
                if candidate.closing.is_some() {
                    return State::Between(candidate);
                }
                self.conclude(candidate, out);
                State::Text
            }
        }
    }

    fn closing(&mut self, candidate: Candidate, rest: &'static str, c: char, out: &mut String) -> State {
        let Some(rest) = rest.strip_prefix(c) else {
            return self.reject(c, out);
        };
        self.held.push(c);
        if !rest.is_empty() {
            return State::Closing { candidate, rest };
        }
        self.conclude(candidate, out);
        State::Text
    }

    fn foreign(&mut self, mut scan: JsonScan, c: char, out: &mut String) -> State {
        match scan.step(c) {
            Scanned::Bad => self.text(c, out),
            Scanned::More => {
                self.show_space(out);
                self.show(c, out);
                State::Foreign(scan)
            }
            Scanned::End => {
                self.show_space(out);
                self.show(c, out);
                State::Text
            }
        }
    }

    /// What is held is whole: it is calls, or text.
    fn conclude(&mut self, candidate: Candidate, out: &mut String) {
        match candidate.calls {
            Some(mut calls) if !calls.is_empty() => {
                self.calls.append(&mut calls);
                self.held.clear();
                self.after_call = true;
            }
            Some(_) | None => self.release(out),
        }
    }

    /// What is held is text, and so far `c` is too.
    fn reject(&mut self, c: char, out: &mut String) -> State {
        self.release(out);
        self.text(c, out)
    }

    /// Shows what is held, but for the space at its end, which goes if a call follows.
    fn release(&mut self, out: &mut String) {
        self.show_space(out);
        let mut held = std::mem::take(&mut self.held);
        self.space = held.split_off(held.trim_end().len());
        held.chars().for_each(|c| self.show(c, out));
    }

    /// Shows the space before what is shown next. Where a call stood, what was before it separates
    /// the text before from the text after.
    fn show_space(&mut self, out: &mut String) {
        let space = std::mem::take(&mut self.space);
        if !self.after_call || self.shown_anything {
            space.chars().for_each(|c| self.show(c, out));
        }
        if std::mem::take(&mut self.after_call) {
            self.block.begin_line();
        }
    }

    fn show(&mut self, c: char, out: &mut String) {
        self.block.step(c);
        self.shown_anything = true;
        out.push(c);
    }
}

#[cfg(test)]
mod tests;
