//! The memory of a program, and what its calls may do with it. Every address comes from the program, so none is believed.

use super::Host;
use super::errno::Errno;

/// What a call of the program works with.
#[derive(Debug)]
pub struct Guest<'a> {
    /// The memory of the program.
    pub memory: &'a mut [u8],
    /// What the program has beside its memory.
    pub host: &'a mut Host,
}

/// Most pieces of memory that one call may name.
const MAX_PIECES: u32 = 1024;

/// A piece of the memory: where it begins, and how long it is.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    at: u32,
    length: u32,
}

impl Piece {
    /// How many bytes it has.
    pub fn length(self) -> usize {
        self.length as usize
    }
}

/// The bytes of a piece of memory.
pub fn bytes_of(memory: &[u8], piece: Piece) -> Result<&[u8], Errno> {
    let at = piece.at as usize;
    let end = at.checked_add(piece.length()).ok_or(Errno::Fault)?;
    memory.get(at..end).ok_or(Errno::Fault)
}

impl Guest<'_> {
    /// These bytes of the memory.
    pub fn bytes(&self, at: u32, length: u32) -> Result<&[u8], Errno> {
        bytes_of(self.memory, Piece { at, length })
    }

    /// The same, to be written; the work is counted.
    pub fn bytes_mut(&mut self, at: u32, length: u32) -> Result<&mut [u8], Errno> {
        let at = at as usize;
        let end = at.checked_add(length as usize).ok_or(Errno::Fault)?;
        self.host.count_work(length as usize);
        self.memory.get_mut(at..end).ok_or(Errno::Fault)
    }

    /// A number of four bytes.
    pub fn u32_at(&self, at: u32) -> Result<u32, Errno> {
        let bytes = self.bytes(at, 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| Errno::Fault)?))
    }

    /// Writes bytes.
    pub fn put(&mut self, at: u32, bytes: &[u8]) -> Result<(), Errno> {
        let length = u32::try_from(bytes.len()).map_err(|_| Errno::Overflow)?;
        self.bytes_mut(at, length)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes a number of four bytes.
    pub fn put_u32(&mut self, at: u32, value: u32) -> Result<(), Errno> {
        self.put(at, &value.to_le_bytes())
    }

    /// Writes a length.
    pub fn put_length(&mut self, at: u32, length: usize) -> Result<(), Errno> {
        self.put_u32(at, u32::try_from(length).map_err(|_| Errno::Overflow)?)
    }

    /// Writes a number of eight bytes.
    pub fn put_u64(&mut self, at: u32, value: u64) -> Result<(), Errno> {
        self.put(at, &value.to_le_bytes())
    }

    /// The pieces that a list names, all of which are in the memory.
    pub fn pieces(&self, list: u32, count: u32) -> Result<Vec<Piece>, Errno> {
        if count > MAX_PIECES {
            return Err(Errno::Invalid);
        }
        let mut pieces = Vec::with_capacity(count as usize);
        for index in 0..count {
            let entry = list.checked_add(index * 8).ok_or(Errno::Fault)?;
            let piece =
                Piece { at: self.u32_at(entry)?, length: self.u32_at(entry.checked_add(4).ok_or(Errno::Fault)?)? };
            self.bytes(piece.at, piece.length)?;
            pieces.push(piece);
        }
        Ok(pieces)
    }

    /// Fills pieces with these bytes, in their order.
    pub fn fill(&mut self, pieces: &[Piece], bytes: &[u8]) -> Result<(), Errno> {
        let mut rest = bytes;
        for piece in pieces {
            let (now, later) = rest.split_at(rest.len().min(piece.length()));
            self.put(piece.at, now)?;
            rest = later;
        }
        Ok(())
    }

    /// A path, which must be text.
    pub fn path(&mut self, at: u32, length: u32) -> Result<String, Errno> {
        if length as usize > super::tree::MAX_PATH {
            return Err(Errno::NameTooLong);
        }
        self.host.count_work(length as usize);
        let text = std::str::from_utf8(self.bytes(at, length)?).map_err(|_| Errno::Invalid)?;
        if text.contains('\0') {
            return Err(Errno::Invalid);
        }
        Ok(text.to_owned())
    }
}
