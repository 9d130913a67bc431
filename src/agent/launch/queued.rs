//! Runs that wait in a session until it is their turn.
//!
//! The session's document holds the queue, in order. The replica that ends the session's run makes the
//! first queued run the session's in the same commit. Then it wakes this run: it registers the run where all
//! replicas look. The run that ended stays registered until then, so a queue is found whose replica died in between.

use std::sync::Arc;

use crate::agent::context;
use crate::agent::error::unavailable;
use crate::agent::generation::Generation;
use crate::agent::launch::Launcher;
use crate::agent::launch::ready::{Idle, Prepared, Ready};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::session::{SessionBudget, Versioned};
use crate::agent::ledger::{commits, keys};
use crate::agent::ownership::registry::Registration;
use crate::store::Unavailable;
use crate::types::{Event, RunSpec, RunStatus, SessionId, Tenant};

/// Most runs that wait in one session, and most that run beside the one that holds it.
pub const MOST: usize = 64;

impl Launcher {
    /// Wakes the run whose turn it is in a session, should the one that ended have failed to.
    pub(in crate::agent) async fn wake_next(&self, tenant: &Tenant, session: &SessionId) -> Result<(), Unavailable> {
        let Some(Versioned { session, .. }) = self.ledger.find_session(tenant, session).await? else { return Ok(()) };
        let partition = keys::session_partition(tenant, &session.id);
        // The replica that picks a run up decides whether it is its turn.
        for next in session.active_run.iter().chain(session.queue.first()) {
            let head = self.ledger.head(&partition, next).await?;
            if head.is_some_and(|head| head.status == RunStatus::Queued) {
                self.ownership.wake(tenant, &session.id, next).await?;
            }
        }
        Ok(())
    }

    /// Begins a queued run if it is its turn; `false` if it must wait on.
    pub(in crate::agent) async fn begin_queued(
        self: &Arc<Self>,
        tenant: &Tenant,
        head: &Head,
    ) -> Result<bool, Unavailable> {
        let Some(id) = &head.session else { return Ok(false) };
        let Some(found) = self.ledger.find_session(tenant, id).await? else {
            // The session was deleted, and the run with it.
            return self.stop(tenant, head).await;
        };
        let is_first = found.session.queue.first() == Some(&head.id);
        let is_free = self.ledger.active_run(tenant, &found.session).await?.is_none()
            && self.ledger.waiting_holder(tenant, &found.session).await?.is_none();
        if found.session.active_run.as_ref() != Some(&head.id) && !(is_first && is_free) {
            return Ok(false);
        }
        let Some(idle) = self.acquire_idle(tenant, head).await? else { return Ok(false) };
        if idle.status() != RunStatus::Queued {
            idle.release().await?;
            return Ok(false);
        }
        self.begin_idle(idle, found).await?;
        Ok(true)
    }

    async fn begin_idle(self: &Arc<Self>, mut idle: Idle, found: Versioned) -> Result<(), Unavailable> {
        let (before, generation) = (idle.seq(), self.generations.current());
        match self.prepare_queued(&mut idle, found, &generation).await {
            // Its readers read the store, or find the run here.
            Ok(prepared) => drop(self.spawn(Ready { idle, generation, prepared }, before)),
            Err(error) => {
                self.requeue(idle.spec().clone(), idle.lease);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Records that a run begins, in a conversation that has grown since it was accepted, and reads what
    /// that takes.
    async fn prepare_queued(
        &self,
        idle: &mut Idle,
        found: Versioned,
        generation: &Generation,
    ) -> Result<Prepared, Unavailable> {
        let history = self.sessions.history(&idle.spec().tenant, &found.session).await?;
        let mut begun = RunSpec { history_len: found.session.message_count, ..(**idle.spec()).clone() };
        let tools = self.tools(&begun, generation).await?;
        let weight = tools.as_ref().map_or(0, |tools| tools.offer().weight());
        begun.context_tokens = context::estimate(&begun, history.weight(), weight);
        idle.respecify(begun);
        let account = self.open_account(idle, generation).await?;
        let (started, entry) = idle.next_record(Event::RunStarted);
        let (spec, budget) = (idle.spec(), SessionBudget::of(&found.session));
        let tx = commits::begin(spec, idle.lease.fence(), entry, found, self.ledger.retention());
        let live = self.ownership.replica.register(&spec.id, &Registration::of(spec));
        self.ledger.commit(live).await.map_err(unavailable)?;
        self.ledger.commit(tx).await.map_err(unavailable)?;
        idle.push(started);
        let commands = self.commands(idle).await?;
        Ok(Prepared { history, budget: Some(budget), account, commands, tools })
    }
}
