//! Reads a run's log from a number on and then follows it live, without gap or repetition.
//!
//! While this process drives the run, records come from its [`Tail`]. Otherwise, and for readers that fell behind, they
//! come from the store. Both number the records in the same way, so a reader can change from one to the other at any
//! record.

pub(super) mod active;
mod announcement;
mod end;
pub mod page_memory;
mod side_by_side;
pub mod tail;
pub mod void;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::agent::follow::active::Active;
pub(super) use crate::agent::follow::announcement::ANNOUNCE_EVERY;
use crate::agent::follow::announcement::announce;
use crate::agent::follow::end::ends;
use crate::agent::follow::page_memory::PageMemory;
use crate::agent::follow::tail::{Found, Reader, Tail};
use crate::agent::ledger::keys;
use crate::agent::ledger::log::decode;
use crate::agent::lifecycle::{CountedReader, Ending, Lifecycle};
use crate::store::{Key, Partition, Store, Topic, Unavailable, Watch};
use crate::types::{Record, RunId, Tenant};

/// Entries read from the store at a time.
const PAGE: usize = 128;
/// Records of a tail that a reader takes without memory of its own: the tail has them too.
const FEW: usize = 32;
/// How often a reader looks without a nudge, since a nudge may be lost.
const POLL: Duration = Duration::from_secs(1);
/// How long a reader waits for a store that does not answer.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a reader gets no more.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The store did not answer for too long, or the log is damaged.
    #[error(transparent)]
    Store(#[from] Unavailable),
    /// The log no longer holds what was read: it expired, or the store lost a part of it.
    #[error("the run's events are no longer those that were read")]
    Changed,
    /// An event cannot be read, at least not by this version.
    #[error("an event of the run cannot be read: {0}")]
    Damaged(String),
    /// This process is about to end; another replica may resume the run.
    #[error("the server is shutting down; follow the run through another replica")]
    Leaving,
}

/// A reader's place in a run's log.
#[derive(Debug)]
pub struct Follower {
    store: Arc<dyn Store>,
    partition: Partition,
    log: Key,
    run: RunId,
    /// The runs that this process drives: if it resumes the run while it is followed, the run is read from its tail.
    active: Arc<Active>,
    live: Option<Reader>,
    topic: Topic,
    /// Made when it is first needed: a reader of a run that this process drives needs none.
    watch: Option<Watch>,
    /// The number of the last public record that was returned.
    seq: u64,
    /// Entries of the log that were read or skipped. A record's number is never above its place, so reading from the
    /// place `seq` on misses nothing; records that were returned before are dropped.
    position: u64,
    /// The hash of the last entry that was read from the store: the entry must not change.
    last_entry: Option<u64>,
    ended: bool,
    /// Whether to end where the run first ended or waited, although it may have been continued since.
    to_first_end: bool,
    /// Whether it passes nothing on before the run ends.
    waits_for_the_end: bool,
    /// Whether the log had more than the last page that was read of it.
    more_in_log: bool,
    /// Since when the store has not answered.
    failing_since: Option<Instant>,
    /// Marks in the store that the run has a reader here, also while the reader takes nothing.
    announcing: JoinSet<()>,
    ending: Ending,
    /// Whether to leave once another replica drives the run and this process hands over its runs.
    movable: bool,
    /// Where memory is taken before much is read; `None` for a reader that passes nothing on.
    memory: Option<Box<PageMemory>>,
    counted: CountedReader,
}

/// Lets runs be followed through this process.
#[derive(Debug)]
pub struct Followers {
    store: Arc<dyn Store>,
    active: Arc<Active>,
    lifecycle: Arc<Lifecycle>,
}

impl Followers {
    /// Followers of the runs in this store, of which this process drives those in `active`.
    pub(super) fn new(store: Arc<dyn Store>, active: Arc<Active>, lifecycle: Arc<Lifecycle>) -> Self {
        Self { store, active, lifecycle }
    }

    /// The tail of a run of this tenant that this process drives. It counts no reader yet: a caller that may not read
    /// the run must not keep it alive.
    pub(super) fn live(&self, tenant: &Tenant, run: &RunId) -> Option<Arc<Tail>> {
        let live = self.active.get(run).filter(|live| live.tenant == *tenant)?;
        Some(live.tail.clone())
    }

