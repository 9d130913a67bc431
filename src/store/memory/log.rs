//! The entries of a log in memory.

use bytes::Bytes;

/// A log. Its first entries may lie in one piece of memory: an entry of its own takes some seventy bytes more.
#[derive(Debug, Default)]
pub(super) struct Log {
    packed: Bytes,
    /// Where each entry in `packed` ends.
    ends: Box<[u32]>,
    entries: Vec<Bytes>,
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
        let packed = (skipped..self.ends.len()).map(|at| {
            let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
            self.packed.slice(begin as usize..self.ends[at] as usize)
        });
        packed.chain(self.entries.iter().skip(skipped.saturating_sub(self.ends.len())).cloned())
    }

    /// Puts all entries into one piece of memory. Returns what they were in before.
    pub(super) fn pack(&mut self) -> Self {
        let length: usize = self.packed.len() + self.entries.iter().map(Bytes::len).sum::<usize>();
        if self.entries.is_empty() || u32::try_from(length).is_err() {
            return Self::default();
        }
        let (mut packed, mut ends) = (Vec::with_capacity(length), Vec::with_capacity(self.len()));
        for entry in self.entries(0) {
            packed.extend_from_slice(&entry);
            ends.push(u32::try_from(packed.len()).unwrap_or(u32::MAX));
        }
        std::mem::replace(self, Self { packed: packed.into(), ends: ends.into(), entries: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_reads_alike_however_its_entries_lie() {
        let entries: Vec<Bytes> = ["one", "", "three", "4"].map(|entry| Bytes::from_static(entry.as_bytes())).into();
        for packed in 0..=entries.len() {
            for again in packed..=entries.len() {
                let mut log = Log::default();
                log.append(entries[..packed].to_vec());
                log.pack();
                log.append(entries[packed..again].to_vec());
                log.pack();
                log.append(entries[again..].to_vec());
                assert_eq!((log.len(), log.entries.len()), (4, 4 - again));
                for skipped in 0..6 {
                    let read: Vec<Bytes> = log.entries(skipped).collect();
                    assert_eq!(read, entries[skipped.min(4)..], "{packed} {again} {skipped}");
                }
            }
        }
    }
}
