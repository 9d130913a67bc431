//! Files in memory: all that a program has of a file system. None of them is a file of this machine.
//!
//! There are no links, so a path leads where its text says.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use super::errno::Errno;

/// Longest path, in bytes.
pub const MAX_PATH: usize = 512;
/// Longest name in a path, in bytes.
const MAX_NAME: usize = 255;
/// A file as short as this keeps what memory it has.
const LEAST_KEPT: usize = 256;
/// Most files and directories.
pub const MAX_ENTRIES: usize = 4096;

/// The bytes of a file, which a descriptor can have after the name is gone.
pub type Contents = Rc<RefCell<Vec<u8>>>;

/// What a path names.
#[derive(Debug, Clone)]
pub enum Node {
    /// A directory.
    Directory,
    /// A file.
    File(Contents),
}

/// All files and directories by their paths, which begin with the name of a mount and end with no slash.
#[derive(Debug)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
    read_only: &'static str,
    used: usize,
    room: usize,
}

/// How many entries a call moved or passed.
pub type Passed = usize;

impl Tree {
    /// Directories without files, with room for so many bytes. What is below `read_only` cannot be changed by programs.
    pub fn new(mounts: &[&str], read_only: &'static str, room: usize) -> Self {
        let nodes = mounts.iter().map(|mount| ((*mount).to_owned(), Node::Directory)).collect();
        Self { nodes, read_only, used: 0, room }
    }

    /// Puts a file there before the program starts, with the directories that it needs.
    pub fn place(&mut self, path: &str, bytes: Vec<u8>) -> Result<(), Errno> {
        for (at, _) in path.match_indices('/') {
            self.check_entries(&path[..at])?;
            match self.nodes.entry(path[..at].to_owned()).or_insert(Node::Directory) {
                Node::Directory => {}
                Node::File(_) => return Err(Errno::NotDirectory),
            }
        }
        if matches!(self.nodes.get(path), Some(Node::Directory)) {
            return Err(Errno::IsDirectory);
        }
        self.check_entries(path)?;
        self.take_room(bytes.len())?;
        if let Some(Node::File(before)) = self.nodes.insert(path.to_owned(), Node::File(Rc::new(RefCell::new(bytes)))) {
            self.used -= before.borrow().len();
        }
        Ok(())
    }

    /// What is at this path.
    pub fn get(&self, path: &str) -> Result<&Node, Errno> {
        if let Some(node) = self.nodes.get(path) {
            return Ok(node);
        }
        let over_file =
            path.match_indices('/').any(|(at, _)| matches!(self.nodes.get(&path[..at]), Some(Node::File(_))));
        Err(if over_file { Errno::NotDirectory } else { Errno::NoEntry })
    }

    /// Whether programs may not change what is there.
    pub fn is_read_only(&self, path: &str) -> bool {
        path == self.read_only || within(path, self.read_only)
    }

    /// Makes an empty file or a directory where there is nothing.
    pub fn create(&mut self, path: &str, node: Node) -> Result<(), Errno> {
        self.check_change(path)?;
        if self.nodes.contains_key(path) {
            return Err(Errno::Exists);
        }
        match self.get(parent(path).ok_or(Errno::NotCapable)?)? {
            Node::Directory => {}
            Node::File(_) => return Err(Errno::NotDirectory),
        }
        self.check_entries(path)?;
        self.nodes.insert(path.to_owned(), node);
        Ok(())
    }

    /// Removes a file.
    pub fn unlink(&mut self, path: &str) -> Result<(), Errno> {
        match self.get(path)? {
            Node::Directory => return Err(Errno::IsDirectory),
            Node::File(_) => self.check_change(path)?,
        }
        if let Some(Node::File(contents)) = self.nodes.remove(path) {
            self.let_go(contents);
        }
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&mut self, path: &str) -> Result<(), Errno> {
        match self.get(path)? {
            Node::Directory => self.check_change(path)?,
            Node::File(_) => return Err(Errno::NotDirectory),
        }
        if self.below(path).next().is_some() {
            return Err(Errno::NotEmpty);
        }
        self.nodes.remove(path);
        Ok(())
    }

    /// Gives a file, or a directory with all that is in it, another path; how many entries had to be looked at, also if it fails.
    pub fn rename(&mut self, from: &str, to: &str) -> (Passed, Result<(), Errno>) {
        let moved: Vec<String> = self.below(from).map(|(path, _)| path.to_owned()).collect();
        (moved.len() + 1, self.rename_all(from, to, moved))
    }

    fn rename_all(&mut self, from: &str, to: &str, moved: Vec<String>) -> Result<(), Errno> {
        self.check_change(from)?;
        self.check_change(to)?;
        let node = self.get(from)?.clone();
        if from == to {
            return Ok(());
        }
        if within(to, from) {
            return Err(Errno::Invalid);
        }
        match (&node, self.get(to)) {
            (Node::File(_), Ok(Node::Directory)) => return Err(Errno::IsDirectory),
            (Node::Directory, Ok(Node::File(_))) => return Err(Errno::NotDirectory),
            (Node::File(_), Ok(Node::File(_))) => self.unlink(to)?,
            (Node::Directory, Ok(Node::Directory)) => self.remove_directory(to)?,
            (_, Err(Errno::NoEntry)) => {}
            (_, Err(other)) => return Err(other),
        }
        match self.get(parent(to).ok_or(Errno::NotCapable)?)? {
            Node::Directory => {}
            Node::File(_) => return Err(Errno::NotDirectory),
        }
        if moved.iter().any(|path| to.len() + path.len() - from.len() > MAX_PATH) {
            return Err(Errno::NameTooLong);
        }
        for path in moved.into_iter().chain([from.to_owned()]) {
            if let Some(node) = self.nodes.remove(&path) {
                self.nodes.insert(format!("{to}{}", &path[from.len()..]), node);
            }
        }
        Ok(())
    }

