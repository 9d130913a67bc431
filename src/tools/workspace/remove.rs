//! Removes workspaces, and lists those that may have to be removed.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, renameat, statat, unlinkat};
use rustix::io::Errno;
use uuid::Uuid;

use super::beneath::open_directory;
use super::fault::Fault;
use super::owner::{Owner, tenant_of};
use super::place::{Address, Locked, if_there, open_root};
use super::thread::Stop;
use crate::types::Tenant;

/// What the name of a workspace begins with that is being removed.
const REMOVED: &str = "x-";
/// How deep a tree may be that is removed: more than a workspace can be.
const MAX_DEPTH: usize = 64;

/// Removes a workspace; one that is not there is no error. It is gone at once, and its files follow.
pub(super) fn remove(address: Address<'_>, stop: &Stop) -> Result<(), Fault> {
    match address.lock(stop)? {
        Some(locked) => remove_locked(address, &locked),
        None => Ok(()),
    }
}

/// Removes a workspace unless it changed after `since`, in seconds since 1970; whether it is gone.
pub(super) fn remove_if_unchanged(address: Address<'_>, since: i64, stop: &Stop) -> Result<bool, Fault> {
    match address.lock(stop)? {
        Some(locked) if locked.changed_at()? > since => Ok(false),
        Some(locked) => remove_locked(address, &locked).map(|()| true),
        None => Ok(true),
    }
}

fn remove_locked(address: Address<'_>, locked: &Locked) -> Result<(), Fault> {
    let aside = format!("{REMOVED}{}", Uuid::now_v7().simple());
    let failed = Fault::while_doing("removing a workspace");
    renameat(&locked.tenant, address.own, &locked.tenant, &aside).map_err(&failed)?;
    remove_tree(&locked.tenant, &aside).map_err(failed)
}

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
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Removes a file whose name is no text, or an empty directory.
fn remove_unreadable(directory: &OwnedFd, name: &std::ffi::CStr) -> Result<(), Errno> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    unlinkat(directory, name, if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() })
}

/// Calls `tell` with each workspace of a session or run, and removes what removals left that broke off.
pub(super) fn list_passing(root: &Path, mut tell: impl FnMut(Tenant, Owner)) -> Result<(), Fault> {
    let failed = Fault::while_doing("listing workspaces");
    let root = open_root(root)?;
    for directory in names(&root).map_err(&failed)? {
        let Some(tenant) = tenant_of(&directory) else { continue };
        // What is no directory is none of ours.
        let Ok(opened) = open_directory(&root, &directory) else { continue };
        for name in names(&opened).map_err(&failed)? {
            if name.starts_with(REMOVED) {
                remove_tree(&opened, &name).map_err(&failed)?;
            } else if let Some(owner) = Owner::passing_of(&name) {
                tell(tenant.clone(), owner);
            }
        }
    }
    Ok(())
}

fn names(directory: &OwnedFd) -> Result<Vec<String>, Errno> {
    let entries = Dir::read_from(directory)?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_str().unwrap_or_default().to_owned()));
    names.collect()
}
