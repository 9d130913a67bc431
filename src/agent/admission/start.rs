//! Starts a run: decides what the live runs of its session mean for it, prepares it, and stores it before its driver
//! begins.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::agent::admission::claims::HeldClaim;
use crate::agent::admission::specify::Specified;
use crate::agent::admission::{Admission, Started};
use crate::agent::context::offer::Offer;
use crate::agent::context::toolbox::Toolbox;
use crate::agent::error::{ClaimError, Field, StartError, unavailable};
use crate::agent::generation::Generation;
use crate::agent::launch::ready::{Idle, Prepared, Ready};
use crate::agent::ledger::commits::{self, Turn};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::session::{SessionBudget, Versioned};
use crate::agent::ledger::{keys, log};
use crate::agent::limits::quota::Account;
use crate::agent::ownership::lease::Lease;
use crate::agent::ownership::registry::Registration;
use crate::agent::request::NewRun;
use crate::failpoint;
use crate::store::CommitError;
use crate::store::retry::RetryConflicts;
use crate::types::clock::now_ms;
use crate::types::pauses::Pauses;
use crate::types::{Conversation, Event, Record, RunSpec};

/// How often a request looks for room in a budget of which others have reserved too much.
const BUDGET_PAUSES: Pauses = Pauses::new(Duration::from_millis(50), Duration::from_secs(1));

/// A run that may begin, and what it holds already. The run is not stored yet.
struct Candidate {
    spec: Arc<RunSpec>,
    offer: Offer,
    tools: Toolbox,
    generation: Arc<Generation>,
    history: Conversation,
    budget: Option<SessionBudget>,
    account: Option<Account>,
    lease: Lease,
}

/// What storing a run came to.
enum Creation {
    Created,
    /// The session changed meanwhile.
    Changed,
    /// By the count of its bytes, the tenant may not store so many more.
    NoRoom(u64),
}

