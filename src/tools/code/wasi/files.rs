//! Calls that name a descriptor.

use std::cell::Cell;

use super::descriptors::{Open, OpenFile};
use super::errno::Errno;
use super::guest::{Guest, Piece, bytes_of};
use super::tree::{Contents, Node};

/// Kinds of files, as the interface numbers them.
const CHARACTERS: u8 = 2;
const DIRECTORY: u8 = 3;
const REGULAR: u8 = 4;
/// What may be done with a descriptor: everything that there is, but to seek where there is no position.
const ALL_RIGHTS: u64 = (1 << 29) - 1;
const STREAM_RIGHTS: u64 = ALL_RIGHTS & !(1 << 2) & !(1 << 5);
/// To read, and to write.
pub const RIGHT_READ: u64 = 1 << 1;
pub const RIGHT_WRITE: u64 = 1 << 6;
/// Bytes are written at the end of the file.
pub const APPEND: u32 = 1;
/// The length of the head of an entry of a directory.
const ENTRY: usize = 24;
/// What it costs to pass an entry of the tree, in bytes that could be moved instead.
const PASSED: usize = 512;

/// Closes a descriptor.
pub fn close(guest: &mut Guest<'_>, fd: u32) -> Result<(), Errno> {
    let closed = guest.host.descriptors.close(fd)?;
    let_go(guest, closed);
    Ok(())
}

fn let_go(guest: &mut Guest<'_>, open: Open) {
    if let Open::File(file) = open {
        guest.host.tree.let_go(file.contents);
    }
}

/// Gives what is open another number.
pub fn renumber(guest: &mut Guest<'_>, from: u32, to: u32) -> Result<(), Errno> {
    if let Some(replaced) = guest.host.descriptors.renumber(from, to)? {
        let_go(guest, replaced);
    }
    Ok(())
}

/// For calls that have nothing to do where files are in memory.
pub fn exists(guest: &mut Guest<'_>, fd: u32) -> Result<(), Errno> {
    guest.host.descriptors.get(fd).map(drop)
}

/// Tells what can be done with a descriptor.
pub fn state(guest: &mut Guest<'_>, fd: u32, at: u32) -> Result<(), Errno> {
    let (kind, flags, rights) = match guest.host.descriptors.get(fd)? {
        Open::Input | Open::Output | Open::Errors => (CHARACTERS, 0, STREAM_RIGHTS),
        Open::Directory { .. } => (DIRECTORY, 0, ALL_RIGHTS),
        Open::File(file) => (REGULAR, u8::from(file.appends), ALL_RIGHTS),
    };
    let mut state = [0; 24];
    state[0] = kind;
    state[2] = flags;
    state[8..16].copy_from_slice(&rights.to_le_bytes());
    state[16..24].copy_from_slice(&ALL_RIGHTS.to_le_bytes());
    guest.put(at, &state)
}

/// Says where a file is written: at its position, or at its end.
pub fn set_flags(guest: &mut Guest<'_>, fd: u32, flags: u32) -> Result<(), Errno> {
    match guest.host.descriptors.get_mut(fd)? {
        Open::File(file) => file.appends = flags & APPEND != 0,
        Open::Input | Open::Output | Open::Errors | Open::Directory { .. } => {}
    }
    Ok(())
}

/// Tells what is open, and how long a file is.
pub fn status(guest: &mut Guest<'_>, fd: u32, at: u32) -> Result<(), Errno> {
    let (kind, length) = match guest.host.descriptors.get(fd)? {
        Open::Input | Open::Output | Open::Errors => (CHARACTERS, 0),
        Open::Directory { .. } => (DIRECTORY, 0),
        Open::File(file) => (REGULAR, file.contents.borrow().len()),
    };
    put_status(guest, at, kind, length)
}

/// Writes what is known of what a path names.
pub fn put_node_status(guest: &mut Guest<'_>, at: u32, node: &Node) -> Result<(), Errno> {
    match node {
        Node::Directory => put_status(guest, at, DIRECTORY, 0),
        Node::File(contents) => {
            let length = contents.borrow().len();
            put_status(guest, at, REGULAR, length)
        }
    }
}

fn put_status(guest: &mut Guest<'_>, at: u32, kind: u8, length: usize) -> Result<(), Errno> {
    let mut status = [0; 64];
    status[16] = kind;
    status[24..32].copy_from_slice(&1_u64.to_le_bytes());
    status[32..40].copy_from_slice(&(length as u64).to_le_bytes());
    guest.put(at, &status)
}

