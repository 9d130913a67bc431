//! The newest records of a run that this process drives, shared with its readers.
//!
//! It holds only what the store holds too, so a reader that falls behind what is kept here goes on
//! from the log; a slow reader costs the run nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::types::Record;

/// How many records are kept for readers that are a little behind.
const CAPACITY: usize = 512;

/// The newest records, and who reads them.
#[derive(Debug)]
pub struct Tail {
    kept: Mutex<Kept>,
    head: watch::Sender<Head>,
    readers: watch::Sender<Readers>,
}

/// Who reads a tail.
#[derive(Debug, Clone, Copy)]
pub struct Readers {
    count: usize,
    /// Since when there is no reader; `None` while there is one.
    pub alone_since: Option<Instant>,
}

#[derive(Debug)]
struct Kept {
    records: VecDeque<Arc<Record>>,
    /// The number of the last record that was dropped or never kept.
    before: u64,
}

/// How far the log goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    seq: u64,
    closed: bool,
}

impl Tail {
    /// A tail of a run of which these records are stored, from the first one on.
    pub fn of(records: &[Arc<Record>]) -> Self {
        let public: Vec<_> = records.iter().filter(|record| record.event.is_public()).collect();
        let (older, newest) = public.split_at(public.len().saturating_sub(CAPACITY));
        let records = newest.iter().map(|record| Arc::clone(record)).collect();
        let before = older.last().map_or(0, |record| record.seq);
        let seq = newest.last().map_or(0, |record| record.seq);
        Self {
            kept: Mutex::new(Kept { records, before }),
            head: watch::Sender::new(Head { seq, closed: false }),
            readers: watch::Sender::new(Readers { count: 0, alone_since: Some(Instant::now()) }),
        }
    }

    /// Adds what was just stored and wakes the readers.
    pub fn push(&self, records: impl IntoIterator<Item = Arc<Record>>) {
        let mut last = None;
        {
            let mut kept = self.kept.lock();
            for record in records.into_iter().filter(|record| record.event.is_public()) {
                if kept.records.len() == CAPACITY
                    && let Some(dropped) = kept.records.pop_front()
                {
                    kept.before = dropped.seq;
                }
                last = Some(record.seq);
                kept.records.push_back(record);
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

    /// Counts a reader until the returned guard is dropped.
    pub fn reader(self: &Arc<Self>) -> Reader {
        self.readers.send_modify(|readers| {
            readers.count += 1;
            readers.alone_since = None;
        });
        Reader { tail: self.clone(), head: self.head.subscribe() }
    }

    /// Who reads, and its changes.
    pub fn readers(&self) -> watch::Receiver<Readers> {
        self.readers.subscribe()
    }
}

/// One reader of a tail.
#[derive(Debug)]
pub struct Reader {
    tail: Arc<Tail>,
    head: watch::Receiver<Head>,
}

/// What a reader finds after a record that it has.
#[derive(Debug)]
pub enum Found {
    /// The next public records.
    Records(Vec<Arc<Record>>),
    /// They are no longer here, but in the log.
    InTheLog,
    /// Nothing yet.
    NothingYet,
    /// Nothing, and nothing will come.
    Closed,
}

impl Reader {
    /// The public records after number `seq`.
    pub fn read(&mut self, seq: u64) -> Found {
        let head = *self.head.borrow_and_update();
        let kept = self.tail.kept.lock();
        if seq < kept.before {
            return Found::InTheLog;
        }
        let have = usize::try_from(seq - kept.before).unwrap_or(usize::MAX);
        let records: Vec<_> = kept.records.iter().skip(have).cloned().collect();
        match (records.is_empty(), head.closed) {
            (false, _) => Found::Records(records),
            (true, true) => Found::Closed,
            (true, false) => Found::NothingYet,
        }
    }

    /// The number of the last public record.
    pub fn last(&self) -> u64 {
        self.head.borrow().seq
    }

    /// Returns once something changed since the last [`Reader::read`].
    pub async fn changed(&mut self) {
        // The sender lives in `self.tail`, so this cannot fail.
        let _ = self.head.changed().await;
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.tail.readers.send_modify(|readers| {
            readers.count -= 1;
            readers.alone_since = (readers.count == 0).then(Instant::now);
        });
    }
}
