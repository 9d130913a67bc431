//! Changes files of a workspace: all is written beside them, and then each takes its place at once. So a reader sees a file as it was
//! or as it is, and what a crash leaves beside the files is removed by the next change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::beneath::open_directory;
use super::fault::Fault;
use super::path::FilePath;
use super::place::{Locked, make_directory};
use super::scan::{Found, scan};
use super::thread::Stop;
use crate::config::WorkspaceConfig;

/// What is to change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Files that are to have this content.
    pub writes: BTreeMap<FilePath, Vec<u8>>,
    /// Files that are to be gone.
    pub deletes: BTreeSet<FilePath>,
}

/// What a workspace holds after a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// How many files.
    pub files: usize,
    /// How many bytes they have together.
    pub bytes: u64,
    /// How many files the change found that were to be gone.
    pub deleted: usize,
}

impl Changes {
    /// Whether nothing is to change.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.deletes.is_empty()
    }

    /// What a workspace would hold, or why that cannot be. Pure.
    fn judge(&self, found: &Found, bounds: &WorkspaceConfig) -> Result<Used, String> {
        let mut after: BTreeMap<&str, u64> = found.files.iter().map(|(path, bytes)| (path.as_str(), *bytes)).collect();
        let below = |path: &FilePath| format!("{}/", path.as_str());
        let has_below = |after: &BTreeMap<&str, u64>, below: &str| {
            after.range(below..).next().is_some_and(|(other, _)| other.starts_with(below))
        };
        if let Some(path) = self.deletes.iter().find(|path| has_below(&after, &below(path))) {
            return Err(format!("{:?} is a directory.", path.as_str()));
        }
        let deleted = self.deletes.iter().filter(|path| after.remove(path.as_str()).is_some()).count();
        for (path, bytes) in &self.writes {
            let length = bytes.len() as u64;
            if length > bounds.max_file {
                let path = path.as_str();
                return Err(format!("{path:?} would have {length} bytes, and a file has {} at most.", bounds.max_file));
            }
            after.insert(path.as_str(), length);
        }
        for path in self.writes.keys() {
            if let Some(file) = path.directories().find(|directory| after.contains_key(directory)) {
                return Err(format!("{file:?} is a file, so nothing can be below it."));
            }
            if has_below(&after, &below(path)) {
                return Err(format!("{:?} is a directory.", path.as_str()));
            }
        }
        let used = Used { files: after.len(), bytes: after.values().sum(), deleted };
        // What is full already, as after the bounds were lowered, can be made smaller.
        if used.bytes > bounds.quota && used.bytes > found.bytes {
            return Err(format!("The workspace would have {} bytes, and it may have {}.", used.bytes, bounds.quota));
        }
        if used.files > bounds.max_files as usize && used.files > found.files.len() {
            return Err(format!(
                "The workspace would have {} files, and it may have {}.",
                used.files, bounds.max_files
            ));
        }
        Ok(used)
    }
}

/// How many files and directories are looked at in a workspace: more than there can be, unless somebody else put them there.
pub(super) fn most_entries(bounds: &WorkspaceConfig) -> usize {
    bounds.max_files as usize * 4 + 1_000
}

/// Makes these changes.
pub(super) fn apply(locked: &Locked, changes: &Changes, bounds: &WorkspaceConfig, stop: &Stop) -> Result<Used, Fault> {
    let files = locked.files()?;
    let found = scan(&files, most_entries(bounds))?;
    let used = changes.judge(&found, bounds).map_err(|why| Fault::refused(format!("{why} Nothing changed.")))?;
    let new = locked.new_files()?;
    for (number, bytes) in changes.writes.values().enumerate() {
        stop.check()?;
        write(&new, &number.to_string(), bytes)?;
    }
    stop.check()?;
    locked.note_change()?;
    // From here on all is done, whether or not somebody waits for it.
    let mut has_changed = false;
    let failed =
        |has_changed, what, errno| if has_changed { Fault::Half(what, errno) } else { Fault::Broken(what, errno) };
    for path in &changes.deletes {
        let changed = delete(&files, path).map_err(|errno| failed(has_changed, "deleting a file", errno))?;
        has_changed |= changed.is_some();
        keep(changed)?;
    }
    for (number, path) in changes.writes.keys().enumerate() {
        let changed = put(&new, &number.to_string(), &files, path);
        let changed = changed.map_err(|errno| failed(has_changed, "putting a file in its place", errno))?;
        has_changed = true;
        keep(Some(changed))?;
    }
    Ok(used)
}

/// Has the disk keep what changed in a directory.
fn keep(changed: Option<OwnedFd>) -> Result<(), Fault> {
    let kept = changed.map_or(Ok(()), fsync);
    kept.map_err(|errno| Fault::Half("keeping a change of a workspace", errno))
}

/// Writes a new file, and has the disk keep it.
fn write(new: &OwnedFd, name: &str, bytes: &[u8]) -> Result<(), Fault> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = Fault::while_doing("writing a file");
    let mut file: File = openat(new, name, flags, Mode::RUSR | Mode::WUSR).map_err(&failed)?.into();
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    written.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
}

/// Puts a new file where it belongs, in the place of what is there; in which directory that is.
fn put(new: &OwnedFd, name: &str, files: &OwnedFd, path: &FilePath) -> Result<OwnedFd, Errno> {
    let mut above: Option<OwnedFd> = None;
    for directory in path.directories() {
        let name = directory.rsplit_once('/').map_or(directory, |(_, name)| name);
        let parent = above.as_ref().unwrap_or(files);
        let (directory, made) = make_directory(parent, name)?;
        if made {
            fsync(parent)?;
        }
        above = Some(directory);
    }
    let directory = above.map_or_else(|| open_directory(files, ""), Ok)?;
    renameat(new, name, &directory, path.parts().1)?;
    Ok(directory)
}

/// Deletes a file, and the directories that are empty without it. The directory that changed; none if there is no such file.
fn delete(files: &OwnedFd, path: &FilePath) -> Result<Option<OwnedFd>, Errno> {
    let (mut directory, name) = path.parts();
    let mut changed = match open_directory(files, directory) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        opened => opened?,
    };
    match unlinkat(&changed, name, AtFlags::empty()) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    while !directory.is_empty() {
        let (parent, name) = directory.rsplit_once('/').unwrap_or(("", directory));
        let Ok(above) = open_directory(files, parent) else { break };
        // It is not empty, or something else has its place.
        if unlinkat(&above, name, AtFlags::REMOVEDIR).is_err() {
            break;
        }
        (directory, changed) = (parent, above);
    }
    Ok(Some(changed))
}
