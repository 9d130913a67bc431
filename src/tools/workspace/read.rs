//! Reads a file of a workspace.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use super::beneath::open_directory;
use super::fault::Fault;
use super::path::FilePath;
use super::scan::{is_plain_file, length};

/// A file that is open, and how long it is.
#[derive(Debug)]
pub(super) struct OpenedFile {
    file: File,
    pub(super) length: u64,
}

/// Opens a file. What is no plain file is not opened: to open a device can do something.
pub(super) fn open(files: &OwnedFd, path: &FilePath) -> Result<OpenedFile, Fault> {
    let (directory, name) = path.parts();
    let refused = |errno| match errno {
        Errno::NOENT | Errno::NOTDIR => absent(path),
        Errno::LOOP | Errno::XDEV => not_plain(path),
        errno => Fault::Broken("opening a file of a workspace", errno),
    };
    let directory = open_directory(files, directory).map_err(refused)?;
    let stat = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(refused)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return Err(Fault::refused(format!("{path:?} is a directory.", path = path.as_str())));
    }
    if !is_plain_file(&stat) {
        return Err(not_plain(path));
    }
    // Something else may have taken its place meanwhile, so what was opened is looked at again.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = openat(&directory, name, flags, Mode::empty()).map_err(refused)?;
    let stat = fstat(&opened).map_err(refused)?;
    if !is_plain_file(&stat) {
        return Err(not_plain(path));
    }
    Ok(OpenedFile { file: opened.into(), length: length(&stat) })
}

fn absent(path: &FilePath) -> Fault {
    Fault::refused(format!("There is no file {:?} in the workspace.", path.as_str()))
}

fn not_plain(path: &FilePath) -> Fault {
    Fault::refused(format!("{:?} is no plain file: it is a link or the like, which is not followed.", path.as_str()))
}

impl OpenedFile {
    /// All of it; an error if it has more than `most` bytes.
    pub(super) fn whole(self, path: &FilePath, most: u64) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.length.min(most)).unwrap_or(0));
        self.file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        if bytes.len() as u64 > most {
            let path = path.as_str();
            let why = format!(
                "{path:?} has {} bytes, and {most} are read as a whole: read it with `from_byte`.",
                self.length
            );
            return Err(Fault::refused(why));
        }
        Ok(bytes)
    }

    /// As many bytes from a place on, or what there is of them.
    pub(super) fn piece(&self, from: u64, most: usize) -> Result<Vec<u8>, Fault> {
        let most = usize::try_from(self.length.saturating_sub(from)).unwrap_or(usize::MAX).min(most);
        let (mut bytes, mut filled) = (vec![0; most], 0);
        while filled < most {
            match self.file.read_at(&mut bytes[filled..], from + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

fn failed(error: &std::io::Error) -> Fault {
    Fault::Broken("reading a file of a workspace", Errno::from_io_error(error).unwrap_or(Errno::IO))
}
