//! Tells a run that one has ended which it began.
//!
//! A run that ended stays registered until the one that began it is told. If its replica dies before, the replica that finds the
//! registration tells it. What is told follows from the log of the run that ended, so whoever tells it tells the same.

use std::sync::Arc;

use crate::agent::error::{ClaimError, LookupError, unavailable};
use crate::agent::inbox::{self, Command};
use crate::agent::launch::Launcher;
use crate::agent::ledger::due::{Due, Owner};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::request_key::{RequestKey, RequestKeyKind};
use crate::failpoint;
use crate::store::Unavailable;
use crate::types::delegate::{ChildEnd, cut};
use crate::types::taken::Taken;
use crate::types::{Outcome, RunStatus, Tenant};

/// How long after the end of a run the due index resumes the one that began it, should nothing else have.
const SEEN_TO_MS: u64 = 2_000;

impl Launcher {
    /// Tells the run that began the one with this head, if that has ended and there is one.
    pub(in crate::agent) async fn tell_parent(
        self: &Arc<Self>,
        tenant: &Tenant,
        head: &Head,
    ) -> Result<(), Unavailable> {
        let Some(parent) = head.parent.clone().filter(|_| head.status.is_final()) else { return Ok(()) };
        self.limits.free_place(tenant, &parent.root, &head.id).await?;
        let Some(end) = self.child_end(tenant, head).await? else { return Ok(()) };
        failpoint::hit("delegate.before_told");
        let owner = Owner { tenant: tenant.clone(), session: parent.session.clone() };
        let due =
            Due::tool_answered(owner, parent.run.clone(), self.ledger.store().now_ms().saturating_add(SEEN_TO_MS));
        // Put before, so that no crash leaves the run waiting behind what it is told.
        self.ledger.commit(due.put()).await.map_err(unavailable)?;
        failpoint::hit("delegate.end_indexed");
        let key = RequestKey {
            name: format!("child-{}", head.id),
            fingerprint: head.id.to_string(),
            kind: RequestKeyKind::Key,
        };
        let command = Command::ChildEnded { call_id: parent.call.clone(), end: Box::new(end) };
        match inbox::send(&self.ledger, tenant, &parent.run, &command, Some(&key)).await {
            // A run that has ended is told nothing.
            Ok(_) | Err(LookupError::RunNotFound(_) | LookupError::Claim(ClaimError::Reused)) => {}
            Err(LookupError::Store(error)) => return Err(error),
            Err(error) => {
                tracing::warn!(run = %parent.run, child = %head.id, %error, "could not tell a run that one has ended which it began");
                return Err(Unavailable(error.to_string()));
            }
        }
        failpoint::hit("delegate.told");
        self.wake_soon(due);
        Ok(())
    }

    /// How a run ended; `None` if it has not.
    pub(in crate::agent) async fn child_end(
        &self,
        tenant: &Tenant,
        head: &Head,
    ) -> Result<Option<ChildEnd>, Unavailable> {
        let partition = keys::run_partition(tenant, head.session.as_ref(), &head.id);
        let outcome = self.ledger.outcome(&partition, &head.id).await?;
        let most = head.parent.as_ref().map_or(usize::MAX, |parent| parent.max_output_chars as usize);
        Ok(outcome.filter(|outcome| outcome.status().is_final()).map(|outcome| end(head, &outcome, most)))
    }
}

/// What is told of this outcome.
fn end(head: &Head, outcome: &Outcome, most: usize) -> ChildEnd {
    let status = outcome.status();
    let answer = if outcome.output_text.is_empty() { &outcome.refusal } else { &outcome.output_text };
    let (answer, truncated) = cut(answer, most);
    let text = told(&head.agent, outcome, answer);
    let own = Taken::of_one(outcome.usage, outcome.cost);
    let tree = outcome.delegated.as_ref().map_or(own, |below| own.and(below));
    ChildEnd { run: head.id.clone(), status, reason: outcome.reason, text, truncated, own, tree }
}

/// What the run said; of one that did not get to its end, also why.
fn told(agent: &str, outcome: &Outcome, said: String) -> String {
    let why = match outcome.status() {
        RunStatus::Completed if said.is_empty() => return format!("The agent {agent:?} answered nothing."),
        RunStatus::Completed => return said,
        RunStatus::Incomplete => format!("The agent {agent:?} did not get to the end: {}.", outcome.reason.as_str()),
        RunStatus::Cancelled => format!("The run of the agent {agent:?} was cancelled."),
        RunStatus::Failed | RunStatus::Queued | RunStatus::InProgress | RunStatus::RequiresAction => {
            let error = outcome.error.as_ref().map_or(outcome.reason.as_str(), |error| &error.message);
            format!("The agent {agent:?} failed: {error}")
        }
    };
    if said.is_empty() { why } else { format!("{why}\nIt had said:\n{said}") }
}
