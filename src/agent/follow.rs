//! Reads a run's log from a number on, then goes live, without gap or repeat.
//!
//! While this process drives the run, records come from its [`Tail`](crate::agent::tail::Tail); before
//! that, after that, and for readers that fell behind, from the store. Both number them alike, so a
//! reader may change from one to the other at any record.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::active::Active;
use crate::agent::keys;
use crate::agent::recorder::decode;
use crate::agent::tail::{Found, Reader};
use crate::store::{Key, Partition, Store, Topic, Unavailable, Watch};
use crate::types::{Event, Record, RunId, RunStatus};

/// Entries read from the store at a time.
const PAGE: usize = 128;
/// How often a reader looks by itself, should a nudge be lost.
const POLL: Duration = Duration::from_secs(1);

/// A reader's place in a run's log.
#[derive(Debug)]
pub struct Follower {
    store: Arc<dyn Store>,
    partition: Partition,
    log: Key,
    run: RunId,
    /// Where this process drives runs: one that it takes up while it is followed is read there.
    active: Arc<Active>,
    live: Option<Reader>,
    topic: Topic,
    /// Made once it is needed: a reader of a run that is driven here does without.
    watch: Option<Watch>,
    /// The number of the last public record that was returned.
    seq: u64,
    /// Entries of the log that were read or skipped. Numbers never pass places, so starting at the
    /// place `seq` misses nothing; what comes again is dropped.
    position: u64,
    ended: bool,
    /// Whether to end where the run first does, though it may have gone on since.
    to_first_end: bool,
    /// Whether this process stopped driving the run before it ended.
    orphaned: bool,
    /// Whether the log had more than the last page that was read of it.
    more_in_log: bool,
}

impl Follower {
    /// Follows after the public record `seq`; `live` is the tail of a run that this process drives.
    pub fn new(
        store: Arc<dyn Store>,
        partition: Partition,
        run: RunId,
        active: Arc<Active>,
        live: Option<Reader>,
        seq: u64,
    ) -> Self {
        let (log, topic) = (keys::events(&run), keys::topic(&partition, &run));
        Self {
            store,
            partition,
            log,
            run,
            active,
            live,
            topic,
            watch: None,
            seq,
            position: seq,
            ended: false,
            to_first_end: false,
            orphaned: false,
            more_in_log: false,
        }
    }

    /// Ends where the run first ends or waits for its client: what one request came to. Without this, a
    /// run that went on since is read on.
    #[must_use]
    pub fn to_first_end(mut self) -> Self {
        self.to_first_end = true;
        self
    }

    /// Whether the last record was returned.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The next public records, at least one, waiting for them if need be; `None` after the run's last.
    ///
    /// Cancel-safe: a call that is dropped loses no record.
    pub async fn next(&mut self) -> Result<Option<Vec<Arc<Record>>>, Unavailable> {
        loop {
            if self.ended {
                return Ok(None);
            }
            if self.live.is_none() {
                self.live = self.active.get(&self.run).map(|live| live.tail.reader());
            }
            let mut records = match self.live.as_mut().map(|live| live.read(self.seq)) {
                Some(Found::Records(records)) => {
                    self.more_in_log = false;
                    records
                }
                Some(Found::NothingYet) => {
                    if let Some(live) = &mut self.live {
                        live.changed().await;
                    }
                    continue;
                }
                Some(Found::Closed) => {
                    // What the driver stored last is in the log, if nowhere else.
                    self.orphaned = true;
                    self.read_log().await?
                }
                Some(Found::InTheLog) | None => self.read_log().await?,
            };
            if self.to_first_end
                && let Some(end) = records.iter().position(|record| ends(&record.event))
            {
                records.truncate(end + 1);
            }
            if let Some(last) = records.last() {
                self.seq = last.seq;
                self.position = self.position.max(self.seq);
                self.ended = ends(&last.event) && (self.to_first_end || !self.more_in_log);
                return Ok(Some(records));
            }
            if self.orphaned {
                self.live = None;
                if self.active.get(&self.run).is_some_and(|live| !live.tail.is_closed()) {
                    self.orphaned = false;
                    continue;
                }
                // Whoever takes the run up, and when: the reader had better come back than wait.
                return Err(Unavailable("the run is not being driven at the moment".to_owned()));
            }
            // What changes before there is a watch is found by looking once more.
            let Some(watch) = &mut self.watch else {
                self.watch = Some(self.store.watch(&self.topic));
                continue;
            };
            tokio::select! {
                () = watch.changed() => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    /// The public records that are there now, without waiting for more.
    pub async fn available(&mut self) -> Result<Vec<Arc<Record>>, Unavailable> {
        let mut all = Vec::new();
        loop {
            let records = self.read_log().await?;
            match records.last() {
                Some(last) => self.seq = last.seq,
                None => return Ok(all),
            }
            all.extend(records);
        }
    }

    async fn read_log(&mut self) -> Result<Vec<Arc<Record>>, Unavailable> {
        loop {
            let page = self.store.read_log(&self.partition, &self.log, self.position, PAGE).await?;
            if page.head < self.position {
                return Err(Unavailable("the run's events are no longer kept".to_owned()));
            }
            if page.entries.is_empty() {
                return Ok(Vec::new());
            }
            self.position = page.first - 1 + page.entries.len() as u64;
            self.more_in_log = self.position < page.head;
            let mut records = Vec::with_capacity(page.entries.len());
            for entry in &page.entries {
                let record = decode(entry).map_err(|error| Unavailable(format!("a log entry is damaged: {error}")))?;
                if record.event.is_public() && record.seq > self.seq {
                    records.push(Arc::new(record));
                }
            }
            if !records.is_empty() {
                return Ok(records);
            }
        }
    }
}

/// Whether nothing follows this event: the run ended, or waits for its client.
fn ends(event: &Event) -> bool {
    match event {
        Event::RunFinished(outcome) => outcome.status().is_final() || outcome.status() == RunStatus::RequiresAction,
        Event::RunStarted
        | Event::RunResumed { .. }
        | Event::StepStarted { .. }
        | Event::ThinkingDelta { .. }
        | Event::TextDelta { .. }
        | Event::ToolArgumentsDelta { .. }
        | Event::ProviderRetry { .. }
        | Event::TurnFinished { .. }
        | Event::StepDiscarded { .. }
        | Event::BudgetWarning { .. }
        | Event::ToolStarted { .. }
        | Event::ToolFinished { .. }
        | Event::StepCompleted { .. }
        | Event::StopRequested { .. } => false,
    }
}
