//! Gives an orphaned run what it needs: a driver, its turn in its session, or its end.

use std::time::Duration;

use crate::agent::error::unavailable;
use crate::agent::launch::ready::Idle;
use crate::agent::launch::resume::NotResumed;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ownership::registry::Registration;
use crate::agent::recovery::Recovery;
use crate::agent::run_memory::Purpose;
use crate::store::{Check, CommitError, Document, Partition, Tx, Unavailable, Write};
use crate::types::clock::now_ms;
use crate::types::{Outcome, RunId, RunStatus, StopReason, Tenant};

/// A run that does not exist this long after it was registered will not come to exist.
const STILLBORN_AFTER: Duration = Duration::from_secs(60);

/// A run that is registered without a replica.
pub(super) struct Orphan<'a> {
    run: &'a RunId,
    /// The registration's key and version.
    key: &'a str,
    version: u64,
    entry: Registration,
}

impl<'a> Orphan<'a> {
    pub(super) fn read(run: &'a RunId, key: &'a str, document: &Document) -> Result<Self, Unavailable> {
        Ok(Self { run, key, version: document.version, entry: decode(&document.value)? })
    }

    fn partition(&self) -> Partition {
        keys::run_partition(&self.entry.tenant, self.entry.session.as_ref(), self.run)
    }

    /// Checks that the registration is as it was read.
    fn unchanged(&self) -> Check {
        Check::Version { key: self.key.into(), version: self.version }
    }
}

/// What an orphaned run needs, by its head.
enum Need {
    /// A driver: its own was interrupted.
    Driver(Head),
    /// Its turn in its session.
    Turn(Head),
    /// Time: it is registered before it is created.
    Time,
    /// No driver: it ended, waits for its client, or was never created.
    Nothing(Option<Head>),
}

impl Need {
    /// What a run with this head needs, which was registered for so long.
    fn of(head: Option<Head>, registered_for: Duration) -> Self {
        match head {
            None if registered_for < STILLBORN_AFTER => Self::Time,
            None => Self::Nothing(None),
            Some(head) => match head.status {
                RunStatus::InProgress => Self::Driver(head),
                RunStatus::Queued => Self::Turn(head),
                RunStatus::RequiresAction
                | RunStatus::Completed
                | RunStatus::Incomplete
                | RunStatus::Cancelled
                | RunStatus::Failed => Self::Nothing(Some(head)),
            },
        }
    }
}

/// How a run ends that would not get further if it was resumed.
fn beyond_help(idle: &Idle) -> Option<Outcome> {
    if idle.has_lost_its_log() {
        return Some(Outcome::unknown(StopReason::StoreLostState));
    }
    let ended = || {
        let mut outcome = idle.run().outcome(StopReason::CrashLoop, now_ms());
        outcome.warnings.push("the run was ended without a driver: its replicas died while they ended it".to_owned());
        outcome
    };
    idle.run().is_beyond_help().then(ended)
}

impl Recovery {
    /// Gives an orphaned run what it needs: a driver here, its turn in its session, more time, or its end.
    pub(super) async fn recover(&self, orphan: &Orphan<'_>) -> Result<(), Unavailable> {
        let Orphan { run, entry, .. } = orphan;
        if self.active.needs_registration(run) {
            self.ledger.commit(self.ownership.replica.register(run, entry)).await.map_err(unavailable)?;
            // If the run's driver has left it meanwhile, the driver's word on the registration came first.
            if !self.active.needs_registration(run) {
                self.ownership.replica.orphan(run, entry).await?;
            }
            return Ok(());
        }
        let partition = orphan.partition();
        let head = self.ledger.head(&partition, run).await?;
        if head.as_ref().is_some_and(Head::is_under_way) && self.ledger.spec(&partition, run).await?.is_none() {
            return self.launcher.fail_lost(run, entry).await;
        }
        match Need::of(head, entry.age()) {
            Need::Driver(head) => self.resume_orphan(orphan, &head).await,
            Need::Turn(head) => self.begin_orphan(orphan, &head).await,
            Need::Time => Ok(()),
            Need::Nothing(head) => self.forget(orphan, head.as_ref()).await,
        }
    }

