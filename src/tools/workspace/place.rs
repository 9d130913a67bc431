//! The directory of a workspace, and the lock that whoever changes the workspace holds.
//!
//! Below the directory of all workspaces there is one for each tenant, and in it one for each owner. That has `files`, what models
//! see, `new`, where files are written before they take their places, and `lock`. The lock is the kernel's, so that it ends
//! with its process; replicas share it as far as their volume shares locks.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::fs::{flock, fstat, futimens, mkdirat, openat, statat};
use rustix::io::Errno;
use tokio::time::Instant;

use super::beneath::{if_there, open_directory};
use super::fault::Fault;
use super::thread::Stop;
use super::tree::remove_tree;

/// What models see of a workspace.
const FILES: &str = "files";
/// Where files are written.
pub(super) const NEW: &str = "new";
/// What is locked.
const LOCK: &str = "lock";

/// How long a lock is waited for, however long a call may take, and how often it is tried.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_millis(4);
/// How often a directory is opened again that was removed meanwhile.
const TRIES: usize = 16;

/// Where a workspace is: the directory of all, and the names of its tenant's and its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address<'a> {
    pub(super) root: &'a Path,
    pub(super) tenant: &'a str,
    pub(super) own: &'a str,
}

/// The directory of a workspace.
#[derive(Debug)]
pub(super) struct Place {
    directory: OwnedFd,
}

/// A workspace that nobody else changes now.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) place: Place,
    /// The directory of its tenant.
    pub(super) tenant: OwnedFd,
    lock: OwnedFd,
}

/// Opens the directory of all workspaces, which is the operator's.
pub(super) fn open_root(root: &Path) -> Result<OwnedFd, Fault> {
    root_at(root).map_err(Fault::while_doing("opening workspace.directory"))
}

fn root_at(root: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Makes a directory unless it is there, and opens it; whether it was made.
pub(super) fn make_directory(parent: impl AsFd, name: &str) -> Result<(OwnedFd, bool), Errno> {
    let made = match mkdirat(&parent, name, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(errno),
    };
    Ok((open_directory(parent, name)?, made))
}

impl Address<'_> {
    /// The workspace, if anything was ever written to it.
    pub(super) fn find(self) -> Result<Option<Place>, Fault> {
        let failed = Fault::while_doing("opening a workspace");
        let Some(tenant) = if_there(open_directory(open_root(self.root)?, self.tenant)).map_err(&failed)? else {
            return Ok(None);
        };
        let found = if_there(open_directory(tenant, self.own)).map_err(failed)?;
        Ok(found.map(|directory| Place { directory }))
    }

    /// The workspace once nobody else changes it, made if it is not there.
    pub(super) fn make_and_lock(self, stop: &Stop) -> Result<Locked, Fault> {
        for _ in 0..TRIES {
            let made = self.make().and_then(|(tenant, directory)| {
                let (_, lock) = (make_directory(&directory, FILES)?, open_lock(&directory)?);
                Ok(Locked { place: Place { directory }, tenant, lock })
            });
            match made {
                // It was removed meanwhile.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(Fault::Broken("making a workspace", errno)),
                Ok(locked) => {
                    if let Some(locked) = self.locked(locked, stop)? {
                        return Ok(locked);
                    }
                }
            }
        }
        Err(Fault::Broken("making a workspace", Errno::AGAIN))
    }

    /// The workspace once nobody else changes it, if it is there.
    pub(super) fn lock(self, stop: &Stop) -> Result<Option<Locked>, Fault> {
        for _ in 0..TRIES {
            let failed = Fault::while_doing("locking a workspace");
            let Some(tenant) = if_there(open_directory(open_root(self.root)?, self.tenant)).map_err(&failed)? else {
                return Ok(None);
            };
            let Some(directory) = if_there(open_directory(&tenant, self.own)).map_err(&failed)? else {
                return Ok(None);
            };
            let Some(lock) = if_there(open_lock(&directory)).map_err(failed)? else { continue };
            if let Some(locked) = self.locked(Locked { place: Place { directory }, tenant, lock }, stop)? {
                return Ok(Some(locked));
            }
        }
        Err(Fault::Broken("locking a workspace", Errno::AGAIN))
    }

    fn make(self) -> Result<(OwnedFd, OwnedFd), Errno> {
        // That the directory of all is gone is no reason to try again.
        let gone = |errno| if errno == Errno::NOENT { Errno::NODEV } else { errno };
        let root = root_at(self.root).map_err(gone)?;
        let (tenant, _) = make_directory(root, self.tenant)?;
        let (directory, _) = make_directory(&tenant, self.own)?;
        Ok((tenant, directory))
    }

    /// Waits for the lock. `None` if the directory was removed or replaced until then.
    fn locked(self, locked: Locked, stop: &Stop) -> Result<Option<Locked>, Fault> {
        let began = Instant::now();
        loop {
            stop.check()?;
            match flock(&locked.lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK | Errno::INTR) if began.elapsed() < LONGEST_WAIT => sleep(EVERY),
                Err(errno) => return Err(Fault::Broken("locking a workspace", errno)),
            }
        }
        let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let own = fstat(&locked.place.directory).map(identity);
        let there =
            if_there(statat(&locked.tenant, self.own, AtFlags::SYMLINK_NOFOLLOW)).map(|there| there.map(identity));
        let failed = Fault::while_doing("locking a workspace");
        let is_same = there.map_err(&failed)? == Some(own.map_err(failed)?);
        Ok(is_same.then_some(locked))
    }
}

impl Place {
    /// The directory that models see; `None` if it was removed.
    pub(super) fn files(&self) -> Result<Option<OwnedFd>, Fault> {
        if_there(open_directory(&self.directory, FILES)).map_err(Fault::while_doing("opening the files of a workspace"))
    }
}

impl Locked {
    /// The directory that models see.
    pub(super) fn files(&self) -> Result<OwnedFd, Fault> {
        self.place.files()?.ok_or(Fault::Broken("opening the files of a workspace", Errno::NOENT))
    }

    /// An empty directory for files that are not in their places yet. What a crash left there is removed.
    pub(super) fn new_files(&self) -> Result<OwnedFd, Fault> {
        let made = remove_tree(&self.place.directory, NEW);
        let made = made.and_then(|()| make_directory(&self.place.directory, NEW));
        made.map(|(directory, _)| directory).map_err(Fault::while_doing("making room for new files"))
    }

    /// When the workspace was last changed, in seconds since 1970 by the volume's clock.
    pub(super) fn changed_at(&self) -> Result<i64, Fault> {
        fstat(&self.lock).map(|stat| stat.st_mtime).map_err(Fault::while_doing("reading the age of a workspace"))
    }

    /// Notes that the workspace changes now.
    pub(super) fn note_change(&self) -> Result<(), Fault> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        futimens(&self.lock, &times).map_err(Fault::while_doing("noting that a workspace changes"))
    }
}

fn open_lock(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(directory, LOCK, flags, Mode::RUSR | Mode::WUSR)
}
