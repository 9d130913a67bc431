//! A body in chunks: where each begins, and where the last one ends.
//!
//! The rules are kept to the letter. A server that breaks them may mean another end than a proxy before it does.

use super::error::Malformed;

/// Most bytes of what is skipped between two chunks (extensions), and after the last one (trailers).
const MAX_SKIPPED: u32 = 16 << 10;
/// Most digits of a chunk's size: more than any chunk has, and no overflow.
const MAX_DIGITS: u8 = 15;

/// How far a body in chunks is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Chunks {
    place: Place,
    /// How many bytes were skipped at this place.
    skipped: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a size of so many digits so far.
    Size {
        size: u64,
        digits: u8,
    },
    /// In what follows a size up to the end of the line.
    Extension {
        size: u64,
    },
    /// Between the two bytes that end the line of a size.
    SizeEnd {
        size: u64,
    },
    /// In a chunk of which so much is missing.
    Data {
        missing: u64,
    },
    /// Before the two bytes that end a chunk, and between them.
    DataEnd,
    DataEndLine,
    /// At the beginning of a line of the trailers, within one, and between the two bytes that end one.
    Trailer,
    TrailerLine,
    TrailerLineEnd,
    /// Between the two bytes that end the body.
    LastLine,
    Ended,
}

impl Default for Place {
    fn default() -> Self {
        Self::Size { size: 0, digits: 0 }
    }
}

impl Chunks {
    /// Whether nothing more belongs to the body.
    pub(super) fn has_ended(self) -> bool {
        self.place == Place::Ended
    }

