//! Which files a workspace has.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Stat, statat};
use rustix::io::Errno;

use super::beneath::open_directory;
use super::fault::Fault;
use super::path::{FilePath, MAX_DEPTH};

/// What a workspace has.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Its files by their paths, and how many bytes each has.
    pub(super) files: BTreeMap<String, u64>,
    /// How many bytes these have together.
    pub(super) bytes: u64,
    /// How many other things there are that no tool made: links, devices, files that have a second name, names that no path has.
    pub(super) others: usize,
}

/// Whether something is a file that has no second name anywhere.
pub(super) fn is_plain_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink <= 1
}

/// How many bytes a file has.
pub(super) fn length(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Looks at everything below a directory; an error if there is more than `most`.
pub(super) fn scan(files: &OwnedFd, most: usize) -> Result<Found, Fault> {
    let failed = Fault::while_doing("listing the files of a workspace");
    let (mut found, mut seen, mut open) = (Found::default(), 0, vec![String::new()]);
    while let Some(path) = open.pop() {
        let directory = match open_directory(files, &path) {
            // It was removed meanwhile, or something else has its place.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !path.is_empty() => continue,
            opened => opened.map_err(&failed)?,
        };
        for entry in Dir::read_from(&directory).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            seen += 1;
            if seen > most {
                return Err(Fault::refused(format!("The workspace holds more than {most} files and directories.")));
            }
            let stat = match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                stat => stat.map_err(&failed)?,
            };
            let within =
                name.to_str().ok().map(|name| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") });
            let named = within.filter(|within| FilePath::parse(within).is_ok_and(|path| path.as_str() == within));
            match named {
                Some(path) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                    if path.split('/').count() < MAX_DEPTH {
                        open.push(path);
                    }
                }
                Some(path) if is_plain_file(&stat) => {
                    found.bytes = found.bytes.saturating_add(length(&stat));
                    found.files.insert(path, length(&stat));
                }
                Some(_) | None => found.others += 1,
            }
        }
    }
    Ok(found)
}
