//! Counts the runs of one tenant, several with one commit.
//!
//! Runs that end while a commit is under way are counted together by the next one.

use std::sync::{Arc, OnceLock};

use futures_util::future::try_join_all;
use parking_lot::Mutex;

use crate::agent::error::unavailable;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::agent::usage::change::{Change, Counted};
use crate::agent::usage::counted_run::CountedRun;
use crate::agent::usage::row::StoredRow;
use crate::agent::usage::rows::{Row, RowName, RowWriter, Rows};
use crate::store::{CommitError, Key, Partition, Unavailable};
use crate::types::RunId;
use crate::types::maps::{HashMap, HashSet};

/// Runs counted by one commit.
const BATCH: usize = 64;
/// How often a commit is tried that finds runs counted already, or rows of another version.
const ATTEMPTS: usize = 8;

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

/// Why runs were not counted together.
enum Uncounted {
    /// The store did not answer, or has what cannot be read.
    Failed(Unavailable),
    /// What they are counted in changed again and again.
    Contended,
}

impl From<Unavailable> for Uncounted {
    fn from(error: Unavailable) -> Self {
        Self::Failed(error)
    }
}

impl From<Uncounted> for Unavailable {
    fn from(uncounted: Uncounted) -> Self {
        match uncounted {
            Uncounted::Failed(error) => error,
            Uncounted::Contended => Self("the runs are being counted by others".to_owned()),
        }
    }
}

impl Tally {
    /// That of the tenant with this partition, of which this process may have forgotten rows unless it `has_all`.
    pub(super) fn new(partition: Partition, writer: &RowWriter, has_all: bool) -> Self {
        Self { partition, pending: Mutex::default(), rows: tokio::sync::Mutex::new(Rows::new(writer, has_all)) }
    }

    /// Counts runs, perhaps together with others. Returns what became of each.
    pub(super) async fn count(
        &self,
        writer: &RowWriter,
        runs: impl IntoIterator<Item = CountedRun>,
    ) -> Vec<Result<(), Unavailable>> {
        let own: Vec<_> = runs.into_iter().map(|run| Arc::new(Pending { run, done: OnceLock::new() })).collect();
        self.pending.lock().extend(own.iter().cloned());
        let mut rows = self.rows.lock().await;
        while own.iter().any(|pending| pending.done.get().is_none()) {
            let batch: Vec<_> = {
                let mut pending = self.pending.lock();
                let count = pending.len().min(BATCH);
                pending.drain(..count).collect()
            };
            if batch.is_empty() {
                break;
            }
            self.count_batch(writer, &mut rows, &batch).await;
        }
        let dropped = || Err(Unavailable("the task that was to count the run was dropped".to_owned()));
        own.iter().map(|pending| pending.done.get().cloned().unwrap_or_else(dropped)).collect()
    }

    /// Counts these runs together, or one by one where what they are counted in changes again and again.
    async fn count_batch(&self, writer: &RowWriter, rows: &mut Rows, batch: &[Arc<Pending>]) {
        // The marker of a run is checked against what was stored before the commit, so it cannot keep the commit itself
        // from counting a run twice.
        let runs = CountedRun::each_once(batch.iter().map(|pending| &pending.run));
        let mut results: HashMap<&RunId, Result<(), Unavailable>> = HashMap::default();
        match self.count_all(writer, rows, &runs).await {
            Err(Uncounted::Contended) if runs.len() > 1 => {
                for run in &runs {
                    let alone = std::slice::from_ref(run);
                    results.insert(run.id(), self.count_all(writer, rows, alone).await.map_err(Unavailable::from));
                }
            }
            result => {
                let result = result.map_err(Unavailable::from);
                results.extend(runs.iter().map(|run| (run.id(), result.clone())));
            }
        }
        for pending in batch {
            if let Some(result) = results.get(pending.run.id()) {
                let _ = pending.done.set(result.clone());
            }
        }
    }

    async fn count_all(&self, writer: &RowWriter, rows: &mut Rows, runs: &[CountedRun]) -> Result<(), Uncounted> {
        // The first time that a run ends or waits nothing is counted of it, unless a commit's answer was lost.
        let mut counted: Vec<Counted> = if runs.iter().any(|run| run.leg > 0) {
            self.counted(writer, runs).await?
        } else {
            vec![Counted::default(); runs.len()]
        };
        let mut attempts = 0;
        while attempts < ATTEMPTS {
            self.read_rows(writer, rows, runs).await?;
            let change = Change::new(&self.partition, writer, rows, runs, &counted);
            if change.is_empty() {
                return Ok(());
            }
            let (tx, changed) = change.finish(writer);
            // A commit that fails otherwise, or that is not waited for to its end, may have happened, or may happen yet:
            // then these rows are read before they are written again.
            let known = rows.take();
            match writer.ledger.commit(tx).await {
                Ok(()) => {
                    rows.restore(known);
                    rows.keep(changed);
                    rows.bound();
                    return Ok(());
                }
                Err(CommitError::VersionConflict { key, .. }) => {
                    // A row that has another version was written by a commit that was given up, or the store has
                    // forgotten what it had confirmed.
                    if !key.starts_with(keys::USAGE) {
                        rows.restore(known);
                    }
                    counted = self.counted(writer, runs).await?;
                    attempts += 1;
                }
                Err(CommitError::CeilingReached { counter, .. }) => {
                    rows.restore(known);
                    if !fill(rows, &counter, runs) {
                        attempts += 1;
                    }
                }
                Err(error) => return Err(unavailable(error).into()),
            }
        }
        Err(Uncounted::Contended)
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

    /// Reads those rows that these runs may be counted in and that are not at hand.
    async fn read_rows(&self, writer: &RowWriter, rows: &mut Rows, runs: &[CountedRun]) -> Result<(), Unavailable> {
        let names = runs.iter().flat_map(|run| {
            let models = run.of_fallbacks.iter().map(|(model, _)| Arc::new(run.dimensions.of_model(model)));
            models.chain([Arc::clone(&run.dimensions)]).flat_map(|of| rows.names(run.day, &of)).map(|(name, _)| name)
        });
        let missing: HashSet<RowName> = names.filter(|name| rows.get(name).is_none()).collect();
        let reading = missing.into_iter().map(|name| async {
            let row = match writer.ledger.store().get(&self.partition, &writer.key(&name)).await? {
                Some(document) => {
                    let StoredRow { totals, .. } = decode(&document.value)?;
                    Row { version: document.version, totals }
                }
                None => Row::default(),
            };
            Ok::<_, Unavailable>((name, row))
        });
        rows.keep(try_join_all(reading).await?);
        Ok(())
    }
}

/// Notes that the day of this counter has no room for another row; whether less is told apart from now on.
fn fill(rows: &mut Rows, counter: &Key, runs: &[CountedRun]) -> bool {
    let day = runs.iter().map(|run| run.day).find(|day| keys::usage_rows(&day.to_string()) == *counter);
    day.is_some_and(|day| rows.fill(day))
}
