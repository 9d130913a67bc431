//! Removes a directory with all that is in it, and nothing that a link in it leads to.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, statat, unlinkat};
use rustix::io::Errno;

use super::beneath::{if_there, open_directory};

/// How deep a tree may be that is removed: more than a workspace can be.
const MAX_DEPTH: usize = 64;
/// How often a directory is emptied that something was put into meanwhile.
const TRIES: usize = 16;

/// Removes what is there and all below it. What is not there is no error.
pub(super) fn remove_tree(parent: impl AsFd, name: &str) -> Result<(), Errno> {
    remove_at(parent, name, 0)
}

fn remove_at(parent: impl AsFd, name: &str, depth: usize) -> Result<(), Errno> {
    // A link is removed, and not what it leads to.
    match unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // Systems differ in what they say of a directory.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    if depth > MAX_DEPTH {
        return Err(Errno::NAMETOOLONG);
    }
    for _ in 0..TRIES {
        let Some(directory) = if_there(open_directory(&parent, name))? else { return Ok(()) };
        // All are named before one is removed: not every system lists a directory well that changes meanwhile.
        let entries = Dir::read_from(&directory)?.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
        for entry in entries.collect::<Result<Vec<_>, _>>()? {
            match entry.to_str() {
                Ok("." | "..") => {}
                Ok(below) => remove_at(&directory, below, depth + 1)?,
                Err(_) => remove_unreadable(&directory, &entry)?,
            }
        }
        match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // Whoever had it open before it got its new name has put something there.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::NOTEMPTY)
}

/// Removes a file whose name is no text, or an empty directory.
fn remove_unreadable(directory: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    unlinkat(directory, name, if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() })
}