    /// Follows after the public record `seq`; `live` is the tail of a run that this process drives, which counts the
    /// reader from now on.
    pub(super) fn follow(&self, partition: Partition, run: RunId, live: Option<Arc<Tail>>, seq: u64) -> Follower {
        let (log, topic) = (keys::events(&run), keys::topic(&partition, &run));
        let live = live.map(|tail| tail.reader());
        Follower {
            store: self.store.clone(),
            partition,
            log,
            run,
            active: self.active.clone(),
            live,
            topic,
            watch: None,
            seq,
            position: seq,
            last_entry: None,
            ended: false,
            to_first_end: false,
            waits_for_the_end: false,
            more_in_log: false,
            failing_since: None,
            announcing: JoinSet::new(),
            ending: self.lifecycle.ending(),
            movable: false,
            memory: None,
            counted: self.lifecycle.reader(),
        }
    }
}

impl Follower {
    /// Lets the reader be sent to another replica once that replica drives the run and this process hands over its
    /// runs: for a reader that can reconnect and lose nothing.
    #[must_use]
    pub fn movable(mut self) -> Self {
        self.movable = true;
        self
    }

    /// Ends where the run first ends or waits for its client: with the result of one request. Without this, a run that
    /// was continued since is read to its present end.
    #[must_use]
    pub fn to_first_end(mut self) -> Self {
        self.to_first_end = true;
        self
    }

    /// For a reader that passes nothing on before the run ends: while there are no others here, what the model says is
    /// recorded in large pieces.
    #[must_use]
    pub fn waiting_for_the_end(mut self) -> Self {
        self.waits_for_the_end = true;
        self.counted.waits_for_the_end();
        self.live = self.live.map(Reader::waiting_for_the_end);
        self
    }

    /// Lets the reader take memory before it reads much, until what it read has been passed on.
    #[must_use]
    pub fn with_memory(mut self, memory: Option<PageMemory>) -> Self {
        self.memory = memory.map(Box::new);
        self
    }

    /// Whether the last record was returned.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the public records that follow the last one returned, at least one, as soon as there are any; `None`
    /// after the run's last record.
    ///
    /// Cancel-safe: a call that is dropped loses no record.
    pub async fn next(&mut self) -> Result<Option<Vec<Arc<Record>>>, FollowError> {
        if let Some(memory) = &mut self.memory {
            memory.give_page_back();
        }
        while !self.ended {
            self.attach();
            let records = match self.read_tail() {
                Found::Records(records) if records.len() > FEW && self.lacks_memory() => {
                    drop(records);
                    Box::pin(self.take_memory()).await?;
                    continue;
                }
                Found::Records(records) => records,
                Found::NothingYet => {
                    self.give_memory_back();
                    self.tail_changed().await;
                    continue;
                }
                Found::InTheLog | Found::Closed => {
                    Box::pin(self.take_memory()).await?;
                    self.read_patiently().await?
                }
            };
            if let Some(records) = self.accept(records) {
                if let Some(memory) = &mut self.memory {
                    memory.note_page();
                }
                return Ok(Some(records));
            }
            self.give_memory_back();
            // Boxed, as readers of runs that are driven here do not wait for the store.
            Box::pin(self.wait()).await?;
        }
        Ok(None)
    }

