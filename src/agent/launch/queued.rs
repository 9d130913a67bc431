//! Runs that wait in a session until it is their turn.
//!
//! The session's document holds the queue, in order. Whoever ends the session's run makes the first of
//! them the session's in the same commit, and then calls it: names it where all replicas look. The run
//! that ended stays named until then, so a queue whose caller died is found.

use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::agent::Agent;
use crate::agent::context;
use crate::agent::context::toolbox::Toolbox;
use crate::agent::error::unavailable;
use crate::agent::generation::Generation;
use crate::agent::launch::resume::{Idle, Prepared};
use crate::agent::launch::task::Ready;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::head::{self, Head};
use crate::agent::ledger::keys;
use crate::agent::ledger::log;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::ledger::session::active_run;
use crate::agent::ledger::session::{Versioned, keep_session};
use crate::agent::ownership::lease::Lease;
use crate::agent::ownership::registry::Registration;
use crate::store::{Check, Tx, Unavailable, Write};
use crate::types::clock::now_ms;
use crate::types::session::Session;
use crate::types::{Event, Record, RunId, RunSpec, RunStatus, SessionId, Tenant};

/// Most runs that wait in one session, and most that run beside the one that holds it.
pub const MOST: usize = 64;

impl Agent {
    /// Names a queued run where all replicas look for runs to be driven.
    pub(in crate::agent) async fn wake(
        &self,
        tenant: &Tenant,
        session: &SessionId,
        run: &RunId,
    ) -> Result<(), Unavailable> {
        let entry = Registration::new(tenant.clone(), Some(session.clone()));
        self.replica.enqueue(run, &entry).await
    }

    /// Calls the run whose turn it is in a session, should the one that ended have failed to.
    pub(in crate::agent) async fn wake_next(&self, tenant: &Tenant, session: &SessionId) -> Result<(), Unavailable> {
        let Some(Versioned { session, .. }) = self.find_session(tenant, session).await? else { return Ok(()) };
        let partition = keys::session_partition(tenant, &session.id);
        // Whose turn it is decides whoever looks at them.
        for next in session.active_run.iter().chain(session.queue.first()) {
            let head = head::read(&*self.store, &partition, next).await?;
            if head.is_some_and(|head| head.status == RunStatus::Queued) {
                self.wake(tenant, &session.id, next).await?;
            }
        }
        Ok(())
    }

    /// Begins a queued run if it is its turn; `false` if it must wait on.
    pub(in crate::agent) async fn begin_queued(&self, tenant: &Tenant, head: &Head) -> Result<bool, Unavailable> {
        let Some(id) = &head.session else { return Ok(false) };
        let Some(found) = self.find_session(tenant, id).await? else {
            // The session was deleted, and the run with it.
            return self.stop(tenant, head).await;
        };
        let is_first = found.session.queue.first() == Some(&head.id);
        let is_free = active_run(&*self.store, tenant, &found.session).await?.is_none()
            && self.waiting_holder(tenant, &found.session).await?.is_none();
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

    /// Drops the runs beside a session's own that are over: those that waited for their client in vain, and
    /// those of which the store lost a part, did not say so.
    pub(in crate::agent) async fn forget_ended(
        &self,
        tenant: &Tenant,
        session: &mut Session,
    ) -> Result<(), Unavailable> {
        let partition = keys::session_partition(tenant, &session.id);
        let heads = session.beside.iter().map(|run| head::read(&*self.store, &partition, run));
        let heads = try_join_all(heads).await?;
        let live: Vec<_> = heads.into_iter().flatten().filter(|head| !head.status.is_final()).collect();
        session.beside.retain(|run| live.iter().any(|head| head.id == *run));
        Ok(())
    }

    /// The run that holds a session while it waits for its client.
    pub(in crate::agent) async fn waiting_holder(
        &self,
        tenant: &Tenant,
        session: &Session,
    ) -> Result<Option<Head>, Unavailable> {
        let Some(run) = &session.active_run else { return Ok(None) };
        let head = head::read(&*self.store, &keys::session_partition(tenant, &session.id), run).await?;
        Ok(head.filter(|head| head.status == RunStatus::RequiresAction))
    }

    async fn begin_idle(&self, idle: Idle, found: Versioned) -> Result<(), Unavailable> {
        let Idle { mut spec, mut records, lease } = idle;
        let before = records.last().map_or(0, |record| record.seq);
        let generation = self.generation();
        let prepared = match self.prepare_queued(&mut spec, &generation, &mut records, &lease, found).await {
            Ok(prepared) => prepared,
            Err(error) => {
                self.requeue(&spec, lease);
                return Err(error);
            }
        };
        let Prepared { history, budget, account, commands } = prepared;
        // Whoever follows it reads the store, or finds it here.
        drop(self.spawn(Ready { spec, generation, records, lease, history, budget, account, commands }, before));
        Ok(())
    }

    /// Records that a run begins, in a conversation that has grown since it was accepted, and reads what
    /// that takes.
    async fn prepare_queued(
        &self,
        spec: &mut Arc<RunSpec>,
        generation: &Generation,
        records: &mut Vec<Record>,
        lease: &Lease,
        found: Versioned,
    ) -> Result<Prepared, Unavailable> {
        let Versioned { mut session, version } = found;
        let history = self.history(&spec.tenant, &session).await?;
        let mut begun = RunSpec { history_len: session.message_count, ..(**spec).clone() };
        let offer = Toolbox::new(&generation.tools, &begun).offer();
        begun.context_tokens = context::estimate(&begun, history.weight(), offer.weight());
        *spec = Arc::new(begun);
        let account = self.open_account(spec, records, &generation.quotas).await?;
        let mut seq = records.last().map_or(0, |record| record.seq);
        let (started, entry) = log::encode(&mut seq, now_ms(), Event::RunStarted);
        session.queue.retain(|queued| *queued != spec.id);
        session.active_run = Some(spec.id.clone());
        let ttl = self.session_ttl_under(&session, spec);
        let append = Write::Append { log: keys::events(&spec.id), after: records.len() as u64, entries: vec![entry] };
        let tx = Tx::new(keys::partition_of(spec))
            .check(Check::Fence { lease: keys::lease(&spec.id), fence: lease.fence() })
            .write(append)
            .write(Write::Put { key: keys::head(&spec.id), value: encode(&Head::new(spec)), ttl: None })
            .write(Write::Put { key: keys::spec(&spec.id), value: encode(&**spec), ttl: None })
            .put_at(keys::session(), version, encode(&session), Some(ttl));
        let tx = Tx { notify: Some(keys::topic(&tx.partition, &spec.id)), ..keep_session(tx, ttl) };
        self.store.commit(self.replica.register(&spec.id, &Registration::of(spec))).await.map_err(unavailable)?;
        self.store.commit(tx).await.map_err(unavailable)?;
        records.push((*started).clone());
        let commands = self.commands(spec, records).await?;
        Ok(Prepared { history, budget: Some(SessionBudget::of(&session)), account, commands })
    }
}
