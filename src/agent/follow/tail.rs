//! The newest records of a run that this process drives, shared with its readers.
//!
//! The tail holds only records that the store has too. So a reader that falls behind the tail reads from the store,
//! and a slow reader never delays the run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::types::Record;

/// How many records are kept for readers that are a little behind.
const CAPACITY: usize = 512;
/// How many bytes they take at most, as they are stored. The newest is kept whatever it takes.
const CAPACITY_BYTES: usize = 256 << 10;

/// The newest records, and who reads them.
#[derive(Debug)]
pub struct Tail {
    kept: Mutex<Kept>,
    head: watch::Sender<Head>,
    readers: watch::Sender<Readers>,
    /// How far each reader is: the number of the last record that it has.
    places: Mutex<Vec<Arc<AtomicU64>>>,
}

/// Who reads a tail.
#[derive(Debug, Clone, Copy)]
pub struct Readers {
    count: usize,
    /// How many of them pass on what they read at once.
    streaming: usize,
    /// Since when there is no reader; `None` while there is one.
    pub alone_since: Option<Instant>,
}

/// Records without gaps, and how many bytes each takes in the log.
#[derive(Debug, Default)]
struct Kept {
    records: VecDeque<(Arc<Record>, usize)>,
    bytes: usize,
    /// The number of the last record that was dropped or never kept.
    before: u64,
}

/// How far the log goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    seq: u64,
    closed: bool,
}

impl Default for Tail {
    /// A tail of a run of which nothing is stored.
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            head: watch::Sender::new(Head { seq: 0, closed: false }),
            readers: watch::Sender::new(Readers { count: 0, streaming: 0, alone_since: Some(Instant::now()) }),
            places: Mutex::default(),
        }
    }
}

impl Tail {
    /// Adds records that are stored, with the bytes that each takes, and wakes the readers.
    pub fn push(&self, records: impl IntoIterator<Item = (Arc<Record>, usize)>) {
        let mut last = None;
        {
            let mut kept = self.kept.lock();
            for (record, bytes) in records.into_iter().filter(|(record, _)| record.event.is_public()) {
                last = Some(record.seq);
                kept.push(record, bytes);
            }
        }
        if let Some(seq) = last {
            self.head.send_modify(|head| head.seq = seq);
        }
    }

    /// Says that this process adds nothing more.
    pub fn close(&self) {
        self.head.send_modify(|head| head.closed = true);
    }

    /// Whether this process adds nothing more.
    pub fn is_closed(&self) -> bool {
        self.head.borrow().closed
    }

    /// The number of the last public record.
    pub fn last(&self) -> u64 {
        self.head.borrow().seq
    }

    /// Counts a reader until the returned guard is dropped.
    pub fn reader(self: &Arc<Self>) -> Reader {
        self.readers.send_modify(|readers| {
            readers.count += 1;
            readers.streaming += 1;
            readers.alone_since = None;
        });
        // Where it begins to read is known once it does.
        let place = Arc::new(AtomicU64::new(u64::MAX));
        self.places.lock().push(place.clone());
        Reader { tail: self.clone(), head: self.head.subscribe(), streams: true, place }
    }

    /// How many events the reader has not taken that is furthest behind.
    pub fn reader_lag(&self) -> u64 {
        let furthest = self.places.lock().iter().map(|place| place.load(Ordering::Relaxed)).min();
        furthest.map_or(0, |place| self.last().saturating_sub(place))
    }

    /// Whether what is said is to be shown at once: unless all that read here wait for the run's end. Without a reader
    /// here, one may read at another replica.
    pub fn is_streamed(&self) -> bool {
        let readers = self.readers.borrow();
        readers.streaming > 0 || readers.count == 0
    }

    /// Who reads, and its changes.
    pub fn readers(&self) -> watch::Receiver<Readers> {
        self.readers.subscribe()
    }
}

impl Kept {
    /// Adds the newest record, and drops old ones to make room for it.
    fn push(&mut self, record: Arc<Record>, bytes: usize) {
        while self.records.len() == CAPACITY || self.bytes.saturating_add(bytes) > CAPACITY_BYTES {
            let Some((dropped, bytes)) = self.records.pop_front() else { break };
            self.before = dropped.seq;
            self.bytes -= bytes;
        }
        self.bytes += bytes;
        self.records.push_back((record, bytes));
    }
}

/// One reader of a tail.
#[derive(Debug)]
pub struct Reader {
    tail: Arc<Tail>,
    head: watch::Receiver<Head>,
    /// Whether it passes on what it reads at once.
    streams: bool,
    place: Arc<AtomicU64>,
}

