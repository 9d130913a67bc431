//! Starts runs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::agent::Agent;
use crate::agent::admission::once::Held;
use crate::agent::error::{ClaimError, LookupError, StartError, unavailable};
use crate::agent::follow::Follower;
use crate::agent::launch::queued;
use crate::agent::launch::task::Ready;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::log;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::ledger::session::active_run;
use crate::agent::ledger::session::{Versioned, forget_session, keep_session};
use crate::agent::ownership::registry::Registration;
use crate::agent::request::NewRun;
use crate::failpoint;
use crate::store::{Check, CommitError, Fence, Tx, Write};
use crate::types::clock::now_ms;
use crate::types::run::OnConflict;
use crate::types::session::Session;
use crate::types::{Conversation, Event, RunId, RunSpec, RunStatus, Tenant};

/// How often a session that changed meanwhile is read again.
const ATTEMPTS: usize = 8;
/// How long an unfinished run's index entry is kept, beyond its timeout and an ended run's time.
const UNFINISHED: Duration = Duration::from_secs(24 * 3600);

/// When a new run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// At once.
    Now,
    /// Once those before it in its session have ended.
    Queued,
    /// Once the one that holds its session has ended, which it is told to.
    Next,
}

impl Turn {
    fn must_wait(self) -> bool {
        self != Self::Now
    }

    fn first_event(self) -> Event {
        match self {
            Self::Now => Event::RunStarted,
            Self::Queued | Self::Next => Event::RunQueued,
        }
    }
}

/// A run that goes on now.
#[derive(Debug)]
pub struct Started {
    /// Its head.
    pub head: Head,
    /// Its events from where this request set in.
    pub follower: Follower,
    /// Whether an earlier request of the same name was answered by them already.
    pub replayed: bool,
}

impl Agent {
    /// Starts a run, or continues the waiting one whose calls the request answers.
    pub async fn start(&self, new: NewRun) -> Result<Started, StartError> {
        let agent = self.clone();
        self.run_detached(async move { agent.start_under(&new, None).await }).await
    }

    /// The same; a claim learns of the waiting run before that goes on.
    pub(in crate::agent) async fn start_under(
        &self,
        new: &NewRun,
        mut claim: Option<&mut Held>,
    ) -> Result<Started, StartError> {
        if self.refusing.is_cancelled() {
            return Err(StartError::Draining);
        }
        for _ in 0..ATTEMPTS {
            let session = match &new.session {
                Some(id) => self.find_session(&new.tenant, id).await?,
                None => None,
            };
            if let Some(waiting) = self.waiting_run(new, session.as_ref()).await? {
                return self.continue_run(new, &waiting, claim.as_deref_mut()).await;
            }
            if let Some(started) = self.try_start(new, session).await? {
                return Ok(started);
            }
        }
        Err(StartError::Store(crate::store::Unavailable("the session is being changed by others".to_owned())))
    }

    /// Starts a run; `None` if its session changed meanwhile.
    async fn try_start(&self, new: &NewRun, mut session: Option<Versioned>) -> Result<Option<Started>, StartError> {
        if new.answers_from == 0 && !new.answered.is_empty() {
            let message = "no run waits for the results of these tool calls".to_owned();
            return Err(StartError::Invalid { param: "messages[0]".to_owned(), message });
        }
        let turn = match &mut session {
            Some(Versioned { session, .. }) => match self.settle_conflict(new, session).await? {
                Some(turn) => turn,
                None => return Ok(None),
            },
            None => Turn::Now,
        };
        self.replica.join(&self.leases).await?;
        let history = match &session {
            Some(Versioned { session, .. }) => self.history(&new.tenant, session).await?,
            None => Conversation::default(),
        };
        let found = session.as_ref().map(|found| &found.session);
        let generation = self.generation_of(new);
        let spec = Arc::new(self.specify(new, &generation, found, history.weight()).await?);
        self.has_budget(&spec, found, &generation.quotas).await?;
        let account = self.take_slot(&spec, &generation.quotas).await?;
        let lease = self.leases.acquire(&spec).await?.ok_or(ClaimError::Busy)?;
        let holder = found.and_then(|found| found.active_run.clone());
        let budget = new.session.as_ref().map(|_| found.map(SessionBudget::of).unwrap_or_default());
        let (first, entry) = log::encode(&mut 0, now_ms(), turn.first_event());
        let created = self.create(&spec, lease.fence(), session, turn, entry).await;
        if !matches!(created, Ok(true)) {
            // After a failure nobody knows whether the run exists: its slot is left to the sweep.
            if let Some(mut account) = account.filter(|_| created.is_ok()) {
                account.free_slot().await;
            }
            if created.is_ok() {
                lease.release().await?;
                self.replica.unregister(&spec.id).await?;
            } else {
                self.requeue(&spec, lease);
            }
            return created.map(|_| None);
        }
        if let Some(holder) = holder.filter(|_| turn == Turn::Next)
            && let Err(error) = self.interrupt(&new.tenant, &holder).await
        {
            tracing::warn!(run = %holder, %error, "could not interrupt a run; the next one waits for its end");
        }
        let mut head = Head::new(&spec);
        let follower = if turn.must_wait() {
            head.status = RunStatus::Queued;
            lease.release().await?;
            Follower::new(self, keys::partition_of(&spec), spec.id.clone(), None, 0)
        } else {
            let records = vec![(*first).clone()];
            self.spawn(Ready { spec, generation, records, lease, history, budget, account, commands: Vec::new() }, 0)
        };
        Ok(Some(Started { head, follower: follower.to_first_end(), replayed: false }))
    }

