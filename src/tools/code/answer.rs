//! What the model is told of a run: what it printed, how it ended, and the files that it wrote.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::program::{Bounds, Ending, Ran};
use crate::tools::ToolAnswer;
use crate::types::conversation::{Part, PartKind, Source};
use crate::types::tool::Measurement;

/// Most files that are part of an answer; of others it has the names.
const MAX_FILES: usize = 8;
/// Most names of files.
const MAX_NAMES: usize = 50;
/// Longest file of text, and longest picture or document, that is part of an answer.
const MAX_TEXT: usize = 4 << 10;
const MAX_MEDIA: usize = 3 << 20;

/// The answer; `before` are the files that the run found.
pub fn tell(ran: &Ran, bounds: &Bounds, before: &BTreeMap<String, Vec<u8>>) -> ToolAnswer {
    let written: Vec<_> = ran.files.iter().filter(|(path, bytes)| before.get(*path) != Some(*bytes)).collect();
    let mut text = String::new();
    push_output(&mut text, "", &ran.output);
    push_output(&mut text, "[errors]\n", &ran.errors);
    let is_error = ran.ending != Ending::Exit(0);
    if is_error || text.is_empty() {
        push_line(&mut text, &ending(&ran.ending, bounds));
    }
    if !written.is_empty() {
        push_line(&mut text, &names(&written));
    }
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

fn names(written: &[(&String, &Vec<u8>)]) -> String {
    let mut line = "[Files written:".to_owned();
    for (index, (path, bytes)) in written.iter().take(MAX_NAMES).enumerate() {
        let comma = if index > 0 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(line, "{comma} {path} ({} bytes)", bytes.len());
    }
    if written.len() > MAX_NAMES {
        let _ = write!(line, ", and {} more", written.len() - MAX_NAMES);
    }
    line + "]"
}

/// A file as part of the answer, if models and clients can do something with it.
fn file(path: &str, bytes: &[u8]) -> Option<Part> {
    let encoded = |media_type: &str| Source::Base64 { media_type: media_type.to_owned(), data: STANDARD.encode(bytes) };
    let ending = path.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).unwrap_or_default();
    let media_type = match ending.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        _ if bytes.len() <= MAX_TEXT && std::str::from_utf8(bytes).is_ok() => "text/plain",
        _ => return None,
    };
    if bytes.is_empty() || bytes.len() > MAX_MEDIA {
        return None;
    }
    if media_type.starts_with("image/") {
        return Some(PartKind::Image { source: encoded(media_type), detail: None }.into());
    }
    Some(PartKind::File { source: encoded(media_type), name: Some(path.to_owned()) }.into())
}
