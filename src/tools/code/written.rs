//! What a program did to its files: compared with those that it found. Pure.

use std::collections::{BTreeMap, BTreeSet};

use xxhash_rust::xxh3::xxh3_128;

use super::program::Ran;
use crate::tools::workspace::{Changes, FilePath};

/// The files that a program found, by their paths: what each held, as a number, so that no file is kept twice. That a program makes
/// two files of one number harms itself alone.
#[derive(Debug, Default)]
pub struct FoundFiles {
    held: BTreeMap<String, u128>,
    /// The paths of those that are of the workspace.
    kept: BTreeSet<String>,
}

/// What a program wrote and deleted.
#[derive(Debug, Default)]
pub struct Written<'a> {
    /// The files that are new, or hold something else.
    pub files: Vec<(&'a String, &'a Vec<u8>)>,
    /// The files of the workspace that are gone.
    pub deleted: Vec<&'a str>,
}

impl FoundFiles {
    /// A program finds the files of the workspace, and those that the call gives in their places.
    pub fn of(workspace: &BTreeMap<String, Vec<u8>>, given: &BTreeMap<String, Vec<u8>>) -> Self {
        let held = workspace.iter().chain(given).map(|(path, bytes)| (path.clone(), xxh3_128(bytes))).collect();
        Self { held, kept: workspace.keys().cloned().collect() }
    }

    /// What a program did that has ended so.
    pub fn compare<'a>(&'a self, ran: &'a Ran) -> Written<'a> {
        let is_new = |(path, bytes): &(&String, &Vec<u8>)| self.held.get(*path) != Some(&xxh3_128(bytes));
        let deleted = self.kept.iter().filter(|path| !ran.files.contains_key(*path)).map(String::as_str);
        Written { files: ran.files.iter().filter(is_new).collect(), deleted: deleted.collect() }
    }
}

impl Written<'_> {
    /// The same for a workspace, or why it cannot be kept.
    pub fn changes(&self) -> Result<Changes, String> {
        let writes = self.files.iter().map(|(path, bytes)| Ok((parse(path)?, (*bytes).clone())));
        Ok(Changes {
            writes: writes.collect::<Result<_, String>>()?,
            deletes: self.deleted.iter().map(|path| parse(path)).collect::<Result<_, _>>()?,
        })
    }
}

/// A path of a program, which may have names that no file of a workspace has.
fn parse(path: &str) -> Result<FilePath, String> {
    match FilePath::parse(path) {
        Ok(parsed) if parsed.as_str() == path => Ok(parsed),
        Ok(_) => Err(format!("The path {path:?} is none of a workspace.")),
        Err(why) => Err(why),
    }
}
