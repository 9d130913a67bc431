//! The commit that counts runs. Pure.

use std::sync::Arc;

use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::machine::budget::signed;
use crate::agent::usage::counted_run::CountedRun;
use crate::agent::usage::row::{Day, Dimensions, Marker, StoredRow, Totals};
use crate::agent::usage::rows::{Fullness, Row, RowName, RowWriter, Rows};
use crate::store::{Durability, Partition, Tx, Write};
use crate::types::maps::HashMap;

/// How much of a run is counted, and the marker's version.
pub(super) type Counted = (u64, Marker);

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
pub(super) struct Change {
    tx: Tx,
    /// The rows that it changes: their versions before it, and their sums after it.
    changed: HashMap<RowName, Row>,
}

impl Change {
    /// The commit that counts these runs, of which so much is counted. All rows that they may be counted in are at hand.
    pub(super) fn new(
        partition: &Partition,
        writer: &RowWriter,
        rows: &Rows,
        runs: &[CountedRun],
        counted: &[Counted],
    ) -> Self {
        // In a store of this process's own, the registration of a run is removed by a later commit of the same journal: if
        // both are lost, the run is counted again. Elsewhere the count must last before its run is unregistered, as it may
        // lie on another server than the registration.
        let is_shared = writer.ledger.store().is_shared();
        let durability = if is_shared { Durability::Synced } else { Durability::Written };
        let mut change = Self { tx: Tx { durability, ..Tx::new(partition.clone()) }, changed: HashMap::default() };
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
            change.add(rows, run.day, &run.dimensions, delta, writer);
            for (model, delta) in of_fallbacks {
                change.add(rows, run.day, &Arc::new(run.dimensions.of_model(model)), delta, writer);
            }
        }
        change
    }

    /// Whether it changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.tx.writes.is_empty()
    }

    /// The commit, and the rows as they are stored after it.
    pub(super) fn finish(mut self, writer: &RowWriter) -> (Tx, HashMap<RowName, Row>) {
        let ttl = Some(writer.ledger.retention().usage);
        for (name, row) in &mut self.changed {
            let stored = StoredRow { dimensions: Dimensions::clone(&name.1), totals: row.totals };
            self.tx = self.tx.put_at(writer.key(name), row.version, encode(&stored), ttl);
            row.version += 1;
        }
        (self.tx, self.changed)
    }

    fn write(&mut self, write: Write) {
        self.tx.writes.push(write);
    }

    /// Says how much of a run is counted.
    fn mark(&mut self, run: &CountedRun, version: u64, counted: &Marker, writer: &RowWriter) {
        let ttl = writer.ledger.retention().usage_marker_ttl(run.has_ended);
        let tx = std::mem::replace(&mut self.tx, Tx::new(Partition::new("")));
        self.tx = tx.put_at(keys::usage_counted(&run.run), version, encode(counted), Some(ttl));
    }

    /// Adds to a row, which is made if there is none for the run.
    fn add(&mut self, rows: &Rows, day: Day, of: &Arc<Dimensions>, delta: Totals, writer: &RowWriter) {
        let mut names = rows.names(day, of);
        for (name, _) in &names {
            let stored = rows.get(name).filter(|row| row.version > 0);
            if let Some(mut row) = self.changed.get(name).copied().or(stored) {
                row.totals += delta;
                self.changed.insert(name.clone(), row);
                return;
            }
        }
        let Some((name, fullness)) = names.pop() else { return };
        self.make_room(day, fullness, writer);
        self.changed.insert(name, Row { version: 0, totals: delta });
    }

    /// Counts another row of a day.
    fn make_room(&mut self, day: Day, fullness: Fullness, writer: &RowWriter) {
        let retention = writer.ledger.retention();
        let counter = keys::usage_rows(&day.to_string());
        let ceiling = match fullness {
            Fullness::Room => Some(retention.usage_rows),
            Fullness::NoUsers => Some(retention.usage_rows.saturating_mul(2)),
            // A tenant has few keys and agents, which the configuration names.
            Fullness::NoModels => None,
        };
        self.write(Write::Add { counter: counter.clone(), delta: 1, ceiling: ceiling.map(signed) });
        self.write(Write::ExpireCounter { counter, ttl: retention.usage });
    }
}
