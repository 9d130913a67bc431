//! A run's log, folded while it is read: logs may be long, so of the records only the newest are held, for readers.

use std::sync::Arc;

use crate::agent::follow::tail::Tail;
use crate::agent::limits::charge::Charges;
use crate::agent::machine::Run;
use crate::types::{Record, RunSpec, RunStatus};

/// What is needed of a log to go on with its run.
#[derive(Debug)]
pub struct Replay {
    run: Run,
    charges: Charges,
    tail: Arc<Tail>,
    /// The records of a run that has not begun, which may still be asked to do something else.
    before_begin: Vec<Arc<Record>>,
    seq: u64,
    entries: u64,
    bytes: u64,
}

impl Replay {
    /// An empty log of a run of this specification.
    pub fn new(spec: Arc<RunSpec>) -> Self {
        Self {
            run: Run::new(spec),
            charges: Charges::default(),
            tail: Arc::default(),
            before_begin: Vec::new(),
            seq: 0,
            entries: 0,
            bytes: 0,
        }
    }

    /// Takes in the next record, which takes so many bytes of the log.
    pub fn push(&mut self, record: Arc<Record>, bytes: usize) {
        self.run.apply(&record);
        self.charges.apply(&record);
        if self.run.status() == RunStatus::Queued {
            self.before_begin.push(record.clone());
        }
        self.seq = record.seq;
        self.entries += 1;
        self.bytes += bytes as u64;
        self.tail.push([(record, bytes)]);
    }

    /// Changes what the run is asked to do, before it begins.
    pub fn respecify(&mut self, spec: RunSpec) {
        self.run = Run::new(Arc::new(spec)).replayed(self.before_begin.iter().map(Arc::as_ref));
    }

    /// The run as its records have it.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// What its steps are to be charged.
    pub fn charges(&self) -> &Charges {
        &self.charges
    }

    /// Where readers in this process find the newest records.
    pub(super) fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    /// The number of the last public event.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// How many entries the log has.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// How many bytes they have.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn into_run(self) -> Run {
        self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::ledger::log;
    use crate::agent::machine::tests::spec;
    use crate::types::Event;

    #[test]
    fn a_long_log_is_folded_without_being_held() {
        let mut replay = Replay::new(Arc::new(spec()));
        let (mut seq, mut all) = (0, Vec::new());
        let texts = (0..5_000).map(|_| Event::TextDelta { step: 1, text: "some text ".into() });
        for event in std::iter::once(Event::RunStarted).chain(texts) {
            let (record, entry) = log::encode(&mut seq, 0, event);
            all.push(Arc::downgrade(&record));
            replay.push(record, entry.len());
        }
        assert_eq!((replay.seq(), replay.entries()), (5_001, 5_001));
        let held = all.iter().filter(|record| record.strong_count() > 0).count();
        assert!(held <= 512, "{held} records are held");
    }
}
