//! `read_file`: a text or part of it, or a picture or document.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::shared::{file, workspace};
use crate::tools::builtin::define;
use crate::tools::workspace::{Piece, Workspaces};
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec, media};

/// Most bytes of text in an answer: what is kept of a result, with some words about it.
const MAX_TEXT: usize = 48 << 10;

/// The tool.
#[derive(Debug)]
pub(super) struct ReadFile {
    spec: ToolSpec,
    workspaces: Arc<Workspaces>,
}

/// What a model gives.
#[derive(Debug, Deserialize)]
struct Arguments {
    path: String,
    from_line: Option<u64>,
    lines: Option<u64>,
    from_byte: Option<u64>,
}

impl ReadFile {
    pub(super) fn new(workspaces: Arc<Workspaces>) -> Self {
        let description = "Reads a file of the workspace: text, a picture or a PDF document. Of a long text it returns as much as fits, \
                           and says how to read on.";
        let parameters = r#"{"type":"object","properties":{"path":{"type":"string","description":"The path of the file"},"from_line":{"type":"integer","minimum":1,"description":"The first line, counted from 1"},"lines":{"type":"integer","minimum":1,"description":"How many lines at most"},"from_byte":{"type":"integer","minimum":0,"description":"In place of lines: the first byte, counted from 0, for files that are long or have long lines"}},"required":["path"],"additionalProperties":false}"#;
        Self { spec: define::spec("read_file", description, parameters), workspaces }
    }
}

#[async_trait]
impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        let arguments: Arguments = define::decode(arguments)?;
        let (workspace, path) = (workspace(&self.workspaces, context)?, file(&arguments.path)?);
        if let Some(from) = arguments.from_byte {
            return Ok(ToolAnswer::text(bytes_of(&workspace.read_piece(path, from, MAX_TEXT).await?, from)));
        }
        let bytes = workspace.read(path.clone()).await?;
        let is_whole = arguments.from_line.is_none() && arguments.lines.is_none();
        if is_whole && let Some(part) = media::part(path.as_str(), &bytes) {
            return Ok(ToolAnswer { bytes: bytes.len() as u64, parts: vec![part], ..ToolAnswer::default() });
        }
        let Some(text) = text(&bytes) else {
            return Ok(ToolAnswer::text(format!("[{:?} is no text: binary, {} bytes]", path.as_str(), bytes.len())));
        };
        let from = usize::try_from(arguments.from_line.unwrap_or(1)).unwrap_or(usize::MAX);
        let most = arguments.lines.map_or(usize::MAX, |lines| usize::try_from(lines).unwrap_or(usize::MAX));
        Ok(ToolAnswer::text(lines_of(text, from, most)))
    }
}

/// A file as text, if it is one.
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// As many lines as are asked for and fit, and where to read on.
fn lines_of(text: &str, from: usize, most: usize) -> String {
    if text.is_empty() {
        return "[The file is empty]".to_owned();
    }
    let total = text.lines().count();
    let mut start = 0;
    for line in text.split_inclusive('\n').take(from - 1) {
        start += line.len();
    }
    if from > total {
        return format!("[The file has {total} lines]");
    }
    let (mut end, mut last) = (start, from - 1);
    for line in text[start..].split_inclusive('\n').take(most) {
        if end + line.len() - start > MAX_TEXT {
            break;
        }
        end += line.len();
        last += 1;
    }
    if last < from {
        let piece = cut(&text[start..], MAX_TEXT);
        let next = start + piece.len();
        return format!("{piece}\n[Line {from} of {total} is longer: read on with `from_byte`: {next}]");
    }
    let shown = &text[start..end];
    if from == 1 && last == total {
        return shown.to_owned();
    }
    let gap = if shown.ends_with('\n') { "" } else { "\n" };
    let next = if last < total { format!(": read on with `from_line`: {}", last + 1) } else { String::new() };
    format!("{shown}{gap}[Lines {from} to {last} of {total}{next}]")
}

/// A piece of a file as text, and where to read on.
fn bytes_of(Piece { bytes, length }: &Piece, from: u64) -> String {
    if bytes.is_empty() {
        return format!("[The file has {length} bytes]");
    }
    let whole = match std::str::from_utf8(bytes) {
        // A character that the end goes through is left for the next call.
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => &bytes[..error.valid_up_to()],
        Ok(_) | Err(_) => &bytes[..],
    };
    let end = from + whole.len() as u64;
    let next = if end < *length { format!(": read on with `from_byte`: {end}") } else { String::new() };
    if whole.contains(&0) {
        return format!("[Bytes {from} to {end} of {length} are no text{next}]");
    }
    format!("{}\n[Bytes {from} to {end} of {length}{next}]", String::from_utf8_lossy(whole))
}

/// The beginning of a text, with whole characters.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_far_as_they_fit() {
        assert_eq!(lines_of("a\nb\n", 1, usize::MAX), "a\nb\n");
        assert_eq!(lines_of("a\nb\nc", 2, 1), "b\n[Lines 2 to 2 of 3: read on with `from_line`: 3]");
        assert_eq!(lines_of("a\nb\nc", 3, 9), "c\n[Lines 3 to 3 of 3]");
        assert_eq!(lines_of("a\nb", 3, 1), "[The file has 2 lines]");
        assert_eq!(lines_of("", 1, 1), "[The file is empty]");
        let long = "é".repeat(40_000);
        let text = format!("a\n{long}\nb");
        let first = lines_of(&text, 1, usize::MAX);
        assert!(first.ends_with("[Lines 1 to 1 of 3: read on with `from_line`: 2]"), "{first}");
        let second = lines_of(&text, 2, usize::MAX);
        assert!(
            second.ends_with(&format!("[Line 2 of 3 is longer: read on with `from_byte`: {}]", MAX_TEXT + 2)),
            "{second}"
        );
    }

    #[test]
    fn bytes_are_read_by_whole_characters() {
        let piece = |bytes: &[u8]| Piece { bytes: bytes.to_vec(), length: 9 };
        assert_eq!(bytes_of(&piece(b"caf\xc3"), 2), "caf\n[Bytes 2 to 5 of 9: read on with `from_byte`: 5]");
        assert_eq!(bytes_of(&piece(b"ab"), 7), "ab\n[Bytes 7 to 9 of 9]");
        assert_eq!(bytes_of(&piece(b""), 70), "[The file has 9 bytes]");
        assert_eq!(bytes_of(&piece(b"\0\0"), 7), "[Bytes 7 to 9 of 9 are no text]");
        assert!(bytes_of(&piece(b"\xc3"), 8).ends_with("[Bytes 8 to 9 of 9]"));
    }
}
