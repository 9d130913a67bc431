//! Removes workspaces, and lists those that may have to be removed.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Dir, renameat};
use rustix::io::Errno;
use uuid::Uuid;

use super::beneath::open_directory;
use super::fault::Fault;
use super::owner::{Owner, tenant_of};
use super::place::{Address, Locked, open_root};
use super::thread::Stop;
use super::tree::remove_tree;
use crate::types::Tenant;

/// What the name of a workspace begins with that is being removed.
const REMOVED: &str = "x-";

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

/// Calls `tell` with each workspace of a session or run, and removes what removals left that broke off.
pub(super) fn list_passing(root: &Path, mut tell: impl FnMut(Tenant, Owner)) -> Result<(), Fault> {
    let root = open_root(root)?;
    for directory in names(&root).map_err(Fault::while_doing("listing workspaces"))? {
        let Some(tenant) = tenant_of(&directory) else { continue };
        // What is no directory is none of ours.
        let Ok(opened) = open_directory(&root, &directory) else { continue };
        let Ok(names) = names(&opened) else { continue };
        for name in names {
            if name.starts_with(REMOVED) {
                if let Err(error) = remove_tree(&opened, &name) {
                    tracing::warn!(%tenant, %error, "what is left of a workspace cannot be removed; trying again later");
                }
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
