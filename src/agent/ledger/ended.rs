//! Ended runs in a store that takes the server's own memory: the oldest are deleted once all of them take too much.
//!
//! Other stores keep ended runs until they expire. In memory that would let a busy server grow until it is killed. The
//! count is this process's own, since such a store belongs to one process.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::store::Partition;
use crate::types::{RunId, Tenant};

/// The ended runs of this process, oldest first.
#[derive(Debug)]
pub struct EndedRuns {
    limit: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    runs: VecDeque<EndedRun>,
    bytes: u64,
    /// How many were dropped before their time.
    dropped: u64,
}

/// A run that has ended.
#[derive(Debug)]
pub(super) struct EndedRun {
    pub(super) tenant: Tenant,
    pub(super) partition: Partition,
    pub(super) run: RunId,
    /// What it takes.
    pub(super) bytes: u64,
}

impl EndedRuns {
    /// None yet; at most so many bytes.
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, kept: Mutex::default() }
    }

    /// Takes a run in. Returns those that must go, which the newest never does.
    pub(super) fn add(&self, ended: EndedRun) -> Vec<EndedRun> {
        let mut kept = self.kept.lock();
        kept.bytes += ended.bytes;
        kept.runs.push_back(ended);
        let mut out = Vec::new();
        while kept.bytes > self.limit && kept.runs.len() > 1 {
            let Some(oldest) = kept.runs.pop_front() else { break };
            kept.bytes -= oldest.bytes;
            out.push(oldest);
        }
        out
    }

    /// Counts runs that were dropped, and says so now and then: at first, and whenever there are ten times as many.
    pub(super) fn tell(&self, dropped: u64) {
        let mut kept = self.kept.lock();
        let before = kept.dropped;
        kept.dropped += dropped;
        let digits = |number: u64| number.checked_ilog10();
        if dropped > 0 && digits(before) != digits(kept.dropped) {
            tracing::warn!(
                dropped = kept.dropped,
                limit_bytes = self.limit,
                "ended runs take more memory than store.memory_limit; the oldest are dropped"
            );
        }
    }
}
