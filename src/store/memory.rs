//! A store in memory: for tests, and for a server whose runs may be lost when it ends.
//!
//! One mutex guards everything. It is held for a few map operations at a time and never across an await, so a commit
//! costs a fraction of a microsecond, and a lock for each partition would gain nothing. Values are shared, never
//! copied.
//!
//! Expired things are invisible at once. Each commit removes a few of them, so memory is in proportion to what has
//! not expired. Time is tokio's, which tests can pause.

mod contents;
mod log;

use std::collections::hash_map::Entry;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use self::contents::{Contents, Expiries, Garbage, Moment};
use self::log::Packer;
use super::decide::decide;
use super::lease::{self, Leases};
use super::rate::Buckets;
use super::watch::Topics;
use super::{
    CommitError, Document, Fence, Key, LogPage, Partition, Rate, RateDecision, Scan, Store, Topic, Tx, Unavailable,
    Watch,
};
use crate::types::clock::now_ms;
use crate::types::maps::HashMap;

/// How many expired things a commit removes in addition to one for each of its writes.
const PURGED_PER_COMMIT: usize = 8;

/// The backend in memory. `MemoryStore::default()` is an empty one.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    buckets: Buckets,
    topics: Topics,
}

#[derive(Debug, Default)]
struct State {
    /// Only partitions with something in them.
    partitions: HashMap<Partition, Contents>,
    expiries: Expiries,
    leases: Leases,
    packer: Packer,
}

#[async_trait]
impl Store for MemoryStore {
    async fn commit(&self, mut tx: Tx) -> Result<(), CommitError> {
        let notify = tx.notify.take();
        // Freeing a long log takes long, so it is done without the lock.
        let mut garbage = Garbage::default();
        let now = Instant::now();
        let mut state = self.lock();
        let purged = tx.writes.len() + PURGED_PER_COMMIT;
        let result = state.commit(tx, now, &mut garbage);
        state.purge(now, purged, &mut garbage);
        drop(state);
        if let (Ok(()), Some(topic)) = (&result, notify) {
            self.topics.notify(&topic);
        }
        result
    }

    async fn read_log(
        &self,
        partition: &Partition,
        log: &Key,
        after: u64,
        limit: usize,
    ) -> Result<LogPage, Unavailable> {
        let state = self.lock();
        let empty = LogPage { first: after.saturating_add(1), ..LogPage::default() };
        Ok(state.partitions.get(partition).map_or(empty, |contents| contents.page(log, after, limit, Instant::now())))
    }

    async fn get(&self, partition: &Partition, key: &Key) -> Result<Option<Document>, Unavailable> {
        let state = self.lock();
        Ok(state.partitions.get(partition).and_then(|contents| contents.document(key, Instant::now())).cloned())
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        let state = self.lock();
        Ok(state.partitions.get(partition).map_or_else(Vec::new, |contents| contents.scan(&scan, Instant::now())))
    }

    async fn counter(&self, partition: &Partition, key: &Key) -> Result<i64, Unavailable> {
        let state = self.lock();
        Ok(state.partitions.get(partition).map_or(0, |contents| contents.counter(key, Instant::now())))
    }

    async fn acquire(&self, partition: &Partition, lease: &Key, ttl: Duration) -> Result<Option<Fence>, Unavailable> {
        Ok(self.lock().leases.acquire(partition, lease, ttl, lease::Now::read()))
    }

    async fn renew(
        &self,
        partition: &Partition,
        lease: &Key,
        fence: Fence,
        ttl: Duration,
        log: &Key,
    ) -> Result<Option<u64>, Unavailable> {
        let mut state = self.lock();
        let held = state.leases.renew(partition, lease, fence, ttl, lease::Now::read());
        let contents = state.partitions.get(partition).filter(|_| held);
        Ok(held.then(|| contents.map_or(0, |contents| contents.page(log, 0, 0, Instant::now()).head)))
    }

    async fn release(&self, partition: &Partition, lease: &Key, fence: Fence) -> Result<(), Unavailable> {
        self.lock().leases.release(partition, lease, fence);
        Ok(())
    }

    async fn take(&self, partition: &Partition, bucket: &Key, rate: Rate) -> Result<RateDecision, Unavailable> {
        Ok(self.buckets.take(partition, bucket, rate))
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn pace(&self) -> Duration {
        super::LOCAL_PACE
    }

    fn now_ms(&self) -> u64 {
        now_ms()
    }

    fn watch(&self, topic: &Topic) -> Watch {
        self.topics.watch(topic)
    }

    async fn health(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    async fn close(&self) {}
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn commit(&mut self, tx: Tx, now: Instant, garbage: &mut Garbage) -> Result<(), CommitError> {
        let Self { partitions, expiries, leases, packer } = self;
        let Tx { partition, checks, writes, releases, durability: _, notify: _ } = tx;
        let mut now = Moment { at: now, partition: &partition, leases, expiries, garbage, packer };
        match partitions.entry(partition.clone()) {
            Entry::Occupied(mut entry) => {
                decide(&checks, &writes, &now.state(entry.get()))?;
                now.apply(entry.get_mut(), writes);
                if entry.get().is_empty() {
                    entry.remove();
                }
            }
            Entry::Vacant(entry) => {
                let mut contents = Contents::default();
                decide(&checks, &writes, &now.state(&contents))?;
                now.apply(&mut contents, writes);
                if !contents.is_empty() {
                    entry.insert(contents);
                }
            }
        }
        if let Some((lease, fence)) = releases.map(|released| *released) {
            leases.release(&partition, &lease, fence);
        }
        Ok(())
    }

    /// Removes at most so many of the things that expired.
    fn purge(&mut self, now: Instant, limit: usize, garbage: &mut Garbage) {
        for _ in 0..limit {
            let Some((partition, thing)) = self.expiries.pop_due(now) else { return };
            if let Some(contents) = self.partitions.get_mut(&partition) {
                contents.remove(&thing, garbage);
                if contents.is_empty() {
                    self.partitions.remove(&partition);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
