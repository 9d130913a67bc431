//! How a batch of changes is written to the journal, as bytes.
//!
//! ```text
//! frame    length of the payload (8 bytes), first 8 bytes of the SHA-256 of the journal's salt and the payload, payload
//! payload  sequence number, time in ms, changes until the end
//! change   partition, number of writes, writes
//! write    kind (1 byte), name, what the kind needs
//! ```
//!
//! Numbers are 8 bytes, little-endian; texts and values have their length in front. Checks are not
//! kept: they held. Reading is total: whatever is no whole frame reads as the end.

use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::tables::{NEVER, millis};
use crate::store::{Key, Partition, Write};

/// Changes that are committed together.
#[derive(Debug, Clone)]
pub(super) struct Record {
    /// One more than that of the record before.
    pub(super) sequence: u64,
    /// When the changes were made, in ms since the Unix epoch: what had expired then had expired for them.
    pub(super) now: u64,
    /// What changed, in order.
    pub(super) changes: Vec<(Partition, Vec<Write>)>,
}

/// What the journal's checksums begin with.
pub(super) type Salt = [u8; 16];

/// Bytes before the payload.
const HEADER: usize = 16;

/// Writes the frame of a batch.
pub(super) struct Encoder(Vec<u8>);

impl Encoder {
    pub(super) fn new(sequence: u64, now: u64) -> Self {
        let mut encoder = Self(vec![0; HEADER]);
        encoder.number(sequence);
        encoder.number(now);
        encoder
    }

    pub(super) fn change(&mut self, partition: &Partition, writes: &[Write]) {
        self.bytes(partition.as_str().as_bytes());
        self.number(writes.len() as u64);
        for write in writes {
            self.write(write);
        }
    }

    /// The whole frame.
    pub(super) fn finish(self, salt: &Salt) -> Vec<u8> {
        let mut frame = self.0;
        let checksum = checksum(salt, &frame[HEADER..]);
        let length = (frame.len() - HEADER) as u64;
        frame[..8].copy_from_slice(&length.to_le_bytes());
        frame[8..HEADER].copy_from_slice(&checksum);
        frame
    }

    fn write(&mut self, write: &Write) {
        match write {
            Write::Put { key, value, ttl } => {
                self.head(1, key);
                self.number(ttl.map_or(NEVER, millis));
                self.bytes(value);
            }
            Write::Delete { key } => self.head(2, key),
            Write::Append { log, after, entries } => {
                self.head(3, log);
                self.number(*after);
                self.number(entries.len() as u64);
                for entry in entries {
                    self.bytes(entry);
                }
            }
            Write::DeleteLog { log } => self.head(4, log),
            Write::ExpireLog { log, ttl } => {
                self.head(5, log);
                self.number(millis(*ttl));
            }
            Write::Add { counter, delta, ceiling: _ } => {
                self.head(6, counter);
                self.0.extend(delta.to_le_bytes());
            }
            Write::DeleteCounter { counter } => self.head(7, counter),
            Write::ExpireCounter { counter, ttl } => {
                self.head(8, counter);
                self.number(millis(*ttl));
            }
        }
    }

    fn head(&mut self, kind: u8, name: &Key) {
        self.0.push(kind);
        self.bytes(name.as_bytes());
    }

    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }
}

/// Reads the first frame and leaves what follows it; `None` at the end of the whole frames.
pub(super) fn decode(salt: &Salt, frames: &mut &[u8]) -> Option<Record> {
    let mut rest = Decoder(frames);
    let length = rest.length()?;
    let expected: [u8; 8] = rest.array()?;
    let payload = rest.take(length)?;
    if checksum(salt, payload) != expected {
        return None;
    }
    let record = Decoder(payload).record()?;
    *frames = rest.0;
    Some(record)
}

fn checksum(salt: &Salt, payload: &[u8]) -> [u8; 8] {
    let digest = Sha256::new().chain_update(salt).chain_update(payload).finalize();
    std::array::from_fn(|index| digest[index])
}

struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    fn record(mut self) -> Option<Record> {
        let (sequence, now) = (self.number()?, self.number()?);
        let mut changes = Vec::new();
        while !self.0.is_empty() {
            let partition = Partition::new(self.text()?);
            let writes = (0..self.number()?).map(|_| self.write()).collect::<Option<_>>()?;
            changes.push((partition, writes));
        }
        Some(Record { sequence, now, changes })
    }

    fn write(&mut self) -> Option<Write> {
        let [kind] = self.array()?;
        let name = self.text()?;
        Some(match kind {
            1 => {
                let ttl = Some(self.number()?).filter(|ttl| *ttl != NEVER).map(Duration::from_millis);
                Write::Put { key: name, value: self.value()?, ttl }
            }
            2 => Write::Delete { key: name },
            3 => {
                let after = self.number()?;
                let entries = (0..self.number()?).map(|_| self.value()).collect::<Option<_>>()?;
                Write::Append { log: name, after, entries }
            }
            4 => Write::DeleteLog { log: name },
            5 => Write::ExpireLog { log: name, ttl: Duration::from_millis(self.number()?) },
            6 => Write::Add { counter: name, delta: i64::from_le_bytes(self.array()?), ceiling: None },
            7 => Write::DeleteCounter { counter: name },
            8 => Write::ExpireCounter { counter: name, ttl: Duration::from_millis(self.number()?) },
            _ => return None,
        })
    }

    fn text(&mut self) -> Option<Key> {
        let length = self.length()?;
        std::str::from_utf8(self.take(length)?).ok().map(Key::from)
    }

    fn value(&mut self) -> Option<Bytes> {
        let length = self.length()?;
        self.take(length).map(Bytes::copy_from_slice)
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = [3; 16];

    fn every_write() -> Vec<Write> {
        let name = |name: &str| Key::from(name);
        let ttl = Duration::from_millis(1500);
        vec![
            Write::Put { key: name("a"), value: Bytes::from_static(b"\0\xff"), ttl: None },
            Write::Put { key: name(""), value: Bytes::new(), ttl: Some(ttl) },
            Write::Delete { key: name("a/b") },
            Write::Append { log: name("log"), after: 7, entries: vec![Bytes::from_static(b"x"), Bytes::new()] },
            Write::DeleteLog { log: name("log") },
            Write::ExpireLog { log: name("log"), ttl },
            Write::Add { counter: name("spent"), delta: -5, ceiling: None },
            Write::DeleteCounter { counter: name("spënt") },
            Write::ExpireCounter { counter: name("spent"), ttl },
        ]
    }

    fn frame() -> Vec<u8> {
        let mut encoder = Encoder::new(9, 1_000);
        encoder.change(&Partition::new("acme/session/s"), &every_write());
        encoder.change(&Partition::new(""), &[]);
        encoder.finish(&SALT)
    }

    #[test]
    fn record_reads_back() {
        let mut frames = [frame(), frame()].concat();
        frames.extend(b"rest");
        let mut rest = frames.as_slice();
        for _ in 0..2 {
            let record = decode(&SALT, &mut rest).unwrap();
            let expected = [(Partition::new("acme/session/s"), every_write()), (Partition::new(""), vec![])];
            assert_eq!((record.sequence, record.now), (9, 1_000));
            assert_eq!(format!("{:?}", record.changes), format!("{expected:?}"));
        }
        assert_eq!(rest, b"rest");
        assert!(decode(&SALT, &mut rest).is_none());
    }

    #[test]
    fn no_part_and_no_altered_frame_reads_as_a_record() {
        let frame = frame();
        for end in 0..frame.len() {
            assert!(decode(&SALT, &mut &frame[..end]).is_none(), "cut at {end}");
        }
        assert!(decode(&[4; 16], &mut frame.as_slice()).is_none(), "of another salt");
        for position in 0..frame.len() {
            let mut altered = frame.clone();
            altered[position] ^= 1;
            assert!(decode(&SALT, &mut altered.as_slice()).is_none(), "altered at {position}");
        }
    }
}
