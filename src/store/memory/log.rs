//! The entries of a log in memory.

use std::fmt;
use std::ops::RangeInclusive;

use bytes::Bytes;
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress, get_maximum_output_size};

/// How long a log is that is compressed, in bytes. Of a shorter one less would be saved than it takes: a log of one answer
/// would lose half a KiB for a fourteenth of all instructions of its run. During that of a longer one others would wait for the
/// store's lock: at this length it is held for some 50 µs.
const COMPRESSED: RangeInclusive<usize> = 2 << 10..=60 << 10;

/// A log. Its first entries may lie in one piece of memory: an entry of its own takes some seventy bytes more.
#[derive(Debug, Default)]
pub(super) struct Log {
    packed: Packed,
    /// Where each entry in `packed` ends.
    ends: Box<[u32]>,
    entries: Vec<Bytes>,
}

/// Entries in one piece of memory.
#[derive(Debug)]
enum Packed {
    AsTheyAre(Bytes),
    /// The events of a run repeat names, ids and texts: compressed they take a third.
    Compressed(Box<[u8]>),
}

impl Default for Packed {
    fn default() -> Self {
        Self::AsTheyAre(Bytes::new())
    }
}

impl Packed {
    /// The bytes, of which there are so many.
    fn bytes(&self, length: usize) -> Bytes {
        match self {
            Self::AsTheyAre(bytes) => bytes.clone(),
            Self::Compressed(compressed) => {
                decompress(compressed, length).expect("it was compressed from so many bytes").into()
            }
        }
    }
}

/// Packs logs. What it works with is kept for the next one.
#[derive(Default)]
pub(super) struct Packer {
    table: CompressTable,
    written: Vec<u8>,
    compressed: Vec<u8>,
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl Packer {
    /// Packs what these are together, of so many bytes. Notes where each ends.
    fn pack(&mut self, entries: impl Iterator<Item = Bytes>, length: usize, ends: &mut Vec<u32>) -> Packed {
        let is_compressed = COMPRESSED.contains(&length);
        let mut own = if is_compressed { Vec::new() } else { Vec::with_capacity(length) };
        let written = if is_compressed { &mut self.written } else { &mut own };
        written.clear();
        for entry in entries {
            written.extend_from_slice(&entry);
            ends.push(u32::try_from(written.len()).unwrap_or(u32::MAX));
        }
        if !is_compressed {
            return Packed::AsTheyAre(own.into());
        }
        let room = get_maximum_output_size(self.written.len());
        if self.compressed.len() < room {
            self.compressed.resize(room, 0);
        }
        match compress_into_with_table(&self.written, &mut self.compressed, &mut self.table) {
            Ok(length) if length < self.written.len() / 8 * 7 => Packed::Compressed(self.compressed[..length].into()),
            Ok(_) | Err(_) => Packed::AsTheyAre(Bytes::copy_from_slice(&self.written)),
        }
    }
}

impl Log {
    pub(super) fn len(&self) -> usize {
        self.ends.len() + self.entries.len()
    }

    pub(super) fn append(&mut self, entries: Vec<Bytes>) {
        self.entries.extend(entries);
    }

    /// The entries after the first `skipped`.
    pub(super) fn entries(&self, skipped: usize) -> impl Iterator<Item = Bytes> {
        let bytes = if skipped < self.ends.len() { self.packed.bytes(self.packed_bytes()) } else { Bytes::new() };
        let packed = (skipped..self.ends.len()).map(move |at| {
            let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
            bytes.slice(begin as usize..self.ends[at] as usize)
        });
        packed.chain(self.entries.iter().skip(skipped.saturating_sub(self.ends.len())).cloned())
    }

    /// Puts all entries into one piece of memory. Returns what they were in before.
    pub(super) fn pack(&mut self, packer: &mut Packer) -> Self {
        let length: usize = self.packed_bytes() + self.entries.iter().map(Bytes::len).sum::<usize>();
        if self.entries.is_empty() || u32::try_from(length).is_err() {
            return Self::default();
        }
        let mut ends = Vec::with_capacity(self.len());
        let packed = packer.pack(self.entries(0), length, &mut ends);
        std::mem::replace(self, Self { packed, ends: ends.into(), entries: Vec::new() })
    }

    /// How many bytes the packed entries have.
    fn packed_bytes(&self) -> usize {
        self.ends.last().map_or(0, |end| *end as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_reads_alike_however_its_entries_lie() {
        let mut packer = Packer::default();
        let entries: Vec<Bytes> = ["one", "", "three", "4"].map(|entry| Bytes::from_static(entry.as_bytes())).into();
        for packed in 0..=entries.len() {
            for again in packed..=entries.len() {
                let mut log = Log::default();
                log.append(entries[..packed].to_vec());
                log.pack(&mut packer);
                log.append(entries[packed..again].to_vec());
                log.pack(&mut packer);
                log.append(entries[again..].to_vec());
                assert_eq!((log.len(), log.entries.len()), (4, 4 - again));
                for skipped in 0..6 {
                    let read: Vec<Bytes> = log.entries(skipped).collect();
                    assert_eq!(read, entries[skipped.min(4)..], "{packed} {again} {skipped}");
                }
            }
        }
    }

    /// What the entries are, and whether they are compressed once packed.
    #[test]
    fn a_log_that_repeats_itself_is_compressed_unless_it_is_short_or_long() {
        let event = |number: usize| format!(r#"{{"n":{number},"e":{{"step_completed":{{"usage":{{"tokens":7}}}}}}}}"#);
        let letter =
            |n: u64| char::from(b' ' + u8::try_from((n * n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58).unwrap());
        let noise = |_| (0..3_000).map(letter).collect::<String>();
        let mut packer = Packer::default();
        let mut log_of = |count, entry: &dyn Fn(usize) -> String| {
            let entries: Vec<Bytes> = (0..count).map(|number| entry(number).into()).collect();
            let mut log = Log::default();
            log.append(entries.clone());
            log.pack(&mut packer);
            assert_eq!(log.entries(0).collect::<Vec<_>>(), entries);
            assert_eq!(log.entries(count - 1).collect::<Vec<_>>(), entries[count - 1..]);
            match log.packed {
                Packed::AsTheyAre(_) => None,
                Packed::Compressed(compressed) => Some(compressed.len()),
            }
        };
        let [shortest, longest] = [COMPRESSED.start(), COMPRESSED.end()].map(|length| length / event(0).len() + 1);
        assert_eq!(log_of(shortest / 2, &event), None, "short");
        assert!(log_of(shortest, &event).is_some_and(|length| length < shortest * event(0).len() / 3));
        assert_eq!(log_of(longest, &event), None, "long");
        assert_eq!(log_of(1, &noise), None, "says nothing twice");
    }
}
