//! Where `loopgate tools call` saves the pictures, sounds and files of an answer.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::types::conversation::{Part, PartKind, Source};

/// Why nothing can be saved there, before the tool is called: a call may have effects.
pub(super) fn refusal(path: &Path) -> Option<String> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if path.exists() {
        return Some(format!(
            "{} is there already; nothing is overwritten, and the tool was not called",
            path.display()
        ));
    }
    let missing = directory.filter(|directory| !directory.is_dir())?;
    Some(format!("there is no directory {}; the tool was not called", missing.display()))
}

/// Saves the bytes that parts hold: the first at this path, the others beside it. Returns where each is, in their order.
pub(super) fn save(path: &Path, parts: &[Part]) -> Result<Vec<PathBuf>, String> {
    let mut saved = Vec::new();
    for data in parts.iter().filter_map(held) {
        let place = numbered(path, saved.len() + 1);
        let bytes = STANDARD.decode(data).map_err(|error| format!("a part of the answer is no base64: {error}"))?;
        let written = OpenOptions::new().write(true).create_new(true).open(&place);
        written
            .and_then(|mut file| file.write_all(&bytes))
            .map_err(|error| format!("{} cannot be written: {error}", place.display()))?;
        saved.push(place);
    }
    Ok(saved)
}

/// The bytes that a part holds, in base64.
fn held(part: &Part) -> Option<&str> {
    match &part.kind {
        PartKind::Image { source: Source::Base64 { data, .. }, .. }
        | PartKind::Audio { source: Source::Base64 { data, .. } }
        | PartKind::File { source: Source::Base64 { data, .. }, .. } => Some(data),
        PartKind::Image { .. }
        | PartKind::Audio { .. }
        | PartKind::File { .. }
        | PartKind::Text(_)
        | PartKind::Refusal(_)
        | PartKind::Thinking(_)
        | PartKind::Link(_)
        | PartKind::ToolCall(_)
        | PartKind::ToolResult(_)
        | PartKind::Unknown { .. } => None,
    }
}

/// `picture.png`, `picture-2.png` …
fn numbered(path: &Path, number: usize) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}-{number}.{}", extension.to_string_lossy()),
        None => format!("{stem}-{number}"),
    };
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(data: &str) -> Part {
        let source = Source::Base64 { media_type: "image/png".to_owned(), data: data.to_owned() };
        PartKind::Image { source, detail: None }.into()
    }

    #[test]
    fn each_part_has_a_file_and_nothing_is_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.png");
        assert_eq!(refusal(&path), None);
        let parts = [Part::text("two pictures"), picture("aGk="), picture("aG8=")];
        let saved = save(&path, &parts).unwrap();
        assert_eq!(saved, [path.clone(), directory.path().join("a-2.png")]);
        let found: Vec<String> = saved.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        assert_eq!(found, ["hi", "ho"]);
        assert!(refusal(&path).unwrap().contains("is there already"));
        assert!(refusal(&directory.path().join("none/a.png")).unwrap().contains("there is no directory"));
        assert!(save(&path, &parts).unwrap_err().contains("cannot be written"));
    }
}