    fn lacks_memory(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| !memory.is_taken())
    }

    /// Waits for memory for a page.
    async fn take_memory(&mut self) -> Result<(), FollowError> {
        let Some(memory) = &mut self.memory else { return Ok(()) };
        tokio::select! {
            biased;
            () = memory.take() => Ok(()),
            () = self.ending.leaving() => Err(FollowError::Leaving),
        }
    }

    /// Nothing is to be read now.
    fn give_memory_back(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.give_back();
        }
    }

    /// What the tail has for this reader. Once the driver has left, or without a tail, the log has what follows.
    fn read_tail(&mut self) -> Found {
        let Some(live) = &mut self.live else { return Found::InTheLog };
        let found = live.read(self.seq);
        match &found {
            Found::Records(_) => (self.more_in_log, self.last_entry) = (false, None),
            Found::Closed => self.live = None,
            Found::NothingYet | Found::InTheLog => {}
        }
        found
    }

    /// Waits until the tail has more, or is closed.
    async fn tail_changed(&mut self) {
        if let Some(live) = &mut self.live {
            live.changed().await;
        }
    }

    /// Attaches the reader to the run's tail if this process drives the run by now. The tail counts its readers, so
    /// the reader is no longer announced in the store.
    fn attach(&mut self) {
        if self.live.is_none()
            && let Some(live) = self.active.get(&self.run)
        {
            let reader = live.tail.reader();
            self.live = Some(if self.waits_for_the_end { reader.waiting_for_the_end() } else { reader });
            self.announcing = JoinSet::new();
        }
    }

    /// Counts the records as returned, up to where the reader ends; `None` if there are none.
    fn accept(&mut self, mut records: Vec<Arc<Record>>) -> Option<Vec<Arc<Record>>> {
        if self.to_first_end
            && let Some(end) = records.iter().position(|record| ends(&record.event))
        {
            records.truncate(end + 1);
        }
        let last = records.last()?;
        self.seq = last.seq;
        self.position = self.position.max(self.seq);
        self.ended = ends(&last.event) && (self.to_first_end || !self.more_in_log);
        Some(records)
    }

    /// Waits until a run that another replica drives may have new records.
    async fn wait(&mut self) -> Result<(), FollowError> {
        if self.movable && self.ending.is_handing_over() {
            return Err(FollowError::Leaving);
        }
        // A change before the watch exists is found by reading once more.
        let Some(watch) = &mut self.watch else {
            self.watch = Some(self.store.watch(&self.topic));
            return Ok(());
        };
        if self.announcing.is_empty() {
            self.announcing.spawn(announce(self.store.clone(), self.partition.clone(), self.run.clone()));
        }
        tokio::select! {
            biased;
            () = watch.changed() => Ok(()),
            () = self.ending.leaving() => Err(FollowError::Leaving),
            () = self.ending.handing_over(), if self.movable => Err(FollowError::Leaving),
            () = tokio::time::sleep(POLL) => Ok(()),
        }
    }

    /// Reads the log. Returns nothing while the store does not answer, and fails once that has lasted too long.
    async fn read_patiently(&mut self) -> Result<Vec<Arc<Record>>, FollowError> {
        match self.read_log().await {
            Err(FollowError::Store(error)) => {
                let since = *self.failing_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= STORE_TIMEOUT {
                    return Err(error.into());
                }
                Ok(Vec::new())
            }
            result => {
                self.failing_since = None;
                result
            }
        }
    }

    /// The next page of the public records that are there now, without waiting for more; empty at their end.
    pub async fn available_page(&mut self) -> Result<Vec<Arc<Record>>, FollowError> {
        self.give_memory_back();
        self.take_memory().await?;
        let records = self.read_log().await?;
        if let Some(last) = records.last() {
            self.seq = last.seq;
        }
        Ok(records)
    }

    /// All public records that are there now.
    #[cfg(test)]
    pub async fn available(&mut self) -> Result<Vec<Arc<Record>>, FollowError> {
        let mut all = Vec::new();
        loop {
            match self.available_page().await? {
                page if page.is_empty() => return Ok(all),
                page => all.extend(page),
            }
        }
    }

    /// The next public records of the log, none if there are no more now.
    async fn read_log(&mut self) -> Result<Vec<Arc<Record>>, FollowError> {
        loop {
            // The entry before is read again, which shows whether the store lost entries and got others.
            let known = u64::from(self.last_entry.is_some());
            let mut page = self.store.read_log(&self.partition, &self.log, self.position - known, PAGE).await?;
            if let Some(last) = self.last_entry {
                match page.entries.first() {
                    Some(again) if hash(again) == last => drop(page.entries.remove(0)),
                    _ => return Err(FollowError::Changed),
                }
            }
            if page.head < self.position {
                return Err(FollowError::Changed);
            }
            if page.entries.is_empty() && page.head > self.position {
                // The entry before is a page by itself.
                page = self.store.read_log(&self.partition, &self.log, self.position, PAGE).await?;
            }
            let entries = page.entries.as_slice();
            let Some(newest) = entries.last() else { return Ok(Vec::new()) };
            let mut records = Vec::with_capacity(entries.len());
            for entry in entries {
                let record = decode(entry).map_err(|error| FollowError::Damaged(error.to_string()))?;
                if record.event.is_public() && record.seq > self.seq {
                    records.push(Arc::new(record));
                }
            }
            self.last_entry = Some(hash(newest));
            self.position += entries.len() as u64;
            self.more_in_log = self.position < page.head;
            if !records.is_empty() {
                return Ok(records);
            }
        }
    }
}

fn hash(entry: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    entry.hash(&mut hasher);
    hasher.finish()
}
