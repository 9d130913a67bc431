//! The rows that one process writes for a tenant, as far as they are kept at hand.
//!
//! A row has the name of what it counts, so a row that was forgotten is read and never begun a second time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::agent::ledger::document::encode;
use crate::agent::ledger::{Ledger, keys};
use crate::agent::usage::row::{Day, Dimensions, Totals};
use crate::store::Key;

/// Rows of one tenant that are kept at hand.
const ROWS: usize = 4_096;
/// Days of one tenant that are known to have as many rows as they may.
const FULL_DAYS: usize = 128;

/// What a row counts.
pub(super) type RowName = (Day, Arc<Dimensions>);

/// Writes the rows of this process.
#[derive(Debug)]
pub(super) struct RowWriter {
    pub(super) ledger: Ledger,
    /// Part of the names of its rows.
    process: Arc<str>,
    /// How many rows are kept at hand.
    at_hand: Arc<AtomicUsize>,
}

impl RowWriter {
    pub(super) fn new(ledger: Ledger) -> Self {
        let process = Uuid::now_v7().simple().to_string().into();
        Self { ledger, process, at_hand: Arc::default() }
    }

    /// How many rows of all tenants are kept at hand.
    pub(super) fn rows_at_hand(&self) -> usize {
        self.at_hand.load(Ordering::Relaxed)
    }

    /// The key of this process's row for these dimensions.
    pub(super) fn key(&self, (day, dimensions): &RowName) -> Key {
        let digest = Sha256::digest(encode(dimensions.as_ref()));
        let half = digest.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes));
        keys::usage_row(&day.to_string(), &self.process, half)
    }
}

/// A row as it is stored.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Row {
    /// 0 if there is none.
    pub(super) version: u64,
    pub(super) totals: Totals,
}

/// How much of a run is told apart where a day has many rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fullness {
    /// All.
    Room,
    /// All but the user.
    NoUsers,
    /// The key and the agent.
    NoModels,
}

/// The rows of this process for one tenant.
#[derive(Debug)]
pub(super) struct Rows {
    stored: HashMap<RowName, Row>,
    /// Whether none was ever forgotten: a row that is not at hand then does not exist.
    has_all: bool,
    /// How many rows all tenants have at hand.
    at_hand: Arc<AtomicUsize>,
    /// The days whose rows are as many as they may be.
    full: HashMap<Day, Fullness>,
}

/// Rows that were [taken](Rows::take).
#[derive(Debug)]
pub(super) struct TakenRows {
    stored: HashMap<RowName, Row>,
    has_all: bool,
}

impl Rows {
    /// No rows; `has_all` if this process has written none for the tenant.
    pub(super) fn new(writer: &RowWriter, has_all: bool) -> Self {
        Self { stored: HashMap::new(), has_all, at_hand: writer.at_hand.clone(), full: HashMap::new() }
    }

    /// The row of this name, if that is known.
    pub(super) fn get(&self, name: &RowName) -> Option<Row> {
        self.stored.get(name).copied().or_else(|| self.has_all.then(Row::default))
    }

    /// Takes in rows as they are stored now.
    pub(super) fn keep(&mut self, rows: impl IntoIterator<Item = (RowName, Row)>) {
        let before = self.stored.len();
        self.stored.extend(rows);
        self.at_hand.fetch_add(self.stored.len() - before, Ordering::Relaxed);
    }

    /// Forgets all rows if they are more than are kept.
    pub(super) fn bound(&mut self) {
        if self.stored.len() > ROWS {
            drop(self.take());
        }
    }

    /// Takes all rows, which stay in the store: unless they are [restored](Self::restore), they are forgotten.
    pub(super) fn take(&mut self) -> TakenRows {
        self.at_hand.fetch_sub(self.stored.len(), Ordering::Relaxed);
        TakenRows { stored: std::mem::take(&mut self.stored), has_all: std::mem::replace(&mut self.has_all, false) }
    }

    /// Has these rows at hand again, after none.
    pub(super) fn restore(&mut self, rows: TakenRows) {
        self.at_hand.fetch_add(rows.stored.len(), Ordering::Relaxed);
        (self.stored, self.has_all) = (rows.stored, rows.has_all);
    }

    /// How much of a run of this day is told apart.
    pub(super) fn fullness(&self, day: Day) -> Fullness {
        self.full.get(&day).copied().unwrap_or(Fullness::Room)
    }

    /// What a run is counted by, from what tells most apart to what is told apart on its day at least.
    pub(super) fn names(&self, day: Day, run: &Arc<Dimensions>) -> Vec<(RowName, Fullness)> {
        let fullness = self.fullness(day);
        [Fullness::Room, Fullness::NoUsers, Fullness::NoModels]
            .into_iter()
            .take_while(|less| *less <= fullness)
            .map(|less| match less {
                Fullness::Room => ((day, Arc::clone(run)), less),
                Fullness::NoUsers => ((day, Arc::new(run.of_other_user())), less),
                Fullness::NoModels => ((day, Arc::new(run.of_other_model())), less),
            })
            .collect()
    }

    /// Notes that a day has no room for another row; whether less is told apart from now on.
    pub(super) fn fill(&mut self, day: Day) -> bool {
        let next = match self.fullness(day) {
            Fullness::Room => Fullness::NoUsers,
            Fullness::NoUsers => Fullness::NoModels,
            Fullness::NoModels => return false,
        };
        if self.full.len() >= FULL_DAYS
            && let Some(oldest) = self.full.keys().min().copied()
            && oldest != day
        {
            self.full.remove(&oldest);
        }
        self.full.insert(day, next);
        true
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        drop(self.take());
    }
}