    /// What the session's other runs mean for a new one; `None` if the session is to be read again. Drops from
    /// it what is over, should that be in the way.
    async fn settle_conflict(&self, new: &NewRun, session: &mut Session) -> Result<Option<Turn>, StartError> {
        if session.all_runs().any(|run| *run == new.id) {
            // A twin was faster.
            return Err(ClaimError::Busy.into());
        }
        if new.on_conflict == OnConflict::Concurrent {
            if session.beside.len() >= queued::MOST {
                self.forget_ended(&new.tenant, session).await?;
            }
            if session.beside.len() < queued::MOST {
                return Ok(Some(Turn::Now));
            }
        }
        let live = active_run(&*self.store, &new.tenant, session).await?;
        let has_room = session.queue.len() < queued::MOST;
        let in_the_way = match new.on_conflict {
            OnConflict::Concurrent => session.beside.first(),
            OnConflict::Reject | OnConflict::Enqueue | OnConflict::Interrupt => live.as_ref().or(session.queue.first()),
        };
        match (in_the_way, new.on_conflict) {
            (Some(_), OnConflict::Enqueue) if has_room => return Ok(Some(Turn::Queued)),
            (Some(_), OnConflict::Interrupt) if has_room => return Ok(Some(Turn::Next)),
            (Some(run), _) => {
                return Err(StartError::SessionBusy { session: session.id.clone(), run: run.clone() });
            }
            (None, _) => {}
        }
        let Some(waiting) = self.waiting_holder(&new.tenant, session).await? else { return Ok(Some(Turn::Now)) };
        // It waited for its client, which asks for something else now; unless it was answered meanwhile. A
        // request that is refused changes nothing, so it is checked first.
        let generation = self.generation_of(new);
        let spec = Arc::new(self.specify(new, &generation, Some(session), 0).await?);
        self.has_budget(&spec, Some(session), &generation.quotas).await?;
        self.stop(&new.tenant, &waiting).await?;
        Ok(None)
    }

    /// Ends the run that holds a session, for the one that is next.
    async fn interrupt(&self, tenant: &Tenant, holder: &RunId) -> Result<(), LookupError> {
        let (_, head) = self.find_run(tenant, holder).await?;
        if head.status == RunStatus::RequiresAction && self.stop(tenant, &head).await? {
            return Ok(());
        }
        self.tell_to_stop(tenant, holder).await
    }

    /// Stores the run with the entry of its first event; `false` if its session changed meanwhile.
    async fn create(
        &self,
        spec: &RunSpec,
        fence: Fence,
        session: Option<Versioned>,
        turn: Turn,
        entry: Bytes,
    ) -> Result<bool, StartError> {
        failpoint::hit("run.before_create");
        let mut head = Head::new(spec);
        if turn.must_wait() {
            head.status = RunStatus::Queued;
        }
        let mut index = self.index_entry(spec);
        let mut tx = Tx::new(keys::partition_of(spec))
            .put_at(keys::spec(&spec.id), 0, encode(spec), None)
            // The specification goes when the run ends; the head stays.
            .put_at(keys::head(&spec.id), 0, encode(&head), None)
            // A process that stood still meanwhile does not make what another has made and forgotten.
            .check(Check::Fence { lease: keys::lease(&spec.id), fence })
            .write(Write::Append { log: keys::events(&spec.id), after: 0, entries: vec![entry] });
        if let Some(id) = &spec.session {
            let (version, mut session) = match session {
                Some(found) => (found.version, found.session),
                None => (0, Session::new(id.clone())),
            };
            let ttl = self.session_ttl_under(&session, spec);
            match turn {
                Turn::Queued => session.queue.push(spec.id.clone()),
                Turn::Next => session.queue.insert(0, spec.id.clone()),
                Turn::Now if spec.concurrent => session.beside.push(spec.id.clone()),
                Turn::Now => session.active_run = Some(spec.id.clone()),
            }
            if version == 0 {
                // An expired session of the same name leaves nothing to its successor.
                tx = forget_session(tx);
            }
            tx = keep_session(tx.put_at(keys::session(), version, encode(&session), Some(ttl)), ttl);
            index = index.write(Self::session_index_entry(&session, ttl));
        }
        // The indexes come first: what they name may not exist yet, but nothing exists unnamed.
        let live = self.store.commit(self.replica.register_new(&spec.id, &Registration::of(spec)));
        tokio::try_join!(self.store.commit(index), live).map_err(unavailable)?;
        failpoint::hit("run.indexed");
        match self.store.commit(tx).await {
            Ok(()) => {
                failpoint::hit("run.created");
                Ok(true)
            }
            Err(CommitError::VersionConflict { key, .. }) if key == keys::session() => Ok(false),
            // A twin has made it.
            Err(CommitError::VersionConflict { .. }) => Err(ClaimError::Busy.into()),
            Err(error) => Err(unavailable(error).into()),
        }
    }

    /// The run's entry in its tenant's index.
    pub(in crate::agent) fn index_entry(&self, spec: &RunSpec) -> Tx {
        let ttl = UNFINISHED + self.retention.run + Duration::from_millis(spec.limits.timeout_ms);
        let entry = Write::Put { key: keys::run_entry(&spec.id), value: encode(&spec.session), ttl: Some(ttl) };
        Tx::new(keys::tenant_partition(&spec.tenant)).write(entry)
    }
}
