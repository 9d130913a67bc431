//! How many runs wait, as of the last look: for their turn, or for their client.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::TryStreamExt;

use crate::agent::ledger::due::Due;
use crate::agent::ledger::keys;
use crate::store::pages::scan_pages;
use crate::store::{Order, Scan, Store, Unavailable};

/// Most runs that are counted. More take the store longer to list than the figure is worth.
const MOST: usize = 10_000;
/// Most entries that are read for that: messages to hooks have entries too.
const MOST_READ: usize = 100_000;
/// Entries read at a time.
const PAGE: usize = 1_000;

/// The figures of the last look.
#[derive(Debug, Default)]
pub struct Backlog {
    queued: AtomicUsize,
    waiting: AtomicUsize,
}

impl Backlog {
    /// Runs that were registered with this replica and not driven.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Runs of all replicas that waited for their client.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// So many runs are registered with this replica and not driven.
    pub(super) fn set_queued(&self, runs: usize) {
        self.queued.store(runs, Ordering::Relaxed);
    }

    /// Counts the runs that wait for their client: each has an entry in the due index. Returns how many entries there are.
    pub(super) async fn count_waiting(&self, store: &dyn Store) -> Result<usize, Unavailable> {
        let partition = keys::due_partition();
        let scan = Scan { prefix: String::new(), after: None, limit: PAGE, order: Order::Ascending };
        let mut pages = pin!(scan_pages(store, &partition, scan));
        let (mut entries, mut runs) = (0, 0);
        while runs < MOST
            && entries < MOST_READ
            && let Some(page) = pages.try_next().await?
        {
            entries += page.len();
            runs += page.iter().filter(|(key, _)| Due::is_of_wait(key)).count();
        }
        self.waiting.store(runs.min(MOST), Ordering::Relaxed);
        Ok(entries)
    }
}