/// What a reader finds after a record that it has.
#[derive(Debug)]
pub enum Found {
    /// The next public records.
    Records(Vec<Arc<Record>>),
    /// The next records are in the log; the tail no longer has them.
    InTheLog,
    /// Nothing yet.
    NothingYet,
    /// Nothing, and nothing will come.
    Closed,
}

impl Reader {
    /// The same, of a reader that passes nothing on before the run ends.
    #[must_use]
    pub fn waiting_for_the_end(mut self) -> Self {
        let streamed = std::mem::replace(&mut self.streams, false);
        self.tail.readers.send_if_modified(|readers| {
            readers.streaming -= usize::from(streamed);
            // Nothing that is waited for.
            false
        });
        self
    }

    /// The public records after number `seq`.
    pub fn read(&mut self, seq: u64) -> Found {
        self.place.store(seq, Ordering::Relaxed);
        let head = *self.head.borrow_and_update();
        let kept = self.tail.kept.lock();
        if seq < kept.before {
            return Found::InTheLog;
        }
        let have = usize::try_from(seq - kept.before).unwrap_or(usize::MAX);
        let records: Vec<_> = kept.records.iter().skip(have).map(|(record, _)| record.clone()).collect();
        match (records.is_empty(), head.closed) {
            (false, _) => Found::Records(records),
            (true, true) => Found::Closed,
            (true, false) => Found::NothingYet,
        }
    }

    /// Returns once something changed since the last [`Reader::read`].
    pub async fn changed(&mut self) {
        // The sender lives in `self.tail`, so this cannot fail.
        let _ = self.head.changed().await;
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.tail.places.lock().retain(|place| !Arc::ptr_eq(place, &self.place));
        self.tail.readers.send_modify(|readers| {
            readers.count -= 1;
            readers.streaming -= usize::from(self.streams);
            readers.alone_since = (readers.count == 0).then(Instant::now);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Event;

    fn record(seq: u64) -> Arc<Record> {
        Arc::new(Record { seq, at_ms: 0, event: Event::RunStarted })
    }

    #[test]
    fn a_tail_is_streamed_unless_all_its_readers_wait_for_the_end() {
        let tail = Arc::<Tail>::default();
        assert!(tail.is_streamed(), "others may read elsewhere");
        let unary = tail.reader().waiting_for_the_end();
        assert!(!tail.is_streamed());
        let streaming = tail.reader();
        assert!(tail.is_streamed());
        drop(streaming);
        assert!(!tail.is_streamed());
        drop(unary.waiting_for_the_end());
        assert!(tail.is_streamed());
    }

    #[test]
    fn the_lag_is_that_of_the_reader_that_is_furthest_behind() {
        let tail = Arc::new(Tail::default());
        tail.push((1..=5).map(|seq| (record(seq), 1)));
        let (mut slow, mut fast) = (tail.reader(), tail.reader());
        assert_eq!(tail.reader_lag(), 0, "none has begun");
        slow.read(2);
        fast.read(5);
        assert_eq!(tail.reader_lag(), 3);
        tail.push([(record(6), 1)]);
        assert_eq!(tail.reader_lag(), 4);
        drop(slow);
        assert_eq!(tail.reader_lag(), 1);
        drop(fast);
        assert_eq!(tail.reader_lag(), 0);
    }

    #[test]
    fn large_records_push_old_ones_out_and_the_newest_stays() {
        let tail = Arc::new(Tail::default());
        tail.push([(record(1), 1)]);
        let mut reader = tail.reader();
        let found = |reader: &mut Reader, seq| match reader.read(seq) {
            Found::Records(records) => records.iter().map(|record| record.seq).collect(),
            Found::InTheLog | Found::NothingYet | Found::Closed => Vec::new(),
        };
        tail.push([(record(2), CAPACITY_BYTES / 2), (record(3), CAPACITY_BYTES / 2)]);
        assert_eq!(found(&mut reader, 1), [2, 3]);
        assert!(matches!(reader.read(0), Found::InTheLog));
        tail.push([(record(4), 2 * CAPACITY_BYTES)]);
        assert_eq!(found(&mut reader, 3), [4]);
        assert!(matches!(reader.read(2), Found::InTheLog));
        tail.push([(record(5), 1)]);
        assert_eq!(found(&mut reader, 4), [5]);
        assert_eq!(tail.kept.lock().bytes, 1);
    }
}
