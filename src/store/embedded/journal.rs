//! The file of changes that were acknowledged as written and not synced yet: redb has these only in memory.
//!
//! Each record is appended with one `write` and never synced: the system keeps it when the process is killed. Once redb
//! has synced, the file is emptied. That may be interrupted or fail, so nothing depends on it: records have sequence
//! numbers, and redb stores the number of the last record that it has.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use super::record::{Record, decode};

/// The journal, open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) file: File,
    /// Bytes of whole records.
    len: u64,
    /// Whether the file may be longer than `len`.
    torn: bool,
}

impl Journal {
    /// Opens or creates the file and reads the whole records in it, up to the first that is torn.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Vec<Record>)> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let mut frames = Vec::new();
        file.read_to_end(&mut frames)?;
        let mut rest = frames.as_slice();
        let records = std::iter::from_fn(|| decode(&mut rest)).collect();
        let len = (frames.len() - rest.len()) as u64;
        Ok((Self { file, len, torn: !rest.is_empty() }, records))
    }

    /// Appends a record. After an error the record is void, and the next one overwrites it.
    pub(super) fn append(&mut self, record: &[u8]) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.len)?;
        }
        self.torn = true;
        self.file.write_all(record)?;
        self.torn = false;
        self.len += record.len() as u64;
        Ok(())
    }

    /// Removes all records.
    pub(super) fn clear(&mut self) {
        if self.len > 0 || self.torn {
            self.len = 0;
            self.torn = self.file.set_len(0).is_err();
        }
    }

    /// Bytes of all records.
    pub(super) fn len(&self) -> u64 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Encoder;
    use super::*;

    fn record(sequence: u64) -> Vec<u8> {
        Encoder::new(sequence, 0).finish()
    }

    fn sequences(path: &Path) -> Vec<u64> {
        Journal::open(path).unwrap().1.iter().map(|record| record.sequence).collect()
    }

    #[test]
    fn records_are_read_up_to_the_first_torn_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.append(&record(1)).unwrap();
        journal.append(&record(2)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let first = record(1).len();
        for end in 0..=whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            let expected = u64::from(end >= first) + u64::from(end == whole.len());
            assert_eq!(sequences(&path), (1..=expected).collect::<Vec<_>>(), "cut at {end}");
        }
    }

    #[test]
    fn appending_after_a_torn_record_takes_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        std::fs::write(&path, [record(1), record(2)[..20].to_vec()].concat()).unwrap();
        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.append(&record(3)).unwrap();
        assert_eq!(sequences(&path), [1, 3]);
    }

    #[test]
    fn failed_append_and_failed_clear_are_made_good_by_the_next_append() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.append(&record(1)).unwrap();

        // A handle that cannot write stands for a full disk; what it would have torn is put there by hand.
        let writable = std::mem::replace(&mut journal.file, File::open(&path).unwrap());
        assert!(journal.append(&record(2)).is_err());
        journal.file = writable;
        std::fs::write(&path, [record(1), record(2)[..20].to_vec()].concat()).unwrap();
        journal.append(&record(3)).unwrap();
        assert_eq!(sequences(&path), [1, 3]);

        let writable = std::mem::replace(&mut journal.file, File::open(&path).unwrap());
        journal.clear();
        journal.file = writable;
        assert_eq!(journal.len(), 0);
        journal.append(&record(4)).unwrap();
        assert_eq!(sequences(&path), [4]);
    }
}
