//! Finds orphaned runs, and resumes them.
//!
//! A nudge tells every replica when a run is orphaned. In case a nudge is lost, one of the replicas looks each
//! second. The entries are hints; the run's lease decides which replica resumes it.

use std::pin::pin;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use tokio::time::Instant;

use crate::agent::error::unavailable;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::agent::ownership::registry::Registration;
use crate::agent::recovery::Recovery;
use crate::store::pages::scan_pages;
use crate::store::{Check, CommitError, Document, Order, Partition, Scan, Tx, Unavailable, Write};
use crate::types::clock::now_ms;
use crate::types::pauses::spread;
use crate::types::{RunId, RunStatus, StopReason};

/// How often all replicas together look for orphaned runs while there are none, and how often each does while there are.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Runs looked at in one page of a sweep.
const PAGE: usize = 256;
/// Runs taken up at once.
const TOGETHER: usize = 32;
/// How often a process compares the entries under its name with the runs that it drives.
const RECONCILE_EVERY: Duration = Duration::from_secs(30);
/// An entry whose run does not exist this long after it was named will not exist any more.
const STILLBORN_AFTER: Duration = Duration::from_secs(60);

impl Recovery {
    /// Resumes orphaned runs, for ever.
    pub(in crate::agent) async fn sweep(&self) {
        let mut orphaned = self.ledger.store().watch(&keys::orphans_topic());
        let mut reconciled = Instant::now();
        loop {
            let pause = match self.sweep_once().await {
                Ok(0) => self.ownership.replica.next_turn(SWEEP_EVERY),
                // What could not be taken up may be in a second.
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
                if let Err(error) = self.recover(&run, &key, &document).await
                    && self.cannot_resume.is_due()
                {
                    tracing::warn!(%run, %error, "could not resume the run, and perhaps others; trying again");
                }
            };
            futures_util::stream::iter(entries).map(look).buffer_unordered(TOGETHER).collect::<()>().await;
        }
        Ok(found)
    }

    async fn recover(&self, run: &RunId, key: &str, found: &Document) -> Result<(), Unavailable> {
        let entry: Registration = decode(&found.value)?;
        if self.active.get(run).is_some() {
            return self.ledger.commit(self.ownership.replica.register(run, &entry)).await.map_err(unavailable);
        }
        let partition = keys::run_partition(&entry.tenant, entry.session.as_ref(), run);
        let head = self.ledger.head(&partition, run).await?;
        let age = Duration::from_millis(now_ms().saturating_sub(entry.since_ms));
        match head {
            Some(head) if head.is_under_way() && self.ledger.spec(&partition, run).await?.is_none() => {
                self.launcher.fail(run, &entry, StopReason::StoreLostState).await
            }
            Some(head) if head.status == RunStatus::InProgress => {
                if let Some(idle) = self.launcher.acquire_idle(&entry.tenant, &head).await? {
                    let found = idle.run();
                    let hopeless = if idle.records().is_empty() {
                        Some(StopReason::StoreLostState)
                    } else {
                        found.is_beyond_help().then_some(StopReason::CrashLoop)
                    };
                    if let Some(why) = hopeless {
                        idle.release().await?;
                        return self.launcher.fail(run, &entry, why).await;
                    }
                    if found.status() != RunStatus::InProgress {
                        return idle.release().await;
                    }
                    tracing::info!(%run, "resuming an orphaned run");
                    self.launcher.resume(idle, None, self.generations.current()).await?;
                }
                Ok(())
            }
            Some(head) if head.status == RunStatus::Queued => {
                if self.launcher.begin_queued(&entry.tenant, &head).await? {
                    return Ok(());
                }
                // It is called when it is its turn; until then it is kept here and looked at from time to time.
                let waiting = Registration::new(entry.tenant, entry.session);
                let check = Check::Version { key: key.into(), version: found.version };
                let tx = self.ownership.replica.register(run, &waiting).check(check);
                self.commit_unless_changed(tx).await
            }
            None if age < STILLBORN_AFTER => Ok(()),
            ended => {
                // The driver may have died before it woke the session's next run.
                if let Some(session) = ended.and_then(|head| head.session) {
                    self.launcher.wake_next(&entry.tenant, &session).await?;
                }
                self.forget(run, &partition, key, found.version).await
            }
        }
    }

    /// Forgets an entry whose run need not be driven. With the run's lease, so that a process that stood
    /// still while it was about to begin or go on with the run does not do so afterwards, unfound.
    async fn forget(&self, run: &RunId, partition: &Partition, key: &str, version: u64) -> Result<(), Unavailable> {
        let Some(lease) = self.ownership.acquire_run(partition, run).await? else { return Ok(()) };
        let head = self.ledger.head(partition, run).await;
        let forgotten = match &head {
            Ok(Some(head)) if head.is_under_way() => Ok(()),
            Ok(_) => {
                let key: crate::store::Key = key.into();
                let check = Check::Version { key: key.clone(), version };
                let tx = Tx::new(keys::live_partition()).check(check).write(Write::Delete { key });
                self.commit_unless_changed(tx).await
            }
            Err(error) => Err(error.clone()),
        };
        lease.release().await?;
        forgotten
    }

    /// Changes an entry unless it was changed since it was read.
    async fn commit_unless_changed(&self, tx: Tx) -> Result<(), Unavailable> {
        match self.ledger.commit(tx).await {
            Ok(()) | Err(CommitError::VersionConflict { .. }) => Ok(()),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Gives up the entries of runs that this process does not drive although they bear its name.
    async fn reconcile(&self) -> Result<(), Unavailable> {
        for (key, document) in self.ownership.replica.own_entries().await? {
            let Some(run) = key.rsplit('/').next().and_then(RunId::parse) else { continue };
            let entry: Registration = decode(&document.value)?;
            let age = Duration::from_millis(now_ms().saturating_sub(entry.since_ms));
            if self.active.get(&run).is_none() && age >= RECONCILE_EVERY {
                self.ownership.replica.orphan(&run, &entry).await?;
            }
        }
        Ok(())
    }
}
