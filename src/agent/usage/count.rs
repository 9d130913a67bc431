//! Counts the runs of one tenant, several with one commit.
//!
//! Runs that end while a commit is under way are counted together by the next one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::agent::error::unavailable;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::{Ledger, keys};
use crate::agent::usage::counted_run::CountedRun;
use crate::agent::usage::row::{Day, Dimensions, Marker, StoredRow, Totals};
use crate::store::{CommitError, Durability, Key, Partition, Tx, Unavailable, Write};

/// Runs counted by one commit.
const BATCH: usize = 64;
/// How often a commit is tried that finds runs counted already, or no room for another row.
const ATTEMPTS: usize = 8;
/// Rows of one tenant that are kept at hand.
const ROWS: usize = 4_096;
/// Rows of all tenants that are kept at hand, about 20 MB. Beyond that, those of tenants without a run to count are
/// forgotten.
pub(super) const ALL_ROWS: usize = 65_536;

/// Writes the rows of this process.
#[derive(Debug)]
pub(super) struct RowWriter {
    pub(super) ledger: Ledger,
    /// Part of the names of its rows.
    process: Arc<str>,
    /// The number of its next row.
    next: AtomicU64,
    /// How many rows are kept at hand.
    at_hand: Arc<AtomicUsize>,
}

impl RowWriter {
    pub(super) fn new(ledger: Ledger) -> Self {
        let process = Uuid::now_v7().simple().to_string().into();
        Self { ledger, process, next: AtomicU64::default(), at_hand: Arc::default() }
    }

    /// How many rows of all tenants are kept at hand.
    pub(super) fn rows_at_hand(&self) -> usize {
        self.at_hand.load(Ordering::Relaxed)
    }

