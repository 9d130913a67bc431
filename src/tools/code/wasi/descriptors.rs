//! What a program has open.

use super::errno::Errno;
use super::tree::Contents;

/// Most descriptors at once.
const MAX_OPEN: usize = 128;

/// Something that a program has open.
#[derive(Debug)]
pub enum Open {
    /// Nothing comes in.
    Input,
    /// What the program says.
    Output,
    /// What the program says of its errors.
    Errors,
    /// A directory.
    Directory {
        /// What it lies in: no name leads out of it.
        mount: &'static str,
        /// Where it is.
        path: String,
        /// The name that a program knows a given directory by.
        given_as: Option<&'static str>,
    },
    /// A file.
    File(OpenFile),
}

/// A file that a program has open.
#[derive(Debug)]
pub struct OpenFile {
    /// Its bytes.
    pub contents: Contents,
    /// Where the next bytes are read or written.
    pub position: u64,
    /// Whether all bytes are written at the end.
    pub appends: bool,
    /// Whether it may be read.
    pub reads: bool,
    /// Whether it may be written.
    pub writes: bool,
}

/// All of them, by their numbers.
#[derive(Debug)]
pub struct Descriptors(Vec<Option<Open>>);

impl Descriptors {
    /// Input, output, errors, and these directories: the name that the program knows each by, and its path.
    pub fn new(given: &[(&'static str, &'static str)]) -> Self {
        let directories = given.iter().map(|(given_as, mount)| Open::Directory {
            mount,
            path: (*mount).to_owned(),
            given_as: Some(given_as),
        });
        Self([Open::Input, Open::Output, Open::Errors].into_iter().chain(directories).map(Some).collect())
    }

    /// What has this number.
    pub fn get(&self, number: u32) -> Result<&Open, Errno> {
        self.0.get(number as usize).and_then(Option::as_ref).ok_or(Errno::BadDescriptor)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, number: u32) -> Result<&mut Open, Errno> {
        self.0.get_mut(number as usize).and_then(Option::as_mut).ok_or(Errno::BadDescriptor)
    }

    /// The file of this number.
    pub fn file(&mut self, number: u32) -> Result<&mut OpenFile, Errno> {
        match self.get_mut(number)? {
            Open::File(file) => Ok(file),
            Open::Directory { .. } => Err(Errno::IsDirectory),
            Open::Input | Open::Output | Open::Errors => Err(Errno::NoSeek),
        }
    }

    /// Whether another can be opened.
    pub fn check_room(&self) -> Result<(), Errno> {
        if self.0.len() < MAX_OPEN || self.0.iter().any(Option::is_none) { Ok(()) } else { Err(Errno::TooManyOpen) }
    }

    /// Gives it the lowest number that is free.
    pub fn add(&mut self, open: Open) -> Result<u32, Errno> {
        let free = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        if free >= MAX_OPEN {
            return Err(Errno::TooManyOpen);
        }
        if free == self.0.len() {
            self.0.push(None);
        }
        self.0[free] = Some(open);
        u32::try_from(free).map_err(|_| Errno::TooManyOpen)
    }

    /// Takes what has this number; the number is free then.
    pub fn close(&mut self, number: u32) -> Result<Open, Errno> {
        self.0.get_mut(number as usize).and_then(Option::take).ok_or(Errno::BadDescriptor)
    }

    /// Gives what has the first number the second one; what had that is returned.
    pub fn renumber(&mut self, from: u32, to: u32) -> Result<Option<Open>, Errno> {
        self.get(to)?;
        if from == to {
            return Ok(None);
        }
        let moved = self.close(from)?;
        Ok(self.0.get_mut(to as usize).and_then(|place| place.replace(moved)))
    }
}
