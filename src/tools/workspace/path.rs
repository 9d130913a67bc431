//! The path of a file in a workspace, as models write it. Pure.
//!
//! It leads where its text says: it is relative, has no `..`, and no link stands on its way, which the kernel sees to.

use std::fmt;

/// Longest path, and longest name in it, in bytes.
const MAX_PATH: usize = 480;
const MAX_NAME: usize = 200;
/// Most names in a path.
pub(super) const MAX_DEPTH: usize = 16;
/// What the directory of a workspace is called where code runs, so models write it.
const MOUNT: &str = "/workspace";

/// A path that names a file, with one slash between two names and none at its ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(String);

impl FilePath {
    /// The path of this text, or what is wrong with it, for the model.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = directory(text)?;
        if path.is_empty() || text.ends_with('/') {
            return Err(format!("{} names no file.", shown(text)));
        }
        Ok(Self(path))
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory in which the file is, empty for that of the workspace, and the name of the file.
    pub(super) fn parts(&self) -> (&str, &str) {
        self.0.rsplit_once('/').unwrap_or(("", &self.0))
    }

    /// The directories on its way, the outermost first.
    pub(super) fn directories(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').map(|(at, _)| &self.0[..at])
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The path of a directory, empty for that of the workspace, or what is wrong with it.
pub(super) fn directory(text: &str) -> Result<String, String> {
    let relative = match text.strip_prefix(MOUNT) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.trim_start_matches('/'),
        _ => text,
    };
    if relative.starts_with('/') {
        return Err(format!("{} is not in the workspace: write a relative path.", shown(text)));
    }
    if relative.chars().any(char::is_control) {
        return Err(format!("{} has a character that no path may have.", shown(text)));
    }
    let names: Vec<&str> = relative.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    if names.contains(&"..") {
        return Err(format!("{} has `..`: write a path that begins at the workspace.", shown(text)));
    }
    let path = names.join("/");
    if names.len() > MAX_DEPTH || path.len() > MAX_PATH || names.iter().any(|name| name.len() > MAX_NAME) {
        return Err(format!(
            "{} is too long: a path has {MAX_PATH} bytes and {MAX_DEPTH} names at most, and a name {MAX_NAME} bytes.",
            shown(text)
        ));
    }
    Ok(path)
}

/// What a model wrote, as it is told.
fn shown(text: &str) -> String {
    let shown: String = text.chars().take(80).collect();
    format!("The path {shown:?}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_relative_and_plain() {
        for (text, path) in [
            ("a.txt", "a.txt"),
            ("./a//b/./c.txt", "a/b/c.txt"),
            ("/workspace/a", "a"),
            ("/workspace//a", "a"),
            ("workspace/a", "workspace/a"),
            ("...", "..."),
            ("dätei \u{1f600}", "dätei \u{1f600}"),
        ] {
            assert_eq!(FilePath::parse(text).unwrap().as_str(), path, "{text}");
        }
        assert_eq!(directory("/workspace").as_deref(), Ok(""));
        assert_eq!(directory("."), Ok(String::new()));
    }

    #[test]
    fn a_path_that_could_lead_elsewhere_is_refused() {
        let (deep, long) = ("a/".repeat(17) + "a", "a".repeat(201));
        for text in [
            "",
            ".",
            "/",
            "a/",
            "..",
            "../a",
            "a/../../b",
            "a/..",
            "/etc/passwd",
            "/workspaces/a",
            "//a",
            "a\0b",
            "a\nb",
            "\u{7f}",
            &deep,
            &long,
            &"a/b".repeat(200),
        ] {
            let why = FilePath::parse(text).unwrap_err();
            assert!(why.starts_with("The path ") && why.len() < 400, "{text}: {why}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leads_out(text in "[a./\\\\~ -]{0,30}|\\PC{0,40}") {
            if let Ok(path) = FilePath::parse(&text) {
                let names: Vec<&str> = path.as_str().split('/').collect();
                prop_assert!(names.iter().all(|name| !matches!(*name, "" | "." | "..")) && names.len() <= MAX_DEPTH);
                prop_assert_eq!(FilePath::parse(path.as_str()), Ok(path.clone()));
            }
        }
    }
}
