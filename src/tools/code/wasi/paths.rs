//! Calls that name a path, from a directory that the program has.

use std::cell::RefCell;
use std::rc::Rc;

use super::descriptors::Open;
use super::errno::Errno;
use super::files::{self, APPEND, RIGHT_WRITE};
use super::guest::Guest;
use super::tree::{Node, resolve};

/// How a file is opened.
const CREATE: u32 = 1;
const DIRECTORY: u32 = 2;
const EXCLUSIVE: u32 = 4;
const TRUNCATE: u32 = 8;
/// What it costs to give an entry of the tree another path, in bytes that could be moved instead.
const MOVED: usize = 8 << 10;

/// A path in the memory of the program, and the directory that it begins at.
#[derive(Debug, Clone, Copy)]
pub struct PathAt {
    /// The directory.
    pub fd: u32,
    /// Where the path is.
    pub at: u32,
    /// How long it is.
    pub length: u32,
}

/// The whole path; it cannot lead out of what the program was given.
fn path(guest: &mut Guest<'_>, PathAt { fd, at, length }: PathAt) -> Result<(&'static str, String), Errno> {
    let relative = guest.path(at, length)?;
    match guest.host.descriptors.get(fd)? {
        Open::Directory { mount, path, .. } => Ok((mount, resolve(mount, path, &relative)?)),
        Open::Input | Open::Output | Open::Errors | Open::File(_) => Err(Errno::NotDirectory),
    }
}

/// Opens a file or a directory; `rights` say whether it may be read and written.
pub fn open(guest: &mut Guest<'_>, place: PathAt, how: u32, rights: u64, flags: u32, told: u32) -> Result<(), Errno> {
    let (mount, path) = path(guest, place)?;
    let host = &mut *guest.host;
    host.descriptors.check_room()?;
    let node = match host.tree.get(&path) {
        Ok(_) if how & CREATE != 0 && how & EXCLUSIVE != 0 => return Err(Errno::Exists),
        Ok(node) => node.clone(),
        Err(Errno::NoEntry) if how & CREATE != 0 && how & DIRECTORY == 0 => {
            let node = Node::File(Rc::new(RefCell::new(Vec::new())));
            host.tree.create(&path, node.clone())?;
            node
        }
        Err(error) => return Err(error),
    };
    let open = match node {
        Node::Directory if rights & RIGHT_WRITE != 0 && how & DIRECTORY == 0 && how & (CREATE | TRUNCATE) != 0 => {
            return Err(Errno::IsDirectory);
        }
        Node::Directory => Open::Directory { mount, path, given_as: None },
        Node::File(_) if how & DIRECTORY != 0 => return Err(Errno::NotDirectory),
        Node::File(_) if (rights & RIGHT_WRITE != 0 || how & TRUNCATE != 0) && host.tree.is_read_only(&path) => {
            return Err(Errno::Access);
        }
        Node::File(contents) => {
            if how & TRUNCATE != 0 {
                host.tree.resize(&contents, 0)?;
            }
            files::opened(contents, rights, flags & APPEND != 0)
        }
    };
    let fd = host.descriptors.add(open)?;
    guest.put_u32(told, fd)
}

/// Tells what a path names.
pub fn status(guest: &mut Guest<'_>, place: PathAt, at: u32) -> Result<(), Errno> {
    let (_, path) = path(guest, place)?;
    let node = guest.host.tree.get(&path)?.clone();
    files::put_node_status(guest, at, &node)
}

/// For calls that have nothing to do where there are no times and links.
pub fn exists(guest: &mut Guest<'_>, place: PathAt) -> Result<(), Errno> {
    let (_, path) = path(guest, place)?;
    guest.host.tree.get(&path).map(drop)
}

/// Makes a directory.
pub fn create_directory(guest: &mut Guest<'_>, place: PathAt) -> Result<(), Errno> {
    let (_, path) = path(guest, place)?;
    guest.host.tree.create(&path, Node::Directory)
}

/// Removes an empty directory.
pub fn remove_directory(guest: &mut Guest<'_>, place: PathAt) -> Result<(), Errno> {
    let (_, path) = path(guest, place)?;
    guest.host.tree.remove_directory(&path)
}

/// Removes a file.
pub fn unlink(guest: &mut Guest<'_>, place: PathAt) -> Result<(), Errno> {
    let (_, path) = path(guest, place)?;
    guest.host.tree.unlink(&path)
}

/// Gives a file or a directory another path.
pub fn rename(guest: &mut Guest<'_>, from: PathAt, to: PathAt) -> Result<(), Errno> {
    let ((mount, from), (other, to)) = (path(guest, from)?, path(guest, to)?);
    if mount != other {
        return Err(Errno::CrossDevice);
    }
    let (passed, done) = guest.host.tree.rename(&from, &to);
    guest.host.count_work(passed * MOVED);
    done
}

/// No file is a link.
pub fn read_link(guest: &mut Guest<'_>, place: PathAt) -> Result<(), Errno> {
    exists(guest, place)?;
    Err(Errno::Invalid)
}