    /// What is below a directory, in its order: the name of what lies in it, and nothing for what lies deeper.
    pub fn list<'t>(&'t self, path: &'t str) -> impl Iterator<Item = Option<(&'t str, &'t Node)>> {
        self.below(path).map(move |(below, node)| {
            let name = &below[path.len() + 1..];
            (!name.contains('/')).then_some((name, node))
        })
    }

    /// Everything below a directory.
    pub fn below<'t>(&'t self, path: &'t str) -> impl Iterator<Item = (&'t str, &'t Node)> {
        let from = (Bound::Excluded(format!("{path}/")), Bound::Unbounded);
        let inside = self.nodes.range::<String, _>(from).take_while(move |(below, _)| within(below, path));
        inside.map(|(path, node)| (path.as_str(), node))
    }

    /// Writes into a file, which grows where that is needed. All bytes are written, or none.
    pub fn write(&mut self, contents: &Contents, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        let at = usize::try_from(at).map_err(|_| Errno::FileTooLarge)?;
        let end = at.checked_add(bytes.len()).ok_or(Errno::FileTooLarge)?;
        if end > contents.borrow().len() {
            self.resize(contents, end)?;
        }
        contents.borrow_mut()[at..end].copy_from_slice(bytes);
        Ok(())
    }

    /// Cuts a file, or makes it longer with zeros.
    pub fn resize(&mut self, contents: &Contents, length: usize) -> Result<(), Errno> {
        let before = contents.borrow().len();
        if length > before {
            self.take_room(length - before)?;
        } else {
            self.used -= before - length;
        }
        let mut contents = contents.borrow_mut();
        contents.resize(length, 0);
        // Room that was given back must not keep memory: a program could grow and cut one file after another.
        if contents.capacity() > 2 * length.max(LEAST_KEPT) {
            contents.shrink_to(length);
        }
        Ok(())
    }

    /// Takes the file back from a descriptor that was closed. One without a name is gone with the last of these.
    pub fn let_go(&mut self, contents: Contents) {
        if let Some(contents) = Rc::into_inner(contents) {
            self.used -= contents.borrow().len();
        }
    }

    /// How many bytes its files have, those without a name included.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.used
    }

    fn take_room(&mut self, bytes: usize) -> Result<(), Errno> {
        let used = self.used.checked_add(bytes).filter(|used| *used <= self.room).ok_or(Errno::NoSpace)?;
        self.used = used;
        Ok(())
    }

    /// Whether there is such an entry, or room for it.
    fn check_entries(&self, path: &str) -> Result<(), Errno> {
        if self.nodes.len() < MAX_ENTRIES || self.nodes.contains_key(path) { Ok(()) } else { Err(Errno::NoSpace) }
    }

    fn check_change(&self, path: &str) -> Result<(), Errno> {
        if self.is_read_only(path) {
            return Err(Errno::Access);
        }
        // The directories that the program was given stay.
        parent(path).map(drop).ok_or(Errno::NotCapable)
    }
}

/// The path that `relative` names, as seen from the directory `base` of `mount`; never one outside the mount.
pub fn resolve(mount: &str, base: &str, relative: &str) -> Result<String, Errno> {
    if relative.starts_with('/') {
        return Err(Errno::NotCapable);
    }
    let mut path = base.to_owned();
    for name in relative.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                let above = parent(&path).filter(|_| path != mount).ok_or(Errno::NotCapable)?;
                path.truncate(above.len());
            }
            name if name.len() > MAX_NAME => return Err(Errno::NameTooLong),
            name => {
                path.push('/');
                path.push_str(name);
            }
        }
    }
    if path.len() > MAX_PATH { Err(Errno::NameTooLong) } else { Ok(path) }
}

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

fn within(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_given_are_as_many_as_those_that_programs_make() {
        let mut tree = Tree::new(&["tmp"], "code", 1 << 20);
        let placed =
            (0..9_999).take_while(|number| tree.place(&format!("tmp/d{number}/f"), Vec::new()).is_ok()).count();
        assert_eq!((placed, tree.nodes.len()), ((MAX_ENTRIES - 1) / 2, MAX_ENTRIES));
        assert!(tree.place("tmp/d0/f", vec![1]).is_ok(), "what is there can be replaced");
    }

    #[test]
    fn files_that_were_cut_keep_no_memory() {
        const ROOM: usize = 1 << 20;
        let (mut tree, bytes) = (Tree::new(&["tmp"], "code", ROOM), vec![7; ROOM]);
        let files: Vec<Contents> = (0..64)
            .map(|number| {
                let contents = Contents::default();
                tree.write(&contents, 0, &bytes).unwrap();
                tree.resize(&contents, number % 2).unwrap();
                if number % 2 == 1 {
                    tree.resize(&contents, 0).unwrap();
                }
                contents
            })
            .collect();
        let kept: usize = files.iter().map(|contents| contents.borrow().capacity()).sum();
        assert!(kept <= ROOM, "{kept} bytes");
    }
}
