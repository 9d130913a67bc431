//! Whether a directory can have workspaces: it is there, can be written to, renames and locks.

use std::path::Path;

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;
use uuid::Uuid;

use super::fault::Fault;
use super::place::{Address, open_root};
use super::remove::remove;
use super::thread::Stop;

/// What the name of a directory begins with that is made to see whether it can be.
const PROBE: &str = "p-";

/// Looks whether a directory can have workspaces, by making one and removing it. Why not, in words for the operator.
pub fn probe(root: &Path) -> Result<(), String> {
    let name = format!("{PROBE}{}", Uuid::now_v7().simple());
    let address = Address { root, tenant: &name, own: &name };
    let stop = Stop::default();
    let tried = address.make_and_lock(&stop).and_then(|locked| locked.new_files().and_then(|_| locked.note_change()));
    let removed = remove(address, &stop);
    let root_is_clean = open_root(root).map(|root| unlinkat(root, &name, AtFlags::REMOVEDIR));
    match tried.and(removed).and(root_is_clean.map(drop)) {
        Ok(()) => Ok(()),
        Err(Fault::Broken(what, errno) | Fault::Half(what, errno)) => Err(told(root, what, errno)),
        Err(Fault::Refused(why)) => Err(why),
        Err(Fault::Stopped | Fault::NoThread | Fault::Crashed) => Err("it was not looked at".to_owned()),
    }
}

fn told(root: &Path, what: &str, errno: Errno) -> String {
    let root = root.display();
    match errno {
        Errno::NOENT | Errno::NODEV => format!("the directory {root} is not there"),
        Errno::NOTDIR => format!("{root} is no directory"),
        errno => format!("{root} cannot be used, {what}: {errno}"),
    }
}

/// Whether a directory is there, for a server that starts.
pub(super) fn check(root: &Path) -> Result<(), String> {
    match open_root(root) {
        Ok(_) => Ok(()),
        Err(Fault::Broken(what, errno)) => Err(told(root, what, errno)),
        Err(_) => Err(format!("{} cannot be used", root.display())),
    }
}
