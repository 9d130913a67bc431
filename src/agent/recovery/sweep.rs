//! Finds orphaned runs.
//!
//! A nudge tells every replica when a run is orphaned. In case a nudge is lost, one of the replicas looks each
//! second. The entries are hints; the run's lease decides which replica resumes it.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use tokio::time::Instant;

use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::agent::ownership::registry::Registration;
use crate::agent::recovery::Recovery;
use crate::agent::recovery::orphan::Orphan;
use crate::store::pages::scan_pages;
use crate::store::{Document, Order, Scan, Unavailable};
use crate::types::RunId;
use crate::types::pauses::spread;

/// How often all replicas together look for orphaned runs while there are none, and how often each does while there are.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Runs looked at in one page of a sweep.
const PAGE: usize = 256;
/// Runs that are looked at together.
const TOGETHER: usize = 32;
/// How often a process compares the entries under its name with the runs that it drives.
const RECONCILE_EVERY: Duration = Duration::from_secs(30);

impl Recovery {
    /// Resumes orphaned runs, for ever.
    pub(in crate::agent) async fn sweep(&self) {
        let mut orphaned = self.ledger.store().watch(&keys::orphans_topic());
        let mut reconciled = Instant::now();
        loop {
            let pause = match self.sweep_once().await {
                Ok(0) => self.ownership.replica.next_turn(SWEEP_EVERY),
                // A run that could not be resumed now may be resumed in a second.
                Ok(_) => spread(SWEEP_EVERY),
                Err(error) => {
                    if self.cannot_sweep.is_due() {
                        tracing::warn!(%error, "could not look for orphaned runs; trying again");
                    }
                    spread(SWEEP_EVERY)
                }
            };
            if reconciled.elapsed() >= RECONCILE_EVERY {
                reconciled = Instant::now();
                if let Err(error) = self.reconcile().await {
                    tracing::warn!(%error, "could not compare the registered runs with those that this replica drives");
                }
            }
            tokio::select! {
                () = orphaned.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Looks at all orphaned runs, and returns how many there were.
    async fn sweep_once(&self) -> Result<usize, Unavailable> {
        self.ownership.join().await?;
        if self.lifecycle.is_ending() {
            return Ok(0);
        }
        let mut found = 0;
        let prefix = keys::live_entries(keys::ORPHANED);
        let partition = keys::live_partition();
        let scan = Scan { prefix: prefix.clone(), after: None, limit: PAGE, order: Order::Ascending };
        let mut pages = pin!(scan_pages(&**self.ledger.store(), &partition, scan));
        while let Some(entries) = pages.try_next().await? {
            found += entries.len();
            let look = async |(key, document): (String, Document)| {
                let Some(run) = key.strip_prefix(&prefix).and_then(RunId::parse) else { return };
                let recovered = match Orphan::read(&run, &key, &document) {
                    Ok(orphan) => self.recover(&orphan).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = recovered
                    && self.cannot_resume.is_due()
                {
                    tracing::warn!(%run, %error, "could not resume the run, and perhaps others; trying again");
                }
            };
            futures_util::stream::iter(entries).map(look).buffer_unordered(TOGETHER).collect::<()>().await;
        }
        Ok(found)
    }

    /// Orphans the runs that are registered for this replica and that it does not drive, and counts them.
    pub(in crate::agent) async fn reconcile(&self) -> Result<(), Unavailable> {
        let mut undriven = self.undriven().await?;
        if !undriven.is_empty() {
            // A run that left this replica after its registration was read is not registered any more.
            let again: HashSet<RunId> = self.undriven().await?.into_iter().map(|(run, _)| run).collect();
            undriven.retain(|(run, _)| again.contains(run));
        }
        for (run, entry) in &undriven {
            if entry.age() >= RECONCILE_EVERY {
                self.ownership.replica.orphan(run, entry).await?;
            }
        }
        self.backlog.set_queued(undriven.len());
        Ok(())
    }

    /// The runs that are registered for this replica, and that it neither drives nor has yet to count.
    async fn undriven(&self) -> Result<Vec<(RunId, Registration)>, Unavailable> {
        let mut undriven = Vec::new();
        for (key, document) in self.ownership.replica.own_entries().await? {
            let Some(run) = key.rsplit('/').next().and_then(RunId::parse) else { continue };
            if self.active.get(&run).is_none() && !self.launcher.uncounted.contains(&run) {
                undriven.push((run, decode(&document.value)?));
            }
        }
        Ok(undriven)
    }
}
