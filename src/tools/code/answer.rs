//! What the model is told of a run: what it printed, how it ended, and the files that it wrote.

use std::fmt::Write;

use super::program::{Bounds, Ending, Ran};
use super::written::Written;
use crate::tools::{ToolAnswer, media};
use crate::types::conversation::Part;
use crate::types::tool::Measurement;

/// Most files that are part of an answer; of others it has the names.
const MAX_FILES: usize = 8;
/// Most names of files.
const MAX_NAMES: usize = 50;
/// Longest file of text that is part of an answer.
const MAX_TEXT: usize = 4 << 10;

/// The answer; `kept` says what became of the workspace, where there is one.
pub fn tell(ran: &Ran, bounds: &Bounds, written: &Written<'_>, kept: Option<&str>) -> ToolAnswer {
    let Written { files: written, deleted } = written;
    let mut text = String::new();
    push_output(&mut text, "", &ran.output);
    push_output(&mut text, "[errors]\n", &ran.errors);
    let is_error = ran.ending != Ending::Exit(0);
    if is_error || text.is_empty() {
        push_line(&mut text, &ending(&ran.ending, bounds));
    }
    if !written.is_empty() {
        let named = written.iter().map(|(path, bytes)| format!("{path} ({} bytes)", bytes.len()));
        push_line(&mut text, &names("Files written", named));
    }
    if !deleted.is_empty() {
        push_line(&mut text, &names("Files deleted", deleted.iter().map(|path| (*path).to_owned())));
    }
    push_line(&mut text, kept.unwrap_or_default());
    let files = written.iter().filter_map(|(path, bytes)| file(path, bytes)).take(MAX_FILES);
    let parts: Vec<Part> = [Part::text(text)].into_iter().chain(files).collect();
    let bytes = ran.output.0.len() + ran.errors.0.len() + written.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    let measured = |name: &str, value, unit: Option<&str>| Measurement {
        name: name.to_owned(),
        value,
        unit: unit.map(str::to_owned),
    };
    let mut measurements = vec![measured("run_time", ran.took.as_secs_f64(), Some("s"))];
    if let Ending::Exit(code) = ran.ending {
        measurements.push(measured("exit_code", f64::from(code), None));
    }
    ToolAnswer { parts, is_error, bytes: bytes as u64, measurements, ..ToolAnswer::default() }
}

fn push_output(text: &mut String, title: &str, (output, left_out): &(String, u64)) {
    if output.is_empty() {
        return;
    }
    push_line(text, title.trim_end());
    text.push_str(output);
    if *left_out > 0 {
        push_line(text, &format!("[… {left_out} more bytes were left out]"));
    }
}

fn push_line(text: &mut String, line: &str) {
    if line.is_empty() {
        return;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
}

fn ending(ending: &Ending, bounds: &Bounds) -> String {
    match ending {
        Ending::Exit(0) => "[The code printed nothing, and ended with exit code 0]".to_owned(),
        Ending::Exit(code) => format!("[The code ended with exit code {code}]"),
        Ending::OutOfTime => format!("[The code was stopped after {:.1} s: its time is up]", bounds.time.as_secs_f64()),
        Ending::Stopped => "[The code was stopped]".to_owned(),
        Ending::Trapped(why) => format!("[The code broke off: {why}]"),
    }
}

fn names(title: &str, names: impl ExactSizeIterator<Item = String>) -> String {
    let (mut line, more) = (format!("[{title}:"), names.len().saturating_sub(MAX_NAMES));
    for (index, name) in names.take(MAX_NAMES).enumerate() {
        let comma = if index > 0 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(line, "{comma} {name}");
    }
    if more > 0 {
        let _ = write!(line, ", and {more} more");
    }
    line + "]"
}

/// A file as part of the answer, if models and clients can do something with it.
fn file(path: &str, bytes: &[u8]) -> Option<Part> {
    let is_text = !bytes.is_empty() && bytes.len() <= MAX_TEXT && std::str::from_utf8(bytes).is_ok();
    media::part(path, bytes).or_else(|| is_text.then(|| media::file("text/plain", path, bytes)))
}
