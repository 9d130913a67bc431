//! Does what the due index lists, at its time.
//!
//! Every replica sweeps the index, less often the more replicas there are, so that all of them together ask the store
//! as often as one replica alone does. Two sweeps may find the same entry. The run's lease lets only one of them act,
//! and that one first compares the entry with the run.

use std::time::Duration;

use tokio::time::Instant;

use crate::agent::launch::resume::{Answer, NotResumed};
use crate::agent::ledger::due::{self, Due, DueKind};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::recovery::Recovery;
use crate::agent::run_memory::Purpose;
use crate::failpoint;
use crate::store::Unavailable;
use crate::types::approval::{Approval, ApprovalDecision, ApprovalRequest};
use crate::types::{RunStatus, StopReason};

/// How often the index is swept by all replicas together, on average.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// How often a replica counts what is in the index, at its turn to sweep it. Not at every turn, as a sweep of an index in
/// which nothing is due reads one entry, and a count reads all.
const COUNT_EVERY: Duration = Duration::from_secs(30);

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The entry was done, or its run no longer needs it.
    Settled,
    /// The next sweep looks at it again.
    Open,
}

impl Verdict {
    fn of(is_done: bool) -> Self {
        if is_done { Self::Settled } else { Self::Open }
    }
}

impl Recovery {
    /// Sweeps the due index until the agent has drained.
    pub(in crate::agent) async fn sweep_due(&self) {
        let mut counted: Option<Instant> = None;
        loop {
            tokio::time::sleep(self.ownership.replica.next_turn(SWEEP_EVERY)).await;
            if self.lifecycle.is_ending() {
                continue;
            }
            let counts = counted.is_none_or(|at| at.elapsed() >= COUNT_EVERY);
            if counts {
                counted = Some(Instant::now());
            }
            if let Err(error) = self.sweep_due_once(counts).await
                && self.cannot_read_due.is_due()
            {
                tracing::warn!(%error, "could not read what is due; trying again");
            }
        }
    }

    /// Does what is due now, after counting what is in the index if it `counts`: nothing is due if nothing is there.
    async fn sweep_due_once(&self, counts: bool) -> Result<(), Unavailable> {
        if counts && self.backlog.count_waiting(&**self.ledger.store()).await? == 0 {
            return Ok(());
        }
        self.do_what_is_due(self.ledger.store().now_ms()).await
    }

    /// Does everything that is due at `now_ms`. What fails stays in the index for the next sweep.
    pub(in crate::agent) async fn do_what_is_due(&self, now_ms: u64) -> Result<(), Unavailable> {
        for due in due::until(&**self.ledger.store(), now_ms).await? {
            let verdict = match due.kind {
                DueKind::WaitOver => self.end_wait(&due).await,
                DueKind::ToolAnswered => self.launcher.wake_if_waiting(&due).await.map(Verdict::of),
                // Sent beside the sweep, which other things wait for. The entry is removed once that is done.
                DueKind::Message => {
                    self.launcher.outbox.send_soon(due);
                    continue;
                }
            };
            let settled = match verdict {
                Ok(Verdict::Settled) => due.remove(&**self.ledger.store()).await,
                Ok(Verdict::Open) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = settled {
                tracing::warn!(run = %due.run, kind = ?due.kind, %error, "could not do what is due");
            }
        }
        Ok(())
    }

    /// Cancels a run whose client did not answer in time.
    async fn end_wait(&self, due: &Due) -> Result<Verdict, Unavailable> {
        let tenant = &due.owner.tenant;
        let partition = keys::run_partition(tenant, due.owner.session.as_ref(), &due.run);
        let Some(head) = self.ledger.head(&partition, &due.run).await? else { return Ok(Verdict::Settled) };
        if head.status == RunStatus::RequiresAction && head.waits_until_ms == Some(due.at_ms) {
            if head.reason == Some(StopReason::Approval) {
                return self.expire_approvals(due, &head).await;
            }
            if head.waits_for_services() {
                // Its driver gives up the calls that no service has answered.
                return self.launcher.wake(tenant, &head).await.map(Verdict::of);
            }
            let ended = self.launcher.stop_unless_changed(tenant, &head).await?;
            if ended {
                tracing::info!(run = %due.run, "the client did not answer in time; the run is cancelled");
            }
            return Ok(if ended { Verdict::Settled } else { Verdict::Open });
        }
        // A run under way may be about to wait: its entry is put before. A run that was resumed removes its entry
        // itself.
        Ok(if head.is_under_way() { Verdict::Open } else { Verdict::Settled })
    }

    /// Denies the calls of a run that were not decided in time, and lets the run go on.
    async fn expire_approvals(&self, due: &Due, head: &Head) -> Result<Verdict, Unavailable> {
        let tenant = &due.owner.tenant;
        let bytes = self.launcher.memory_of(tenant, head).await?;
        let Some(memory) = self.launcher.memory.take(bytes, Purpose::Resumption) else { return Ok(Verdict::Open) };
        let Some(idle) = self.launcher.acquire_idle(tenant, head).await? else { return Ok(Verdict::Open) };
        let expired = |request: &ApprovalRequest| Approval {
            step: request.step,
            call_id: request.call.id.clone(),
            name: request.call.name.clone(),
            decision: ApprovalDecision::Expire,
            by: None,
            user: None,
            reason: None,
            arguments: None,
            result: None,
            claim: None,
            awaits_others: false,
        };
        let approvals: Vec<_> = idle.run().approval_requests().map(expired).collect();
        // The log is the truth: the run may have been resumed since its head was read.
        if idle.status() != RunStatus::RequiresAction || approvals.is_empty() {
            idle.release().await?;
            return Ok(Verdict::Open);
        }
        failpoint::hit("approval.before_expiry");
        tracing::info!(run = %due.run, "the calls of the run were not approved in time; they are denied");
        let answer = Answer { approvals, leg: idle.run().leg_of_decisions(), is_of_client: false, claim: None };
        match self.launcher.resume(idle, Some(answer), self.generations.current(), memory).await {
            Ok(_) => Ok(Verdict::Settled),
            // Without a request of its client, a run needs no room.
            Err(NotResumed::NoRoom(_)) => Ok(Verdict::Open),
            Err(NotResumed::Failed(error)) => Err(error),
        }
    }
}