    /// Resumes an interrupted run, or fails it if resuming cannot help; another replica may have its lease.
    async fn resume_orphan(&self, Orphan { run, entry, .. }: &Orphan<'_>, head: &Head) -> Result<(), Unavailable> {
        // Without room the run is left to another replica, or to the next look.
        let bytes = self.launcher.memory_of(&entry.tenant, head).await?;
        let Some(memory) = self.launcher.memory.take(bytes, Purpose::Resumption) else {
            if self.lacks_memory.is_due() {
                tracing::warn!(%run, bytes, "an orphaned run, and perhaps others, waits: live runs take all of server.run_memory");
            }
            return Ok(());
        };
        let Some(idle) = self.launcher.acquire_idle(&entry.tenant, head).await? else { return Ok(()) };
        if let Some(outcome) = beyond_help(&idle) {
            let entries = idle.entries();
            idle.release().await?;
            return self.launcher.fail(run, entry, outcome, Some(entries)).await;
        }
        if idle.status() != RunStatus::InProgress {
            return idle.release().await;
        }
        let tenant = &entry.tenant;
        if idle.run().was_handed_off() {
            tracing::info!(%run, %tenant, "resuming a run that its replica handed over");
        } else {
            tracing::warn!(%run, %tenant, "resuming an orphaned run: its replica died or lost the store");
        }
        match self.launcher.resume(idle, None, self.generations.current(), memory).await {
            // Without a request of its client, a run needs no room.
            Ok(_) | Err(NotResumed::NoRoom(_)) => Ok(()),
            Err(NotResumed::Failed(error)) => Err(error),
        }
    }

    /// Begins a queued run if its turn has come. Otherwise the run stays registered here, and is looked at from time
    /// to time until the end of the run before wakes it.
    async fn begin_orphan(&self, orphan: &Orphan<'_>, head: &Head) -> Result<(), Unavailable> {
        let Orphan { run, entry, .. } = orphan;
        if self.launcher.begin_queued(&entry.tenant, head).await? {
            return Ok(());
        }
        let waiting = Registration::new(entry.tenant.clone(), entry.session.clone());
        self.commit_unless_changed(self.ownership.replica.register(run, &waiting).check(orphan.unchanged())).await
    }

    /// Removes the registration of a run that needs no driver, after waking its session's next run: the driver may
    /// have died before it did so. The registration is removed under the run's lease. So a replica that stood still
    /// just before it began or resumed the run cannot do so later, when no registration leads to the run.
    async fn forget(&self, orphan: &Orphan<'_>, head: Option<&Head>) -> Result<(), Unavailable> {
        if let Some(session) = head.and_then(|head| head.session.as_ref()) {
            self.launcher.wake_next(&orphan.entry.tenant, session).await?;
        }
        let partition = orphan.partition();
        let Some(lease) = self.ownership.acquire_run(&partition, orphan.run).await? else { return Ok(()) };
        let removed = match self.ledger.head(&partition, orphan.run).await {
            Ok(Some(head)) if head.is_under_way() => Ok(()),
            Ok(head) => {
                // Its driver may have died before it counted the run.
                if let Some(head) = head
                    && let Err(error) = self.count_and_tell(&orphan.entry.tenant, &partition, &head).await
                {
                    lease.release().await?;
                    return Err(error);
                }
                let delete = Write::Delete { key: orphan.key.into() };
                let tx = Tx::new(keys::live_partition()).check(orphan.unchanged()).write(delete);
                self.commit_unless_changed(tx).await
            }
            Err(error) => Err(error),
        };
        lease.release().await?;
        removed
    }

    /// Counts a run that needs no driver, and tells the run that began it, if its driver may have died before it did so.
    async fn count_and_tell(&self, tenant: &Tenant, partition: &Partition, head: &Head) -> Result<(), Unavailable> {
        self.launcher.usage.count_found(tenant, partition, head).await?;
        self.launcher.tell_parent(tenant, head).await
    }

    /// Commits a change of a registration, unless the registration changed since it was read.
    async fn commit_unless_changed(&self, tx: Tx) -> Result<(), Unavailable> {
        match self.ledger.commit(tx).await {
            Ok(()) | Err(CommitError::VersionConflict { .. }) => Ok(()),
            Err(error) => Err(unavailable(error)),
        }
    }
}
