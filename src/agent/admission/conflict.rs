//! What the other runs of a session mean for a new one.

use crate::agent::admission::Admission;
use crate::agent::error::{ClaimError, LookupError, StartError};
use crate::agent::launch::queued;
use crate::agent::ledger::commits::Turn;
use crate::agent::ledger::head::Head;
use crate::agent::request::NewRun;
use crate::types::run::OnConflict;
use crate::types::session::Session;
use crate::types::{RunId, RunStatus, Tenant};

impl Admission {
    /// What the session's other runs mean for a new one; `None` if the session is to be read again. Drops from
    /// it what is over, should that be in the way.
    pub(super) async fn settle_conflict(
        &self,
        new: &NewRun,
        session: &mut Session,
    ) -> Result<Option<Turn>, StartError> {
        if session.all_runs().any(|run| *run == new.id) {
            // A duplicate was faster.
            return Err(ClaimError::Busy.into());
        }
        if new.on_conflict == OnConflict::Concurrent {
            if session.concurrent_runs.len() >= queued::MOST {
                self.ledger.forget_ended(&new.tenant, session).await?;
            }
            if session.concurrent_runs.len() < queued::MOST {
                return Ok(Some(Turn::Now));
            }
        }
        let live = self.ledger.active_run(&new.tenant, session).await?;
        let has_room = session.queue.len() < queued::MOST;
        let in_the_way = match new.on_conflict {
            OnConflict::Concurrent => session.concurrent_runs.first(),
            OnConflict::Reject | OnConflict::Enqueue | OnConflict::Interrupt => live.as_ref().or(session.queue.first()),
        };
        match (in_the_way, new.on_conflict) {
            (Some(_), OnConflict::Enqueue) if has_room => return Ok(Some(Turn::Queued)),
            (Some(run), OnConflict::Interrupt) if has_room => {
                self.check_agent(new, run).await?;
                return Ok(Some(Turn::Next));
            }
            (Some(run), _) => {
                return Err(StartError::SessionBusy { session: session.id.clone(), run: run.clone() });
            }
            (None, _) => {}
        }
        let Some(waiting) = self.ledger.waiting_holder(&new.tenant, session).await? else { return Ok(Some(Turn::Now)) };
        // It waited for its client, which asks for something else now; unless it was answered meanwhile. A
        // request that is refused changes nothing, so it is checked first.
        check_may_end(new, &waiting)?;
        let generation = self.generation_of(new);
        let spec = self.specify(new, &generation, Some(session), 0).await?.spec;
        self.has_budget(&spec, Some(session), &generation.quotas).await?;
        self.launcher.stop(&new.tenant, &waiting).await?;
        Ok(None)
    }

    /// Refuses to end a run of an agent that the request's key may not use.
    async fn check_agent(&self, new: &NewRun, run: &RunId) -> Result<(), StartError> {
        match self.ledger.find_run(&new.tenant, run).await {
            Ok((_, head)) => check_may_end(new, &head),
            Err(LookupError::Store(error)) => Err(error.into()),
            // It ended and expired meanwhile.
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