    /// The key of a new row of this day.
    fn new_key(&self, day: Day) -> Key {
        keys::usage_row(&day.to_string(), &self.process, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// The runs of one tenant that this process counts.
#[derive(Debug)]
pub(super) struct Tally {
    partition: Partition,
    pending: Mutex<Vec<Arc<Pending>>>,
    /// Held by the task that counts.
    rows: tokio::sync::Mutex<Rows>,
}

#[derive(Debug)]
struct Pending {
    run: CountedRun,
    done: OnceLock<Result<(), Unavailable>>,
}

/// The rows of this process, as they are stored.
#[derive(Debug)]
struct Rows {
    stored: HashMap<(Day, Dimensions), Row>,
    /// How many rows all tenants have at hand.
    at_hand: Arc<AtomicUsize>,
    /// The newest day whose rows are as many as they may be.
    full: Option<(Day, Fullness)>,
}

#[derive(Debug, Clone)]
struct Row {
    key: Key,
    totals: Totals,
}

/// How much of a run is told apart where a day has many rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fullness {
    /// All.
    Room,
    /// All but the user.
    NoUsers,
    /// The key alone.
    KeysAlone,
}

/// How much of a run is counted, and the marker's version.
type Counted = (u64, Marker);

impl Tally {
    pub(super) fn new(partition: Partition, writer: &RowWriter) -> Self {
        let rows = Rows { stored: HashMap::new(), at_hand: writer.at_hand.clone(), full: None };
        Self { partition, pending: Mutex::default(), rows: tokio::sync::Mutex::new(rows) }
    }

    /// Counts runs, perhaps together with others.
    pub(super) async fn count(
        &self,
        writer: &RowWriter,
        runs: impl IntoIterator<Item = CountedRun>,
    ) -> Result<(), Unavailable> {
        let own: Vec<_> = runs.into_iter().map(|run| Arc::new(Pending { run, done: OnceLock::new() })).collect();
        self.pending.lock().extend(own.iter().cloned());
        let mut rows = self.rows.lock().await;
        loop {
            let results: Option<Vec<_>> = own.iter().map(|pending| pending.done.get()).collect();
            if let Some(results) = results {
                return results.into_iter().find(|result| result.is_err()).cloned().unwrap_or(Ok(()));
            }
            let batch: Vec<_> = {
                let mut pending = self.pending.lock();
                let count = pending.len().min(BATCH);
                pending.drain(..count).collect()
            };
            if batch.is_empty() {
                return Err(Unavailable("the task that was to count the run was dropped".to_owned()));
            }
            let result = self.count_all(writer, &mut rows, &batch).await;
            for counted in batch {
                let _ = counted.done.set(result.clone());
            }
        }
    }

    async fn count_all(&self, writer: &RowWriter, rows: &mut Rows, batch: &[Arc<Pending>]) -> Result<(), Unavailable> {
        // The marker of a run is checked against what was stored before the commit, so it cannot keep the commit itself
        // from counting a run twice.
        let runs = CountedRun::each_once(batch.iter().map(|pending| &pending.run));
        // The first time that a run ends or waits nothing is counted of it, unless a commit's answer was lost.
        let mut counted: Vec<Counted> = if runs.iter().any(|run| run.leg > 0) {
            self.counted(writer, &runs).await?
        } else {
            vec![Counted::default(); runs.len()]
        };
        for _ in 0..ATTEMPTS {
            let change = self.change(writer, rows, &runs, &counted);
            if change.tx.writes.is_empty() {
                return Ok(());
            }
            // A commit that fails otherwise, or that is not waited for to its end, may have happened, or may happen yet:
            // then these rows are not written again.
            let known = rows.take();
            let result = writer.ledger.commit(change.tx).await;
            match result {
                Ok(()) => {
                    rows.restore(known);
                    rows.keep(change.changed);
                    return Ok(());
                }
                Err(CommitError::VersionConflict { .. }) => {
                    rows.restore(known);
                    counted = self.counted(writer, &runs).await?;
                }
                Err(CommitError::CeilingReached { counter, .. }) => {
                    rows.restore(known);
                    rows.fill(&counter, &runs);
                }
                Err(error) => return Err(unavailable(error)),
            }
        }
        Err(Unavailable("the runs are being counted by others".to_owned()))
    }

    /// How much is counted of each run.
    async fn counted(&self, writer: &RowWriter, runs: &[CountedRun]) -> Result<Vec<Counted>, Unavailable> {
        let reading = runs.iter().map(|run| async {
            match writer.ledger.store().get(&self.partition, &keys::usage_counted(&run.run)).await? {
                Some(document) => Ok((document.version, decode(&document.value)?)),
                None => Ok(Counted::default()),
            }
        });
        try_join_all(reading).await
    }

    /// The commit that counts these runs, of which so much is counted, and the rows as they are then.
    fn change(&self, writer: &RowWriter, rows: &Rows, runs: &[CountedRun], counted: &[Counted]) -> Change {
        // The registration of a run is removed by a later commit of the same journal. If both are lost, the run is counted
        // again.
        let tx = Tx { durability: Durability::Written, ..Tx::new(self.partition.clone()) };
        let mut change = Change { tx, changed: HashMap::new() };
        // A session that a run made is not counted by its document, which a deletion subtracts. Where runs do not lie in
        // memory, what they were counted too high makes up for that, until the next recount.
        let is_exact = writer.ledger.retention().ended_bytes.is_some();
        let storage = runs.iter().map(|run| run.storage).filter(|delta| is_exact || *delta > 0).sum();
        if storage != 0 {
            // The bytes are stored already, so they are counted even beyond the bound.
            change.write(Write::Add { counter: keys::stored(), delta: storage, ceiling: None });
        }
        for (run, (version, before)) in runs.iter().zip(counted) {
            let delta = run.totals.without(&before.own);
            let of_fallbacks = of_fallbacks(run, before);
            if *version > 0 && delta.is_nothing() && of_fallbacks.is_empty() {
                continue;
            }
            let mut own = before.own;
            own += delta;
            change.mark(run, *version, &Marker { own, of_fallbacks: run.of_fallbacks.clone() }, writer);
            change.add(rows, run, run.dimensions.clone(), delta, writer);
            for (model, delta) in of_fallbacks {
                change.add(rows, run, run.dimensions.of_model(model), delta, writer);
            }
        }
        change.put_rows(writer);
        change
    }
}

/// What is to be counted of each model that a run fell back to, of which `before` says what is counted.
fn of_fallbacks<'r>(run: &'r CountedRun, before: &Marker) -> Vec<(&'r str, Totals)> {
    let is_new = run.of_fallbacks.iter().map(|(model, totals)| {
        let counted = before.of_fallbacks.iter().find(|(counted, _)| counted == model);
        (model.as_str(), counted.map_or(*totals, |(_, counted)| totals.without(counted)))
    });
    is_new.filter(|(_, totals)| !totals.is_nothing()).collect()
}

/// A commit that counts runs.
#[derive(Debug)]
struct Change {
    tx: Tx,
    /// The rows that it changes, as they are after it.
    changed: HashMap<(Day, Dimensions), Row>,
}

impl Change {
    fn write(&mut self, write: Write) {
        self.tx.writes.push(write);
    }

