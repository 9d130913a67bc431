//! The file of changes that redb has not synced yet.
//!
//! Each record is appended with one `write`, and synced if someone waits for that: the system keeps what was written when
//! the process is killed, the disk keeps what was synced when power is lost. Once redb has synced the same changes, the
//! next record is written at the beginning again. So the file keeps its size, and a sync writes the record alone, not
//! what the file system keeps about the file. It grows by [`STEP`] zeros at a time, which are written, because space that
//! is only reserved still changes the file system's records when it is first used.
//!
//! ```text
//! file     salt (16 bytes), frames as in `record.rs`, anything
//! ```
//!
//! The salt is drawn anew whenever the file is written from the beginning, and enters the checksum of each frame. So
//! nothing that lies behind the last record reads as one: no older record, and no value of a client that looks like one.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use uuid::Uuid;

use super::record::{Record, Salt, decode};

/// By how many bytes the file grows.
const STEP: usize = 1 << 20;

/// What the journal is written to. Tests have one that fails.
pub(super) trait Medium: Debug + Send {
    /// Writes all bytes at this position.
    fn write_at(&mut self, position: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes what was written survive a loss of power.
    fn sync(&mut self) -> io::Result<()>;
}

impl Medium for File {
    fn write_at(&mut self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(position))?;
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The journal, open for writing.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) medium: Box<dyn Medium>,
    /// The size of the file.
    allocated: u64,
    /// Where the next record goes. At 0 the salt goes before it.
    end: u64,
    salt: Salt,
}

impl Journal {
    /// Opens or creates the file and reads the whole records in it, up to the first that is torn. The next record is
    /// written to the beginning: redb must have synced these records before.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Vec<Record>)> {
        let mut file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let journal = Self { medium: Box::new(file), allocated: bytes.len() as u64, end: 0, salt: draw_salt() };
        Ok((journal, read(&bytes)))
    }

    /// What the checksum of the next record begins with.
    pub(super) fn salt(&self) -> &Salt {
        &self.salt
    }

    /// Where a record of so many bytes would end.
    pub(super) fn end_with(&self, record: &[u8]) -> u64 {
        self.end + self.salt_ahead().len() as u64 + record.len() as u64
    }

    /// Appends a record. After an error the record is void, and the next one overwrites it.
    pub(super) fn append(&mut self, record: &[u8]) -> io::Result<()> {
        let end = self.end_with(record);
        while self.allocated < end {
            self.medium.write_at(self.allocated, &vec![0; STEP])?;
            self.allocated += STEP as u64;
        }
        let bytes = [self.salt_ahead(), record].concat();
        self.medium.write_at(self.end, &bytes)?;
        self.end = end;
        Ok(())
    }

    /// Makes all records survive a loss of power. After an error it is unknown which of them do.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.medium.sync()
    }

    /// Forgets all records, which redb must have synced. The file is left as it is until the next record is appended:
    /// redb tells by their numbers that it has these.
    pub(super) fn clear(&mut self) {
        self.end = 0;
        self.salt = draw_salt();
    }

    /// Bytes of all records.
    pub(super) fn len(&self) -> u64 {
        self.end
    }

    fn salt_ahead(&self) -> &[u8] {
        if self.end == 0 { &self.salt } else { &[] }
    }
}

fn draw_salt() -> Salt {
    Uuid::now_v7().into_bytes()
}

/// The records of a journal's file.
fn read(bytes: &[u8]) -> Vec<Record> {
    let Some((salt, mut frames)) = bytes.split_first_chunk() else { return Vec::new() };
    std::iter::from_fn(|| decode(salt, &mut frames)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::record::Encoder;
    use super::*;

    /// Where each record of a journal's file ends, after where the first begins.
    pub(in crate::store::embedded) fn ends(bytes: &[u8]) -> Vec<usize> {
        let (salt, mut frames) = bytes.split_first_chunk().unwrap();
        let mut ends = vec![salt.len()];
        while decode(salt, &mut frames).is_some() {
            ends.push(bytes.len() - frames.len());
        }
        ends
    }

    fn append(journal: &mut Journal, sequence: u64) -> io::Result<()> {
        let record = Encoder::new(sequence, 0).finish(journal.salt());
        journal.append(&record)
    }

    fn sequences(path: &Path) -> Vec<u64> {
        Journal::open(path).unwrap().1.iter().map(|record| record.sequence).collect()
    }

    #[test]
    fn records_are_read_up_to_the_first_torn_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        append(&mut journal, 1).unwrap();
        append(&mut journal, 2).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let [_, first, second] = ends(&whole)[..] else { panic!("two records") };
        for end in 0..=second {
            // What was not written is missing, or it is what lay there before.
            let filled = [&whole[..end], &vec![0xa5; second - end]].concat();
            for torn in [&whole[..end], &filled] {
                std::fs::write(&path, torn).unwrap();
                let expected = u64::from(end >= first) + u64::from(end == second);
                assert_eq!(sequences(&path), (1..=expected).collect::<Vec<_>>(), "cut at {end}");
            }
        }
    }

    #[test]
    fn file_grows_by_whole_steps_and_is_used_again_from_the_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        for sequence in 1..=3 {
            append(&mut journal, sequence).unwrap();
        }
        let size = || std::fs::metadata(&path).unwrap().len();
        assert_eq!((size(), sequences(&path)), (STEP as u64, vec![1, 2, 3]));
        journal.clear();
        assert_eq!((journal.len(), sequences(&path)), (0, vec![1, 2, 3]));
        append(&mut journal, 4).unwrap();
        assert_eq!((size(), sequences(&path)), (STEP as u64, vec![4]), "the records behind are none");
        drop(journal);

        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.append(&vec![0; STEP]).unwrap();
        assert_eq!(size(), 2 * STEP as u64);
    }

    #[test]
    fn what_lies_behind_the_last_record_is_none_however_much_it_looks_like_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        append(&mut journal, 1).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let end = ends(&bytes)[1];
        for (salt, expected) in [([7; 16], vec![1]), (*journal.salt(), vec![1, 2])] {
            let record = Encoder::new(2, 0).finish(&salt);
            bytes[end..end + record.len()].copy_from_slice(&record);
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(sequences(&path), expected, "salt {salt:?}");
        }
    }

    #[test]
    fn record_that_could_not_be_written_is_overwritten_by_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        append(&mut journal, 1).unwrap();
        let mut torn = std::fs::read(&path).unwrap();
        // A handle that cannot write stands for a full disk; what it would have torn is put there by hand.
        let writable = std::mem::replace(&mut journal.medium, Box::new(File::open(&path).unwrap()));
        assert!(append(&mut journal, 2).is_err());
        journal.medium = writable;
        let end = ends(&torn)[1];
        torn[end..end + 20].copy_from_slice(&Encoder::new(2, 0).finish(journal.salt())[..20]);
        std::fs::write(&path, torn).unwrap();
        append(&mut journal, 3).unwrap();
        assert_eq!(sequences(&path), [1, 3]);
    }
}