/// Cuts a file, or makes it longer.
pub fn set_size(guest: &mut Guest<'_>, fd: u32, size: u64) -> Result<(), Errno> {
    let file = guest.host.descriptors.file(fd)?;
    if !file.writes {
        return Err(Errno::BadDescriptor);
    }
    let (contents, size) = (file.contents.clone(), usize::try_from(size).map_err(|_| Errno::FileTooLarge)?);
    let grown = size.saturating_sub(contents.borrow().len());
    guest.host.tree.resize(&contents, size)?;
    guest.host.count_work(grown);
    Ok(())
}

/// Makes room for bytes that a program is going to write.
pub fn allocate(guest: &mut Guest<'_>, fd: u32, at: u64, length: u64) -> Result<(), Errno> {
    let size = at.checked_add(length).ok_or(Errno::FileTooLarge)?;
    let now = guest.host.descriptors.file(fd)?.contents.borrow().len() as u64;
    if size > now { set_size(guest, fd, size) } else { Ok(()) }
}

/// Tells that a descriptor is a directory that the program was given, and how long its name is.
pub fn given_kind(guest: &mut Guest<'_>, fd: u32, at: u32) -> Result<(), Errno> {
    let Open::Directory { given_as: Some(name), .. } = guest.host.descriptors.get(fd)? else {
        return Err(Errno::BadDescriptor);
    };
    let length = name.len();
    guest.put_u32(at, 0)?;
    guest.put_length(at.checked_add(4).ok_or(Errno::Fault)?, length)
}

/// Tells the name of such a directory.
pub fn given_name(guest: &mut Guest<'_>, fd: u32, at: u32, length: u32) -> Result<(), Errno> {
    let Open::Directory { given_as: Some(name), .. } = guest.host.descriptors.get(fd)? else {
        return Err(Errno::BadDescriptor);
    };
    if (length as usize) < name.len() {
        return Err(Errno::NameTooLong);
    }
    guest.put(at, name.as_bytes())
}

/// Reads from where the file stands.
pub fn read(guest: &mut Guest<'_>, fd: u32, list: u32, count: u32, told: u32) -> Result<(), Errno> {
    let pieces = guest.pieces(list, count)?;
    let (contents, position) = match guest.host.descriptors.get_mut(fd)? {
        Open::Input => return guest.put_u32(told, 0),
        Open::Directory { .. } => return Err(Errno::IsDirectory),
        Open::File(file) if file.reads => (file.contents.clone(), file.position),
        Open::Output | Open::Errors | Open::File(_) => return Err(Errno::BadDescriptor),
    };
    let length = fill_from(guest, &contents.borrow(), position, &pieces)?;
    if let Ok(file) = guest.host.descriptors.file(fd) {
        file.position += length as u64;
    }
    guest.put_length(told, length)
}

/// Reads from a place of the file.
pub fn read_at(guest: &mut Guest<'_>, fd: u32, list: u32, count: u32, at: u64, told: u32) -> Result<(), Errno> {
    let pieces = guest.pieces(list, count)?;
    let file = guest.host.descriptors.file(fd)?;
    if !file.reads {
        return Err(Errno::BadDescriptor);
    }
    let contents = file.contents.clone();
    let length = fill_from(guest, &contents.borrow(), at, &pieces)?;
    guest.put_length(told, length)
}

fn fill_from(guest: &mut Guest<'_>, contents: &[u8], at: u64, pieces: &[Piece]) -> Result<usize, Errno> {
    let rest = usize::try_from(at).ok().and_then(|at| contents.get(at..)).unwrap_or_default();
    let wanted = pieces.iter().fold(0_usize, |sum, piece| sum.saturating_add(piece.length()));
    let bytes = &rest[..rest.len().min(wanted)];
    guest.fill(pieces, bytes)?;
    Ok(bytes.len())
}

/// Writes to where the file stands, or says something.
pub fn write(guest: &mut Guest<'_>, fd: u32, list: u32, count: u32, told: u32) -> Result<(), Errno> {
    let pieces = guest.pieces(list, count)?;
    let at = match guest.host.descriptors.get(fd)? {
        Open::Output | Open::Errors => return say(guest, fd, &pieces, told),
        Open::Input => return Err(Errno::BadDescriptor),
        Open::Directory { .. } => return Err(Errno::IsDirectory),
        Open::File(file) if file.appends => file.contents.borrow().len() as u64,
        Open::File(file) => file.position,
    };
    let length = write_pieces(guest, fd, &pieces, at)?;
    guest.host.descriptors.file(fd)?.position = at + length as u64;
    guest.put_length(told, length)
}

