//! Decides by a session's other runs when a new run begins, and ends those that it replaces.

use crate::agent::admission::Admission;
use crate::agent::error::{ClaimError, LookupError, StartError};
use crate::agent::launch::queued;
use crate::agent::ledger::commits::Turn;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::request::NewRun;
use crate::types::run::OnConflict;
use crate::types::session::Session;
use crate::types::{RunId, RunStatus, StopReason, Tenant};

impl Admission {
    /// Decides by the session's other runs when a new one begins; `None` if the session must be read again, because a
    /// run that waited for its client was ended.
    pub(super) async fn settle_conflict(
        &self,
        new: &NewRun,
        session: &mut Session,
    ) -> Result<Option<Turn>, StartError> {
        if session.all_runs().any(|run| *run == new.id) {
            // A duplicate was faster.
            return Err(ClaimError::Busy.into());
        }
        if new.compacts() {
            self.settle_compaction(new, session).await?;
        }
        if new.on_conflict == OnConflict::Concurrent && self.has_concurrent_room(new, session).await? {
            return Ok(Some(Turn::Now));
        }
        let live = self.ledger.active_run(&new.tenant, session).await?;
        let in_the_way = match new.on_conflict {
            OnConflict::Concurrent => session.concurrent_runs.first(),
            OnConflict::Reject | OnConflict::Enqueue | OnConflict::Interrupt => live.as_ref().or(session.queue.first()),
        };
        if let Some(run) = in_the_way {
            return self.turn_after(new, session, run).await.map(Some);
        }
        match self.ledger.waiting_holder(&new.tenant, session).await? {
            Some(waiting) => self.end_waiting(new, session, &waiting).await.map(|()| None),
            None => Ok(Some(Turn::Now)),
        }
    }

    /// Refuses to shorten a session's conversation while another run does. One that is over did not say so where the store lost a
    /// part of it.
    async fn settle_compaction(&self, new: &NewRun, session: &mut Session) -> Result<(), StartError> {
        let Some(run) = session.compacting.clone() else { return Ok(()) };
        let head = self.ledger.head(&keys::session_partition(&new.tenant, &session.id), &run).await?;
        if head.is_some_and(|head| !head.status.is_final()) {
            return Err(StartError::Compacting { session: session.id.clone(), run });
        }
        session.detach_run(&run);
        Ok(())
    }

    /// Whether the session may have one more concurrent run. If it has too many, those that ended are dropped first.
    async fn has_concurrent_room(&self, new: &NewRun, session: &mut Session) -> Result<bool, StartError> {
        if session.concurrent_runs.len() >= queued::MOST {
            self.ledger.forget_ended(&new.tenant, session).await?;
        }
        Ok(session.concurrent_runs.len() < queued::MOST)
    }

    /// When a new run begins while `run` is in its way, unless it is refused.
    async fn turn_after(&self, new: &NewRun, session: &Session, run: &RunId) -> Result<Turn, StartError> {
        let has_room = session.queue.len() < queued::MOST;
        match new.on_conflict {
            OnConflict::Enqueue if has_room => Ok(Turn::Queued),
            OnConflict::Interrupt if has_room => self.check_agent(new, run).await.map(|()| Turn::Next),
            OnConflict::Enqueue | OnConflict::Interrupt | OnConflict::Reject | OnConflict::Concurrent => {
                Err(StartError::SessionBusy { session: session.id.clone(), run: run.clone() })
            }
        }
    }

    /// Ends a run that waits for its client, unless it was answered meanwhile: its client asks for something else now.
    /// A new run that is refused changes nothing, so it is checked first.
    async fn end_waiting(&self, new: &NewRun, session: &Session, waiting: &Head) -> Result<(), StartError> {
        check_may_end(new, waiting)?;
        if new.unattended {
            return Err(StartError::SessionBusy { session: session.id.clone(), run: waiting.id.clone() });
        }
        if waiting.reason == Some(StopReason::Approval) && new.on_conflict != OnConflict::Interrupt {
            return Err(StartError::SessionWaits { session: session.id.clone(), run: waiting.id.clone() });
        }
        let generation = self.generation_of(new);
        let history = self.sessions.history(&new.tenant, session).await?;
        let spec = self.specify(new, &generation, Some(session), &history).await?.spec;
        self.has_budget(&spec, Some(session), &generation.quotas).await?;
        self.launcher.stop(&new.tenant, waiting).await?;
        Ok(())
    }

    /// Refuses to end a run of an agent that the request's key may not use.
    async fn check_agent(&self, new: &NewRun, run: &RunId) -> Result<(), StartError> {
        match self.ledger.find_run(&new.tenant, run).await {
            Ok((_, head)) => check_may_end(new, &head),
            Err(LookupError::Store(error)) => Err(error.into()),
            // The run ended and expired meanwhile.
            Err(_) => Ok(()),
        }
    }

    /// Ends the run that holds a session, for the one that is next.
    pub(super) async fn interrupt(&self, tenant: &Tenant, holder: &RunId) -> Result<(), LookupError> {
        let (_, head) = self.ledger.find_run(tenant, holder).await?;
        if head.status == RunStatus::RequiresAction && self.launcher.stop(tenant, &head).await? {
            return Ok(());
        }
        self.control.tell_to_stop(tenant, holder).await
    }
}

/// Refuses to end a run of an agent that the request's key may not use.
fn check_may_end(new: &NewRun, head: &Head) -> Result<(), StartError> {
    if new.requester().may_use(&head.agent) { Ok(()) } else { Err(StartError::AgentForbidden(head.agent.clone())) }
}

/// When a run begins that has no session yet. One that only shortens a session's conversation makes none.
pub(super) fn turn_in_new(new: &NewRun) -> Result<Turn, StartError> {
    match &new.session {
        Some(id) if new.compacts() => Err(StartError::SessionNotFound(id.clone())),
        Some(_) | None => Ok(Turn::Now),
    }
}
