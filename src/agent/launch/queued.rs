//! Runs that wait in a session until it is their turn.
//!
//! The session's document holds the queue, in order. The replica that ends the session's run makes the
//! first queued run the session's in the same commit. Then it wakes this run: it registers the run where all
//! replicas look. The run that ended stays registered until then, so a queue is found whose replica died in between.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::context::fit::begin;
use crate::agent::error::unavailable;
use crate::agent::follow::ANNOUNCE_EVERY;
use crate::agent::generation::Generation;
use crate::agent::launch::Launcher;
use crate::agent::launch::ready::{Idle, Prepared, Ready};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::session::{SessionBudget, Versioned};
use crate::agent::ledger::{commits, keys};
use crate::agent::ownership::registry::Registration;
use crate::store::Unavailable;
use crate::types::clock::now_ms;
use crate::types::run::OnDisconnect;
use crate::types::{Event, RunSpec, RunStatus, SessionId, StopReason, Tenant};

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

    /// Begins a queued run if it is its turn and no other replica does; `false` if it must wait on.
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
        // Another replica begins it, and registers it as its own.
        let Some(idle) = self.acquire_idle(tenant, head).await? else { return Ok(true) };
        if idle.status() != RunStatus::Queued {
            idle.release().await?;
            return Ok(false);
        }
        if self.seems_abandoned(idle.spec()).await? {
            // Found here if this process dies, and until then nowhere else.
            if let Err(error) = self.ledger.commit(self.ownership.replica.register_queued(idle.spec())).await {
                idle.release().await?;
                return Err(unavailable(error));
            }
            let launcher = self.clone();
            self.lifecycle.spawn(async move { launcher.begin_unless_abandoned(idle).await });
        } else {
            self.begin_idle(idle, found).await?;
        }
        Ok(true)
    }

    /// Whether a run that is not to go on without readers seems to have none. No reader of a queued run is counted by
    /// any driver, but each marks in the store that it is there.
    async fn seems_abandoned(&self, spec: &RunSpec) -> Result<bool, Unavailable> {
        let waited = now_ms().saturating_sub(spec.created_ms);
        match spec.options.on_disconnect {
            OnDisconnect::Cancel if waited >= spec.options.reconnect_grace_ms => {
                Ok(self.ledger.store().get(&keys::partition_of(spec), &keys::reader(&spec.id)).await?.is_none())
            }
            OnDisconnect::Cancel | OnDisconnect::Continue => Ok(false),
        }
    }

    /// Begins a queued run, or cancels it if it still seems to have no reader after each reader has had the time to mark
    /// that it is there: marks expire while the store does not answer.
    async fn begin_unless_abandoned(self: Arc<Self>, idle: Idle) {
        let ending = self.lifecycle.ending();
        tokio::select! {
            () = tokio::time::sleep(ANNOUNCE_EVERY + Duration::from_secs(1)) => {}
            () = ending.leaving() => {}
        }
        let (spec, entry) = (idle.spec().clone(), Registration::of(idle.spec()));
        if let Err(error) = self.begin_or_cancel(idle).await {
            tracing::warn!(run = %spec.id, %error, "could not begin the queued run; trying again");
            self.ownership.orphan(&spec.id, &entry).await;
        }
    }

    async fn begin_or_cancel(self: &Arc<Self>, idle: Idle) -> Result<(), Unavailable> {
        let spec = idle.spec().clone();
        if self.seems_abandoned(&spec).await? {
            return self.stop_idle(idle, StopReason::Abandoned).await.map(drop);
        }
        let Some(id) = &spec.session else { return idle.release().await };
        match self.ledger.find_session(&spec.tenant, id).await? {
            Some(found) => self.begin_idle(idle, found).await,
            None => self.stop_idle(idle, StopReason::Cancelled).await.map(drop),
        }
    }

    async fn begin_idle(self: &Arc<Self>, mut idle: Idle, found: Versioned) -> Result<(), Unavailable> {
        let (before, generation) = (idle.seq(), self.generations.current());
        match self.prepare_queued(&mut idle, found, &generation).await {
            // Its readers read the store, or find the run here.
            Ok(prepared) => drop(self.spawn(Ready { idle, generation, prepared }, before, false)),
            Err(error) => {
                self.requeue(idle.spec().clone(), idle.lease, None);
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
        let (history_len, splices) = (found.session.message_count, found.session.spliced().times);
        let mut begun = RunSpec { history_len, splices, ..(**idle.spec()).clone() };
        if begun.history_len > 0 && begun.rules.planning.is_some() {
            // The run before it has begun the conversation.
            Arc::make_mut(&mut begun.rules).planning = None;
        }
        let tools = self.tools(&begun, generation).await?;
        let weight = tools.as_ref().map_or(0, |tools| tools.offer(&[]).weight());
        begin::begin(&mut begun, found.session.context.as_deref(), &history, weight);
        idle.respecify(begun);
        let account = self.open_account(idle, generation).await?;
        let (started, entry) = idle.next_record(Event::RunStarted);
        let (spec, head, budget) = (idle.spec(), idle.new_head(), SessionBudget::of(&found.session));
        let tx = commits::begin((spec, &head), idle.lease.fence(), entry, found, self.ledger.retention());
        let live = self.ownership.replica.register_queued(spec);
        let nudges = self.listen(spec);
        self.ledger.commit(live).await.map_err(unavailable)?;
        self.ledger.commit(tx).await.map_err(unavailable)?;
        idle.push(started);
        let commands = self.commands(idle).await?;
        // The run before it in its session has ended, which took about as much.
        let memory = self.memory.begin();
        Ok(Prepared {
            history,
            budget: Some(budget),
            account,
            commands,
            nudges,
            memory,
            first_step_began: false,
            tools,
        })
    }
}
