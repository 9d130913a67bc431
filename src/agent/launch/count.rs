//! Counts the runs that have ended here, and then unregisters them.
//!
//! A run stays registered until it is counted: if this process dies before, the replica that finds the registration
//! counts the run. No end waits for either, so runs that end within a second share both commits.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use crate::agent::launch::Launcher;
use crate::agent::usage::CountedRun;
use crate::failpoint;
use crate::store::Unavailable;
use crate::types::{RunId, Tenant};

/// How long the first of these runs waits for others, and how soon it is tried again to count those that could not be.
const TOGETHER: Duration = Duration::from_secs(1);
/// Tenants whose runs are counted at the same time.
const TENANTS_AT_ONCE: usize = 16;

impl Launcher {
    /// Counts and unregisters a run within a moment, together with those that end until then.
    pub(super) fn count_soon(self: &Arc<Self>, tenant: Tenant, run: CountedRun) {
        if self.uncounted.add(tenant, run) {
            let launcher = self.clone();
            // What is not counted when this process leaves its runs is found by another one, or by the next.
            self.lifecycle.spawn_supervised("counting ended runs", move || launcher.clone().count_ended());
        }
    }

    /// Counts and unregisters runs until none is left.
    async fn count_ended(self: Arc<Self>) {
        let ending = self.lifecycle.ending();
        loop {
            tokio::select! {
                () = ending.announced() => {}
                () = tokio::time::sleep(TOGETHER) => {}
            }
            let (counted, failed) = self.count_together().await;
            let unregistered = self.ownership.replica.unregister_all(&counted).await;
            // A run comes to each place, however many share the commit.
            for _ in &counted {
                failpoint::hit("run.unmarked");
            }
            if unregistered.is_ok() && self.uncounted.remove(&counted) {
                return;
            }
            if let Err(error) = failed.map_or(unregistered, Err) {
                if self.uncounted.cannot_count.is_due() {
                    tracing::warn!(%error, "could not count and unregister ended runs; trying again");
                }
                tokio::time::sleep(TOGETHER).await;
            }
        }
    }

    /// Counts all runs that can be: which they are, and why others could not be.
    async fn count_together(&self) -> (Vec<RunId>, Option<Unavailable>) {
        let counting = futures_util::stream::iter(self.uncounted.batches())
            .map(|(tenant, batches)| async move { self.count_batches(&tenant, batches).await });
        let results: Vec<_> = counting.buffer_unordered(TENANTS_AT_ONCE).collect().await;
        let (mut counted, mut failed) = (Vec::new(), None);
        for (runs, error) in results {
            counted.extend(runs);
            failed = error.or(failed);
        }
        for _ in &counted {
            failpoint::hit("run.counted");
        }
        (counted, failed)
    }

    /// Counts batches of one tenant's runs, up to the first that cannot be: what keeps it from being counted may keep the
    /// others as well, and each would wait for the store until its time is up.
    async fn count_batches(&self, tenant: &Tenant, batches: Vec<Vec<RunId>>) -> (Vec<RunId>, Option<Unavailable>) {
        let mut counted: Vec<RunId> = Vec::new();
        for mut batch in batches {
            let runs = self.uncounted.attempt(&batch);
            if let Err(error) = self.usage.count_all(tenant, runs).await {
                self.uncounted.note_failure(&batch);
                return (counted, Some(error));
            }
            if counted.is_empty() {
                counted = batch;
            } else {
                counted.append(&mut batch);
            }
        }
        (counted, None)
    }
}
