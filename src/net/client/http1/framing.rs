//! Where a body ends.

use super::chunks::Chunks;
use super::error::Malformed;

/// How a body ends, and how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many bytes more.
    Length(u64),
    /// After the last chunk.
    Chunked(Chunks),
    /// As the server closes the connection.
    UntilClosed,
}

impl Framing {
    /// Whether nothing more belongs to the body.
    pub(super) fn has_ended(self) -> bool {
        match self {
            Self::Length(missing) => missing == 0,
            Self::Chunked(chunks) => chunks.has_ended(),
            Self::UntilClosed => false,
        }
    }

    /// Reads from `bytes`, adds what belongs to the body to `data`, and returns how many bytes were read: all, if the body
    /// goes on.
    pub(super) fn read(&mut self, bytes: &[u8], data: &mut Vec<u8>) -> Result<usize, Malformed> {
        match self {
            Self::Length(missing) => {
                let length = usize::try_from(*missing).map_or(bytes.len(), |missing| missing.min(bytes.len()));
                data.extend_from_slice(&bytes[..length]);
                *missing -= length as u64;
                Ok(length)
            }
            Self::Chunked(chunks) => chunks.read(bytes, data),
            Self::UntilClosed => {
                data.extend_from_slice(bytes);
                Ok(bytes.len())
            }
        }
    }
}
