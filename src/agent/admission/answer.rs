//! Continues a run that waits for its client.

use crate::agent::admission::backoff::Backoff;
use crate::agent::admission::claims::HeldClaim;
use crate::agent::admission::verdict::Target;
use crate::agent::admission::{Admission, Started};
use crate::agent::error::{LookupError, StartError};
use crate::agent::launch::ready::Idle;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::session::Versioned;
use crate::agent::request::NewRun;
use crate::types::{CallId, Role, RunStatus, Tenant};

impl Admission {
    /// The waiting run that the request's tool messages answer.
    pub(super) async fn waiting_run(
        &self,
        new: &NewRun,
        session: Option<&Versioned>,
    ) -> Result<Option<Head>, StartError> {
        let named = new.run.as_ref();
        let sessions = session.and_then(|session| session.session.active_run.as_ref());
        let minted = new.answered.first().and_then(CallId::run);
        let Some(run) = named.or(sessions.filter(|_| !new.answered.is_empty())).or(minted.as_ref()) else {
            return Ok(None);
        };
        match self.ledger.find_run(&new.tenant, run).await {
            Ok((_, head)) if head.status == RunStatus::RequiresAction => Ok(Some(head)),
            Ok(_) if named.is_some() => Err(StartError::NotWaiting(run.clone())),
            Err(LookupError::Store(error)) => Err(error.into()),
            Err(_) if named.is_some() => Err(StartError::RunNotFound(run.to_string())),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// The lease and the log of a waiting run. One that still waits while another process has its lease is
    /// waited for: that one is about to go on with it, or died and its lease runs out.
    async fn acquire_waiting(&self, tenant: &Tenant, head: &Head) -> Result<Idle, StartError> {
        let mut wait = Backoff::new(self.lifecycle.ending());
        loop {
            if let Some(idle) = self.launcher.acquire_idle(tenant, head).await? {
                if idle.status() == RunStatus::RequiresAction {
                    return Ok(idle);
                }
                // Its log is the truth, should the head be older.
                idle.release().await?;
                return Err(StartError::NotWaiting(head.id.clone()));
            }
            match self.ledger.find_run(tenant, &head.id).await {
                Ok((_, head)) if head.status == RunStatus::RequiresAction => wait.pause().await?,
                Err(LookupError::Store(error)) => return Err(error.into()),
                Ok(_) | Err(_) => return Err(StartError::NotWaiting(head.id.clone())),
            }
        }
    }

    /// Goes on with a waiting run, whose client answered.
    pub(super) async fn continue_run(
        &self,
        new: &NewRun,
        head: &Head,
        claim: Option<&mut HeldClaim>,
    ) -> Result<Started, StartError> {
        let generation = self.generation_of(new);
        let idle = self.acquire_waiting(&new.tenant, head).await?;
        if new.allowed_agents.as_ref().is_some_and(|allowed| !allowed.contains(&idle.spec().agent)) {
            let agent = idle.spec().agent.clone();
            idle.release().await?;
            return Err(StartError::AgentForbidden(agent));
        }
        let required = idle.run().required_calls();
        let unanswered = required.iter().find(|call| !new.answered.contains(&call.id));
        let unasked = new.answered.iter().position(|id| !required.iter().any(|call| call.id == *id));
        let problem = match (unanswered, unasked) {
            (Some(call), _) => Some((new.answers_from, format!("the call {} is not answered", call.id))),
            (None, Some(index)) => {
                let what = format!("the run does not wait for the call {}", new.answered[index]);
                Some((new.answers_from + index, what))
            }
            (None, None) => None,
        };
        if let Some((index, message)) = problem {
            idle.release().await?;
            return Err(StartError::Invalid { param: format!("messages[{index}]"), message });
        }
        // Results first, in call order, so that nothing stands between a call and its result; what
        // else the client says follows. A session keeps no instructions.
        let said = &new.messages[new.answers_from..];
        let results = said.iter().filter(|message| message.role == Role::Tool);
        let mut results: Vec<_> = new.answered.iter().zip(results).collect();
        results.sort_by_key(|(id, _)| required.iter().position(|call| call.id == **id));
        let in_session = idle.spec().session.is_some();
        let rest = said.iter().filter(|message| match message.role {
            Role::Tool => false,
            Role::System | Role::Developer => !in_session,
            Role::User | Role::Assistant => true,
        });
        let answers = results.into_iter().map(|(_, message)| message).chain(rest).cloned().collect();
        if let Err(error) = self.limits.take_slot(idle.spec(), &generation.quotas).await {
            idle.release().await?;
            return Err(error);
        }
        if let Some(claim) = claim {
            let after = idle.seq();
            let target = Target::Run { id: head.id.clone(), session: head.session.clone(), after };
            if let Err(error) = self.set_target(claim, target).await {
                idle.release().await?;
                return Err(error);
            }
        }
        let follower = self.launcher.resume(idle, answers, generation).await?;
        let head = Head { status: RunStatus::InProgress, ..head.clone() };
        Ok(Started { head, follower: follower.to_first_end(), replayed: false })
    }
}