/// Writes to a place of the file.
pub fn write_at(guest: &mut Guest<'_>, fd: u32, list: u32, count: u32, at: u64, told: u32) -> Result<(), Errno> {
    let pieces = guest.pieces(list, count)?;
    let length = write_pieces(guest, fd, &pieces, at)?;
    guest.put_length(told, length)
}

/// What the program says is kept up to a bound. It is told that all of it was.
fn say(guest: &mut Guest<'_>, fd: u32, pieces: &[Piece], told: u32) -> Result<(), Errno> {
    let length: u64 = pieces.iter().map(|piece| piece.length() as u64).sum();
    let length = u32::try_from(length).map_err(|_| Errno::Invalid)?;
    for piece in pieces {
        let bytes = bytes_of(guest.memory, *piece)?;
        let is_error = matches!(guest.host.descriptors.get(fd)?, Open::Errors);
        let output = if is_error { &mut guest.host.errors } else { &mut guest.host.output };
        let kept = output.push(bytes);
        guest.host.count_work(kept);
    }
    guest.put_u32(told, length)
}

/// Writes pieces one after the other; how many bytes were written before there was no more room.
fn write_pieces(guest: &mut Guest<'_>, fd: u32, pieces: &[Piece], at: u64) -> Result<usize, Errno> {
    let file = guest.host.descriptors.file(fd)?;
    if !file.writes {
        return Err(Errno::BadDescriptor);
    }
    let (contents, before) = (file.contents.clone(), file.contents.borrow().len() as u64);
    guest.host.count_work(usize::try_from(at.saturating_sub(before)).unwrap_or(usize::MAX));
    let mut written = 0;
    for piece in pieces {
        let bytes = bytes_of(guest.memory, *piece)?;
        let place = at.checked_add(written as u64).ok_or(Errno::FileTooLarge)?;
        match guest.host.tree.write(&contents, place, bytes) {
            Ok(()) => written += bytes.len(),
            Err(_) if written > 0 => break,
            Err(error) => return Err(error),
        }
        guest.host.count_work(bytes.len());
    }
    Ok(written)
}

/// Moves to another place of the file.
pub fn seek(guest: &mut Guest<'_>, fd: u32, by: i64, from: u32, told: u32) -> Result<(), Errno> {
    let file = guest.host.descriptors.file(fd)?;
    let base = match from {
        0 => 0,
        1 => file.position,
        2 => file.contents.borrow().len() as u64,
        _ => return Err(Errno::Invalid),
    };
    let position = base.checked_add_signed(by).ok_or(Errno::Invalid)?;
    file.position = position;
    guest.put_u64(told, position)
}

/// The names in a directory, as many as there is room for; `from` is the number of the first.
pub fn list(guest: &mut Guest<'_>, fd: u32, at: u32, room: u32, from: u64, told: u32) -> Result<(), Errno> {
    let Open::Directory { path, .. } = guest.host.descriptors.get(fd)? else { return Err(Errno::NotDirectory) };
    let room = room as usize;
    let mut entries = Vec::new();
    let own = [(".", DIRECTORY), ("..", DIRECTORY)].into_iter();
    let passed = Cell::new(0);
    let inside = guest.host.tree.list(path).inspect(|_| passed.set(passed.get() + 1)).flatten();
    let all = own.chain(inside.map(|(name, node)| match node {
        Node::Directory => (name, DIRECTORY),
        Node::File(_) => (name, REGULAR),
    }));
    for (number, (name, kind)) in (1_u64..).zip(all) {
        if number <= from {
            continue;
        }
        let mut head = [0; ENTRY];
        head[..8].copy_from_slice(&number.to_le_bytes());
        head[16..20].copy_from_slice(&u32::try_from(name.len()).map_err(|_| Errno::Overflow)?.to_le_bytes());
        head[20] = kind;
        entries.extend_from_slice(&head);
        entries.extend_from_slice(name.as_bytes());
        if entries.len() >= room {
            break;
        }
    }
    entries.truncate(room);
    let passed = passed.get();
    guest.host.count_work(passed * PASSED);
    guest.put(at, &entries)?;
    guest.put_length(told, entries.len())
}

/// What a new descriptor of a file can do.
pub fn opened(contents: Contents, rights: u64, appends: bool) -> Open {
    Open::File(OpenFile {
        contents,
        position: 0,
        appends,
        reads: rights & RIGHT_READ != 0,
        writes: rights & RIGHT_WRITE != 0,
    })
}
