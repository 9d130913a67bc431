//! The system interface of programs: WASI preview 1, as far as a program needs it that computes.
//!
//! It is our own, so that what a program can reach is what stands here: its arguments, files in memory, a clock and random
//! numbers. There are no files of this machine, no network, no processes and no links. Time spent asleep passes at
//! once, so a program that sleeps holds no thread.

mod descriptors;
mod errno;
mod files;
mod guest;
mod link;
mod paths;
mod process;
#[cfg(test)]
mod tests;
mod tree;

use std::time::Duration;

use tokio::time::Instant;
use wasmi::StoreLimits;

use self::descriptors::Descriptors;
use self::tree::{Node, Tree};

pub use self::link::link;
pub use self::tree::MAX_ENTRIES;

/// Where the files of a session are, and where a program starts.
const WORKSPACE: &str = "workspace";
/// Where the code is that is to be run.
const CODE: &str = "code";
/// Where files are that are forgotten.
const SCRATCH: &str = "tmp";

/// The directories of a program, each by the name that the program knows.
const GIVEN: [(&str, &str); 4] = [("/workspace", WORKSPACE), ("/", WORKSPACE), ("/code", CODE), ("/tmp", SCRATCH)];

/// What a program has beside its memory.
#[derive(Debug)]
pub struct Host {
    /// How much memory it may have.
    pub limits: StoreLimits,
    arguments: Vec<String>,
    environment: Vec<String>,
    descriptors: Descriptors,
    tree: Tree,
    /// What it said.
    pub output: Output,
    /// What it said of its errors.
    pub errors: Output,
    began: Instant,
    /// Time that it spent asleep.
    asleep: Duration,
    /// Bytes that were moved for it since this was last read.
    work: u64,
}

impl Host {
    /// What a program has that is called so, with room for so many bytes of files and of each output.
    pub fn new(
        arguments: Vec<String>,
        environment: Vec<String>,
        files: usize,
        output: usize,
        limits: StoreLimits,
    ) -> Self {
        Self {
            limits,
            arguments,
            environment,
            descriptors: Descriptors::new(&GIVEN),
            tree: Tree::new(&[WORKSPACE, CODE, SCRATCH], CODE, files),
            output: Output::new(output),
            errors: Output::new(output),
            began: Instant::now(),
            asleep: Duration::ZERO,
            work: 0,
        }
    }

    /// Puts a file into the workspace; `false` if there is no place for it.
    pub fn place(&mut self, path: &str, bytes: Vec<u8>) -> bool {
        let path = tree::resolve(WORKSPACE, WORKSPACE, path);
        path.is_ok_and(|path| path != WORKSPACE && self.tree.place(&path, bytes).is_ok())
    }

    /// Puts the code there; `false` if there is no room for it.
    pub fn place_code(&mut self, name: &str, code: &str) -> bool {
        self.tree.place(&format!("{CODE}/{name}"), code.as_bytes().to_vec()).is_ok()
    }

    /// The files of the workspace, by their paths in it.
    pub fn files(&self) -> impl Iterator<Item = (&str, Vec<u8>)> {
        self.tree.below(WORKSPACE).filter_map(|(path, node)| match node {
            Node::File(contents) => Some((&path[WORKSPACE.len() + 1..], contents.borrow().clone())),
            Node::Directory => None,
        })
    }

    fn count_work(&mut self, bytes: usize) {
        self.work = self.work.saturating_add(bytes as u64);
    }

    /// How many bytes were moved since this was last asked.
    fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }
}

/// What a program says, up to a bound.
#[derive(Debug)]
pub struct Output {
    bytes: Vec<u8>,
    most: usize,
    left_out: u64,
}

impl Output {
    fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, left_out: 0 }
    }

    /// Keeps what there is room for, and says how many bytes that is.
    fn push(&mut self, bytes: &[u8]) -> usize {
        let (kept, left_out) = bytes.split_at(bytes.len().min(self.most - self.bytes.len()));
        self.bytes.extend_from_slice(kept);
        self.left_out = self.left_out.saturating_add(left_out.len() as u64);
        kept.len()
    }

    /// The text, and how many bytes there were beyond the bound.
    pub fn text(&self) -> (String, u64) {
        (String::from_utf8_lossy(&self.bytes).into_owned(), self.left_out)
    }
}
