//! Records events: the recorder stores an event, then applies it to the run, then shows it to readers. Nothing else
//! makes events.
//!
//! A reader never sees an event that was not stored. If another replica took over the lease, the store refuses the
//! write. If the store does not answer, the recorder waits for it as long as the lease is certainly its own.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;

use crate::agent::drive::notices::Notices;
use crate::agent::drive::replay::Replay;
use crate::agent::error::unavailable;
use crate::agent::follow::tail::Tail;
use crate::agent::ledger::keys;
use crate::agent::ledger::log::encode;
use crate::agent::machine::Run;
use crate::agent::ownership::lease::{Lease, LeaseEnding, LeaseValidity};
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::failpoint;
use crate::store::pages::log_pages;
use crate::store::{Check, CommitError, Durability, Fence, Key, Partition, Store, Topic, Tx, Write};
use crate::telemetry::run::RunReaders;
use crate::types::clock::Clock;
use crate::types::{Event, Record};

/// Records the events of one run.
#[derive(Debug)]
pub struct Recorder {
    store: Arc<dyn Store>,
    run: Run,
    tail: Arc<Tail>,
    partition: Partition,
    log: Key,
    lease: Key,
    topic: Topic,
    fence: Fence,
    ending: LeaseEnding,
    validity: LeaseValidity,
    clock: Clock,
    /// Entries in the log.
    position: u64,
    /// How many bytes they have.
    bytes: u64,
    /// The number of the last public event, queued ones included.
    seq: u64,
    /// What reads the records once they are stored.
    readers: RunReaders,
    /// Events that are applied, and are stored with the next event that waits for the store.
    queue: Vec<(Arc<Record>, Bytes)>,
    /// The hooks that are told of them; `None` for most runs.
    notices: Option<Box<Notices>>,
}

impl Recorder {
    /// Continues this log of a run under this lease.
    pub fn resume(store: Arc<dyn Store>, log: Replay, readers: RunReaders, granted: &Lease) -> Self {
        let spec = log.run().spec();
        let partition = keys::partition_of(spec);
        let lease = keys::lease(&spec.id);
        let topic = keys::topic(&partition, &spec.id);
        Self {
            store,
            tail: log.tail().clone(),
            partition,
            log: keys::events(&spec.id),
            lease,
            topic,
            fence: granted.fence(),
            ending: granted.ending(),
            validity: granted.validity(),
            clock: Clock::start(),
            position: log.entries(),
            bytes: log.bytes(),
            seq: log.seq(),
            readers,
            queue: Vec::new(),
            notices: None,
            run: log.into_run(),
        }
    }

    /// Tells hooks of what is recorded from now on.
    pub fn tell(&mut self, notices: Option<Box<Notices>>) {
        self.notices = notices;
    }

    /// The run as its records have it.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Where readers in this process find what is recorded.
    pub fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    /// The number of the last public event, queued ones included.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// How many bytes the log has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The store that it records in.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Where the run lies.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Unix milliseconds, by the clock that its events are timed with.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// How long its lease is certainly valid.
    pub fn validity(&self) -> &LeaseValidity {
        &self.validity
    }

    /// The fence of the lease under which it records.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// How a change releases its lease.
    pub fn ending(&self) -> &LeaseEnding {
        &self.ending
    }

    /// Applies an event that is stored together with the next one.
    pub fn queue(&mut self, event: Event) {
        let (record, entry) = encode(&mut self.seq, self.clock.now_ms(), event);
        self.run.apply(&record);
        if let Some(notices) = &mut self.notices {
            notices.queue(&self.run, &record);
        }
        self.queue.push((record, entry));
    }

    /// Whether events are queued.
    pub fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Records what is queued.
    pub async fn flush(&mut self) -> Result<(), CommitError> {
        if self.queue.is_empty() { Ok(()) } else { self.record_with(None, |tx| tx).await }
    }

    /// Records what is queued, then `event`.
    pub async fn record(&mut self, event: Event) -> Result<(), CommitError> {
        self.record_with(Some(event), |tx| tx).await
    }