impl Admission {
    /// Starts a run, or continues the waiting run whose calls the request answers. The waiting run is stored in the
    /// claim before it is resumed. While a budget lacks only what other runs have reserved, the start is repeated until
    /// the request's time is up.
    pub(super) async fn start_under(
        &self,
        new: &NewRun,
        mut claim: Option<&mut HeldClaim>,
    ) -> Result<Started, StartError> {
        let (since, mut pauses) = (Instant::now(), BUDGET_PAUSES);
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            if self.lifecycle.is_refusing() {
                return Err(StartError::Draining);
            }
            let session = match &new.session {
                Some(id) => self.ledger.find_session(&new.tenant, id).await?,
                None => None,
            };
            if let Some(waiting) = self.waiting_run(new, session.as_ref()).await? {
                return self.continue_run(new, &waiting, claim.as_deref_mut()).await;
            }
            match self.try_start(new, session).await {
                Ok(Some(started)) => return Ok(started),
                Ok(None) => {}
                // Other runs have reserved what the budget lacks, and most of that is released.
                Err(StartError::BudgetExceeded { short, timeout }) if short.may_pass() && since.elapsed() < timeout => {
                    tokio::time::sleep(pauses.draw().min(timeout.saturating_sub(since.elapsed()))).await;
                    retry = RetryConflicts::new();
                }
                Err(error) => return Err(error),
            }
        }
        Err(new.session.clone().map_or(ClaimError::Busy.into(), StartError::VersionConflict))
    }

    /// Decides what the live runs of its session mean for a new run, prepares the run, stores it and launches it;
    /// `None` if it could not be stored yet.
    async fn try_start(&self, new: &NewRun, mut session: Option<Versioned>) -> Result<Option<Started>, StartError> {
        refuse_unasked_results(new)?;
        let turn = match &mut session {
            Some(Versioned { session, .. }) => self.settle_conflict(new, session).await?,
            None => Some(Turn::Now),
        };
        let Some(turn) = turn else { return Ok(None) };
        let holder = session.as_ref().and_then(|found| found.session.active_run.clone());
        let candidate = self.prepare(new, session.as_ref()).await?;
        let Some((candidate, first)) = self.store(candidate, session, turn).await? else { return Ok(None) };
        if let Some(holder) = holder.filter(|_| turn == Turn::Next)
            && let Err(error) = self.interrupt(&new.tenant, &holder).await
        {
            tracing::warn!(run = %holder, %error, "could not interrupt the live run; the new run waits for its end");
        }
        self.launch(candidate, turn, first).await.map(Some)
    }

    /// Prepares a new run before it is stored: its specification, its slot and its lease.
    async fn prepare(&self, new: &NewRun, session: Option<&Versioned>) -> Result<Candidate, StartError> {
        self.ownership.join().await?;
        let found = session.map(|found| &found.session);
        let history = match found {
            Some(session) => self.sessions.history(&new.tenant, session).await?,
            None => Conversation::default(),
        };
        let generation = self.generation_of(new);
        let Specified { spec, offer, tools } = self.specify(new, &generation, found, history.weight()).await?;
        self.has_budget(&spec, found, &generation.quotas).await?;
        let account = self.limits.take_slot(&spec, &generation.quotas).await?;
        let lease = self.ownership.acquire(&spec).await?.ok_or(ClaimError::Busy)?;
        let budget = new.session.as_ref().map(|_| found.map(SessionBudget::of).unwrap_or_default());
        Ok(Candidate { spec, offer, tools, generation, history, budget, account, lease })
    }

    /// Stores the run, and returns it with its first record; `None` if the session changed meanwhile, or if the
    /// tenant's bytes must be counted anew first.
    async fn store(
        &self,
        candidate: Candidate,
        session: Option<Versioned>,
        turn: Turn,
    ) -> Result<Option<(Candidate, Arc<Record>)>, StartError> {
        let first = if turn.must_wait() { Event::RunQueued } else { Event::RunStarted };
        let (first, entry) = log::encode(&mut 0, now_ms(), first);
        let lacking = match self.create(&candidate, session, turn, entry).await {
            Ok(Creation::Created) => return Ok(Some((candidate, first))),
            Ok(Creation::Changed) => None,
            Ok(Creation::NoRoom(bytes)) => Some(bytes),
            Err(error) => {
                // The store did not say whether the run exists: the sweep of slots decides about its slot.
                self.launcher.requeue(candidate.spec, candidate.lease);
                return Err(error);
            }
        };
        let spec = candidate.spec.clone();
        self.withdraw(candidate).await?;
        if let Some(bytes) = lacking {
            self.ledger.recount(&spec.tenant, bytes).await?;
        }
        Ok(None)
    }

    /// Commits the documents that are created with the run.
    async fn create(
        &self,
        candidate: &Candidate,
        session: Option<Versioned>,
        turn: Turn,
        entry: Bytes,
    ) -> Result<Creation, StartError> {
        failpoint::hit("run.before_create");
        let Candidate { spec, offer, lease, .. } = candidate;
        let retention = self.ledger.retention();
        let commit = commits::create(spec, lease.fence(), entry, turn, session, retention);
        let live = self.ownership.replica.register_new(&spec.id, &Registration::of(spec));
        let offered = self.launcher.offers.keep(spec, offer.written());
        let (index, live, offered) = tokio::join!(self.ledger.commit(commit.index), self.ledger.commit(live), offered);
        let is_counted = index.is_ok();
        match index.and(offered) {
            Err(CommitError::CeilingReached { .. }) => {
                let counted = if is_counted { commit.counted } else { 0 };
                self.ledger.return_storage(&spec.tenant, counted).await;
                return Ok(Creation::NoRoom(commit.counted + offer.written().len() as u64));
            }
            result => result.and(live).map_err(unavailable)?,
        }
        failpoint::hit("run.indexed");
        match self.ledger.commit(commit.run).await {
            Ok(()) => {
                failpoint::hit("run.created");
                Ok(Creation::Created)
            }
            Err(CommitError::VersionConflict { key, .. }) if key == keys::session() => {
                self.ledger.return_storage(&spec.tenant, commit.counted).await;
                Ok(Creation::Changed)
            }
            // A duplicate has created the run.
            Err(CommitError::VersionConflict { .. }) => Err(ClaimError::Busy.into()),
            Err(error) => Err(unavailable(error).into()),
        }
    }

    /// Releases what a run held that does not begin.
    async fn withdraw(&self, candidate: Candidate) -> Result<(), StartError> {
        if let Some(mut account) = candidate.account {
            account.free_slot().await;
        }
        candidate.lease.release().await?;
        Ok(self.ownership.replica.unregister(&candidate.spec.id).await?)
    }

    /// Lets a stored run begin here, or wait for its turn.
    async fn launch(&self, candidate: Candidate, turn: Turn, first: Arc<Record>) -> Result<Started, StartError> {
        let Candidate { spec, tools, generation, history, budget, account, lease, .. } = candidate;
        let head = Head { status: turn.status(), ..Head::new(&spec) };
        let follower = if turn.must_wait() {
            lease.release().await?;
            self.followers.follow(keys::partition_of(&spec), spec.id.clone(), None, 0)
        } else {
            let idle = Idle::new(spec, vec![first], lease);
            let prepared = Prepared { history, budget, account, commands: 0, tools: Some(tools) };
            self.launcher.spawn(Ready { idle, generation, prepared }, 0)
        };
        Ok(Started { head, follower: follower.to_first_end(), joined: false, replayed: false })
    }
}

/// Refuses results of tool calls that no run waits for.
fn refuse_unasked_results(new: &NewRun) -> Result<(), StartError> {
    if new.answers_from == 0 && !new.answered.is_empty() {
        let message = "no run waits for the results of these tool calls".to_owned();
        return Err(StartError::Invalid { field: Field::Message(0), message });
    }
    Ok(())
}