    /// Says how much of a run is counted.
    fn mark(&mut self, run: &CountedRun, version: u64, counted: &Marker, writer: &RowWriter) {
        let ttl = writer.ledger.retention().usage_marker_ttl(run.has_ended);
        let tx = std::mem::replace(&mut self.tx, Tx::new(Partition::new("")));
        self.tx = tx.put_at(keys::usage_counted(&run.run), version, encode(counted), Some(ttl));
    }

    /// Adds to a row, which is made if this process has none for the run.
    fn add(&mut self, rows: &Rows, run: &CountedRun, of: Dimensions, delta: Totals, writer: &RowWriter) {
        let (mut at, mut fullness) = ((run.day, of), Fullness::Room);
        loop {
            if let Some(row) = self.changed.get_mut(&at) {
                row.totals += delta;
                return;
            }
            if let Some(row) = rows.stored.get(&at) {
                let mut row = row.clone();
                row.totals += delta;
                self.changed.insert(at, row);
                return;
            }
            let next = match fullness {
                Fullness::Room => Fullness::NoUsers,
                Fullness::NoUsers | Fullness::KeysAlone => Fullness::KeysAlone,
            };
            if rows.fullness(run.day) <= fullness {
                break;
            }
            fullness = next;
            at.1 = match fullness {
                Fullness::Room | Fullness::NoUsers => at.1.of_other_user(),
                Fullness::KeysAlone => run.dimensions.of_key_alone(),
            };
        }
        let retention = writer.ledger.retention();
        let counter = keys::usage_rows(&run.day.to_string());
        let ceiling = match fullness {
            Fullness::Room => Some(retention.usage_rows),
            Fullness::NoUsers => Some(retention.usage_rows.saturating_mul(2)),
            // A tenant has few keys, which the configuration names.
            Fullness::KeysAlone => None,
        };
        let ceiling = ceiling.map(crate::agent::machine::budget::signed);
        self.write(Write::Add { counter: counter.clone(), delta: 1, ceiling });
        self.write(Write::ExpireCounter { counter, ttl: retention.usage });
        let key = writer.new_key(run.day);
        self.changed.insert(at, Row { key, totals: delta });
    }

    fn put_rows(&mut self, writer: &RowWriter) {
        let ttl = Some(writer.ledger.retention().usage);
        for ((_, dimensions), Row { key, totals }) in &self.changed {
            let value: Bytes = encode(&StoredRow { dimensions: dimensions.clone(), totals: *totals });
            self.tx.writes.push(Write::Put { key: key.clone(), value, ttl });
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl Rows {
    /// Takes rows in as they are stored now.
    fn keep(&mut self, changed: HashMap<(Day, Dimensions), Row>) {
        if self.stored.len() + changed.len() > ROWS {
            // What is forgotten here stays in the store. The next runs begin other rows.
            drop(self.take());
        }
        let before = self.stored.len();
        self.stored.extend(changed);
        self.at_hand.fetch_add(self.stored.len() - before, Ordering::Relaxed);
    }

    /// Takes all rows, which stay in the store: those that are not [restored](Self::restore) are forgotten here.
    fn take(&mut self) -> HashMap<(Day, Dimensions), Row> {
        self.at_hand.fetch_sub(self.stored.len(), Ordering::Relaxed);
        std::mem::take(&mut self.stored)
    }

    /// Has these rows at hand again, after none.
    fn restore(&mut self, rows: HashMap<(Day, Dimensions), Row>) {
        self.at_hand.fetch_add(rows.len(), Ordering::Relaxed);
        self.stored = rows;
    }

    /// How much of a run of this day is told apart.
    fn fullness(&self, day: Day) -> Fullness {
        self.full.filter(|(full, _)| *full == day).map_or(Fullness::Room, |(_, fullness)| fullness)
    }

    /// Notes that the day of this counter has no room for another row.
    fn fill(&mut self, counter: &Key, runs: &[CountedRun]) {
        let days = runs.iter().map(|run| run.day);
        for day in days.filter(|day| keys::usage_rows(&day.to_string()) == *counter).take(1) {
            let fullness = match self.fullness(day) {
                Fullness::Room => Fullness::NoUsers,
                Fullness::NoUsers | Fullness::KeysAlone => Fullness::KeysAlone,
            };
            self.full = Some((day, fullness));
        }
    }
}