    /// Records what is queued, then `events`, and makes further changes of the run's partition: all at
    /// once or not at all. If it fails, what is queued stays queued and `events` did not happen.
    pub async fn record_with(
        &mut self,
        events: impl IntoIterator<Item = Event>,
        change: impl FnOnce(Tx) -> Tx,
    ) -> Result<(), CommitError> {
        let mut seq = self.seq;
        let at_ms = self.clock.now_ms();
        let newest: Vec<_> = events.into_iter().map(|event| encode(&mut seq, at_ms, event)).collect();
        let all = || self.queue.iter().chain(&newest);
        let entries: Vec<_> = all().map(|(_, entry)| entry.clone()).collect();
        let deltas_only = all().all(|(record, _)| record.event.is_delta());
        let added = entries.len() as u64;
        let bytes = entries.iter().map(|entry| entry.len() as u64).sum::<u64>();
        let tx = Tx {
            partition: self.partition.clone(),
            checks: vec![Check::Fence { lease: self.lease.clone(), fence: self.fence }],
            writes: vec![Write::Append { log: self.log.clone(), after: self.position, entries }],
            releases: None,
            // A piece of text may be lost together with the only machine that showed it. If other machines can
            // resume the run, the text must be synced: they would give its number to another event.
            durability: if deltas_only && !self.store.is_shared() { Durability::Written } else { Durability::Synced },
            notify: Some(self.topic.clone()),
        };
        let tx = change(tx);
        if self.notices.is_some() {
            Box::pin(self.commit_with_notices(tx, &newest)).await?;
        } else {
            self.commit_leased(&tx).await?;
        }
        self.position += added;
        self.bytes += bytes;
        self.seq = seq;
        for (record, _) in &newest {
            self.run.apply(record);
        }
        for (record, _) in self.queue.iter().chain(&newest) {
            self.readers.recorded(record);
        }
        if let Some(notices) = &self.notices {
            notices.recorded(&self.run, &self.queue.iter().chain(&newest).map(|(record, _)| &**record));
        }
        self.tail.push(self.queue.drain(..).chain(newest).map(|(record, entry)| (record, entry.len())));
        Ok(())
    }

    /// Commits, and with it the messages about what is recorded. The entry that leads to them is put before.
    async fn commit_with_notices(&mut self, tx: Tx, newest: &[(Arc<Record>, Bytes)]) -> Result<(), CommitError> {
        let (last_queued, now_ms) = (self.seq, self.store.now_ms());
        let Some(notices) = &mut self.notices else { return self.commit_leased(&tx).await };
        let newest = newest.iter().map(|(record, _)| &**record);
        let Some(departing) = notices.departing(&self.run, newest, now_ms) else {
            return self.commit_leased(&tx).await;
        };
        let index = || async { self.store.commit(departing.due.put()).await.map_err(unavailable) };
        let mut committed = RetryWhileLeased::new(&self.validity).read(index).await.map_err(CommitError::from);
        failpoint::hit("outbox.indexed");
        if committed.is_ok() {
            committed = self.commit_leased(&departing.put(tx)).await;
        }
        if let Some(notices) = &mut self.notices {
            match committed {
                Ok(()) => notices.send(departing),
                Err(_) => notices.put_back(departing, last_queued),
            }
        }
        committed
    }

    /// Commits, and notes if the lease was lost.
    async fn commit_leased(&mut self, tx: &Tx) -> Result<(), CommitError> {
        let committed = self.commit(tx).await;
        if let Err(CommitError::Fenced { lease }) = &committed
            && *lease == self.lease
        {
            self.ending.lost();
        }
        committed
    }

    /// Commits; asks a store that does not answer again while the lease is valid.
    async fn commit(&self, tx: &Tx) -> Result<(), CommitError> {
        let mut retry = RetryWhileLeased::new(&self.validity);
        let mut unsure = false;
        loop {
            match self.store.commit(tx.clone()).await {
                // Boxed, as every wait of a run for its store would have room for it otherwise.
                Err(CommitError::Unavailable(error)) if Box::pin(retry.lasts(&error)).await => unsure = true,
                // What changed since the first attempt was changed by that attempt, or by another writer.
                Err(conflict @ (CommitError::VersionConflict { .. } | CommitError::SequenceConflict { .. }))
                    if unsure =>
                {
                    return Box::pin(self.is_recorded(tx, conflict)).await;
                }
                // The first attempt may have released the lease.
                Err(fenced @ CommitError::Fenced { .. }) if unsure && tx.releases.is_some() => {
                    return Box::pin(self.is_recorded(tx, fenced)).await;
                }
                result => return result,
            }
        }
    }

    /// Whether what `tx` appends to the log is what it holds there; `conflict` if it holds nothing there.
    async fn is_recorded(&self, tx: &Tx, conflict: CommitError) -> Result<(), CommitError> {
        let Some(Write::Append { entries, .. }) = tx.writes.first() else {
            unreachable!("a change of a run begins with what it appends to its log");
        };
        let numbers = self.position..self.position + entries.len() as u64;
        let read = || async {
            let pages = log_pages(&*self.store, &self.partition, self.log.clone(), numbers.clone(), entries.len());
            pages.try_concat().await
        };
        let found = RetryWhileLeased::new(&self.validity).read(read).await?;
        if found == *entries {
            Ok(())
        } else if found.is_empty() {
            Err(conflict)
        } else {
            Err(CommitError::Fenced { lease: self.lease.clone() })
        }
    }
}