    /// Reads from `bytes`, adds what belongs to the body to `data`, and returns how many bytes were read: all, if the body
    /// goes on.
    pub(super) fn read(&mut self, bytes: &[u8], data: &mut Vec<u8>) -> Result<usize, Malformed> {
        data.reserve(bytes.len());
        let mut at = 0;
        while at < bytes.len() && self.place != Place::Ended {
            if let Place::Data { missing } = self.place {
                let there = bytes.len() - at;
                let length = usize::try_from(missing).map_or(there, |missing| missing.min(there));
                data.extend_from_slice(&bytes[at..at + length]);
                at += length;
                let missing = missing - length as u64;
                self.place = if missing == 0 { Place::DataEnd } else { Place::Data { missing } };
            } else {
                self.place = self.after(bytes[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    /// The place after one byte that is no data.
    fn after(&mut self, byte: u8) -> Result<Place, Malformed> {
        const SIZE: Malformed = Malformed("a chunk has no size");
        const LINE: Malformed = Malformed("a chunk does not end as it should");
        if byte == b'\n' && matches!(self.place, Place::Extension { .. } | Place::Trailer | Place::TrailerLine) {
            return Err(LINE);
        }
        Ok(match (self.place, byte) {
            (Place::Size { digits: MAX_DIGITS, .. }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => return Err(SIZE),
            (Place::Size { size, digits }, b'0'..=b'9') => sized(size, byte - b'0', digits),
            (Place::Size { size, digits }, b'a'..=b'f') => sized(size, byte - b'a' + 10, digits),
            (Place::Size { size, digits }, b'A'..=b'F') => sized(size, byte - b'A' + 10, digits),
            (Place::Size { digits: 0, .. }, _) => return Err(SIZE),
            (Place::Size { size, .. } | Place::Extension { size }, b'\r') => Place::SizeEnd { size },
            (Place::Size { size, .. }, b';' | b' ' | b'\t') => Place::Extension { size },
            (Place::Size { .. }, _) => return Err(SIZE),
            (place @ Place::Extension { .. }, _) => self.skipping(place)?,
            (Place::SizeEnd { size: 0 }, b'\n') => self.counting_from_here(Place::Trailer),
            (Place::SizeEnd { size }, b'\n') => Place::Data { missing: size },
            (Place::DataEnd, b'\r') => Place::DataEndLine,
            (Place::DataEndLine, b'\n') => self.counting_from_here(Place::default()),
            (Place::Trailer, b'\r') => Place::LastLine,
            (Place::TrailerLine, b'\r') => Place::TrailerLineEnd,
            (Place::Trailer | Place::TrailerLine, _) => self.skipping(Place::TrailerLine)?,
            (Place::TrailerLineEnd, b'\n') => Place::Trailer,
            (Place::LastLine, b'\n') => Place::Ended,
            (
                Place::SizeEnd { .. }
                | Place::DataEnd
                | Place::DataEndLine
                | Place::TrailerLineEnd
                | Place::LastLine
                | Place::Data { .. }
                | Place::Ended,
                _,
            ) => return Err(LINE),
        })
    }

    fn counting_from_here(&mut self, place: Place) -> Place {
        self.skipped = 0;
        place
    }

    fn skipping(&mut self, place: Place) -> Result<Place, Malformed> {
        self.skipped += 1;
        if self.skipped > MAX_SKIPPED { Err(Malformed("too much lies between its chunks")) } else { Ok(place) }
    }
}

fn sized(size: u64, digit: u8, digits: u8) -> Place {
    Place::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a body holds that arrives in two pieces, and how much of it was read.
    fn read(body: &[u8], cut: usize) -> Result<(String, usize, bool), Malformed> {
        let (mut chunks, mut data) = (Chunks::default(), Vec::new());
        let mut at = chunks.read(&body[..cut], &mut data)?;
        if at == cut {
            at += chunks.read(&body[cut..], &mut data)?;
        }
        Ok((String::from_utf8(data).unwrap(), at, chunks.has_ended()))
    }

    #[test]
    fn chunks_are_joined_wherever_they_are_cut() {
        for (body, expected) in [
            ("0\r\n\r\n", ""),
            ("5\r\nhello\r\n0\r\n\r\n", "hello"),
            ("5;a=\"b\"\r\nhello\r\nA \r\n, you two.\r\n000\r\nx-trailer: y\r\nz: \r\n\r\n", "hello, you two."),
            ("2\r\n\r\n\r\n1\t;x\r\n0\r\n0;last\r\n\r\n", "\r\n0"),
        ] {
            let more = format!("{body}HTTP/1.1 200 OK");
            for cut in 0..=more.len() {
                assert_eq!(read(more.as_bytes(), cut), Ok((expected.into(), body.len(), true)), "{body:?} at {cut}");
            }
            for end in 0..body.len() {
                let (_, at, has_ended) = read(&body.as_bytes()[..end], end / 2).unwrap();
                assert_eq!((at, has_ended), (end, false), "{body:?} to {end}");
            }
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for body in [
            "\r\n",
            ";x\r\n",
            " 5\r\nhello\r\n",
            "-1\r\n",
            "+5\r\nhello",
            "0x5\r\nhello",
            "5 5\n",
            "5\nhello\n",
            "5;x\nhello",
            "5\rhello",
            "5\r\nhello0\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello\r0",
            "0\r\n\n",
            "0\r\nx: y\n\r\n",
            "0\r\nx: y\rz",
            "0\r\n\rx",
            "1000000000000000\r\n",
        ] {
            for cut in 0..=body.len() {
                assert!(read(body.as_bytes(), cut).is_err(), "{body:?} at {cut}");
            }
        }
    }

    #[test]
    fn what_lies_between_chunks_has_a_bound() {
        let most = MAX_SKIPPED as usize;
        let extension = |length: usize| format!("1;{}\r\n1\r\n", "x".repeat(length));
        assert!(read(extension(most).repeat(3).as_bytes(), 9).is_ok());
        assert!(read(extension(most + 1).as_bytes(), 9).is_err());
        let trailers = |count: usize| format!("0\r\n{}", "x\r\n".repeat(count));
        assert!(read(trailers(most).as_bytes(), 9).is_ok());
        assert!(read(trailers(most + 1).as_bytes(), 9).is_err());
    }
}
