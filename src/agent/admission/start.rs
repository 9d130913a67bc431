//! Starts a run: decides what the live runs of its session mean for it, prepares it, and stores it before its driver
//! begins.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::admission::candidate::{Beginning, Candidate};
use crate::agent::admission::claims::HeldClaim;
use crate::agent::admission::conflict::turn_in_new;
use crate::agent::admission::specify::Specified;
use crate::agent::admission::transcript::{refuse_unasked_results, without_unasked};
use crate::agent::admission::{Admission, Started, transcript};
use crate::agent::drive::meter::Meter;
use crate::agent::error::{ClaimError, StartError, unavailable};
use crate::agent::follow::Follower;
use crate::agent::launch::ready::{Idle, Prepared, Ready};
use crate::agent::launch::requeue::UncalledStep;
use crate::agent::ledger::commits::{self, Turn};
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::{SessionBudget, Versioned};
use crate::agent::ledger::stored::ClaimEnd;
use crate::agent::limits::left::SharedSession;
use crate::agent::limits::quota::Account;
use crate::agent::machine::Run;
use crate::agent::ownership::registry::Registration;
use crate::agent::request::NewRun;
use crate::agent::run_memory::{self, Purpose};
use crate::failpoint;
use crate::store::retry::RetryConflicts;
use crate::store::{CommitError, Watch};
use crate::types::pauses::Pauses;
use crate::types::session::Session;
use crate::types::{Record, RunSpec};

/// How often a request looks for room in a budget of which others have reserved too much.
const BUDGET_PAUSES: Pauses = Pauses::new(Duration::from_millis(50), Duration::from_secs(1));

/// Why a run was not stored.
enum NotStored {
    /// The session changed meanwhile.
    Changed,
    /// By the count of its bytes, the tenant may not store so many more.
    NoRoom(u64),
    /// It cannot be, or the store did not say whether it was.
    Failed(StartError),
}

impl From<StartError> for NotStored {
    fn from(error: StartError) -> Self {
        Self::Failed(error)
    }
}

impl Started {
    /// A run that was stored just now.
    fn new(spec: &RunSpec, turn: Turn, follower: Follower, budgets: Option<SessionBudget>) -> Self {
        let head = Head { status: turn.status(), ..Head::new(spec) };
        let session = spec.session.clone().map(|id| SharedSession { id, budgets });
        Self { head, follower: follower.to_first_end(), session, joined: false, replayed: false, answer: None }
    }
}

impl Admission {
    /// Starts a run, or continues the waiting run whose calls the request answers. The waiting run is stored in the
    /// claim before it is resumed. While a budget lacks only what other runs have reserved, the start is repeated until
    /// the request's time is up, unless too many requests wait already.
    pub(super) async fn start_under(
        &self,
        new: &NewRun,
        mut claim: Option<&mut HeldClaim>,
    ) -> Result<Started, StartError> {
        let (since, mut pauses, mut retry) = (Instant::now(), BUDGET_PAUSES, RetryConflicts::new());
        let mut is_counted = false;
        while retry.next().await {
            if self.lifecycle.is_refusing() {
                return Err(StartError::Draining);
            }
            let mut session = match &new.session {
                Some(id) => self.ledger.find_session(&new.tenant, id).await?,
                None => None,
            };
            // Boxed, as everything rare here is: the future of every run would have room for it otherwise.
            if let Some(run) = self.run_to_continue(new, session.as_ref()).await?
                && let Some(started) = Box::pin(self.continue_waiting(new, &run, claim.as_deref_mut())).await?
            {
                return Ok(started);
            }
            let (refusal, left) = match self.try_start(new, &mut session, &mut is_counted).await {
                Ok(Some(started)) => return Ok(started),
                Ok(None) => continue,
                // Other runs have reserved what the budget lacks, and most of that is released.
                Err(StartError::BudgetExceeded { short, timeout }) if new.awaits(&short, since, timeout) => {
                    let left = timeout.saturating_sub(since.elapsed());
                    (StartError::BudgetExceeded { short, timeout }, left)
                }
                Err(error) => return Err(error),
            };
            let pause = tokio::time::sleep(pauses.draw().min(left));
            if Box::pin(new.memory.wait(pause)).await.is_none() {
                return Err(refusal);
            }
            retry = RetryConflicts::new();
        }
        Err(new.session.clone().map_or(ClaimError::Busy.into(), StartError::VersionConflict))
    }

    /// Decides what the session's live runs mean for a new run, prepares it, stores it and launches it; `None` if it is not stored yet.
    async fn try_start(
        &self,
        new: &NewRun,
        session: &mut Option<Versioned>,
        is_counted: &mut bool,
    ) -> Result<Option<Started>, StartError> {
        let asked = without_unasked(new);
        let new = asked.as_deref().unwrap_or(new);
        refuse_unasked_results(new)?;
        let turn = match session {
            Some(Versioned { session, .. }) => Box::pin(self.settle_conflict(new, session)).await?,
            None => Some(turn_in_new(new)?),
        };
        let Some(turn) = turn else { return Ok(None) };
        let mut candidate = self.prepare(new, session.as_ref(), is_counted).await?;
        let holder = session.as_ref().and_then(|found| found.session.active_run.clone());
        if turn.must_wait() {
            Arc::make_mut(&mut candidate.spec).queued_at = Some(self.ownership.replica.id().into());
        }
        let mut beginning = candidate.begin(turn, &self.lifecycle);
        let nudges = self.launcher.listen(&candidate.spec);
        let claim = new.claim.as_ref().map(|claim| Box::new(self.ledger.claim_end(claim.ttl)));
        let counted = match self.store(&candidate, (session, claim), turn, &mut beginning).await {
            Ok(counted) => counted,
            Err(cause) => return Box::pin(self.abandon(candidate, beginning, cause)).await.map(|()| None),
        };
        if let Some(holder) = holder.filter(|_| turn == Turn::Next)
            && let Err(error) = Box::pin(self.interrupt(&new.tenant, &holder)).await
        {
            tracing::warn!(run = %holder, %error, "could not interrupt the live run; the new run waits for its end");
        }
        let seeds = (!candidate.spec.rules.files.of_user.is_empty()).then(|| candidate.spec.clone());
        let started = if turn.must_wait() {
            Box::pin(self.queue(candidate, turn, &beginning.records)).await?
        } else {
            self.launch(new, candidate, turn, (beginning, nudges, counted))
        };
        // A request that is refused writes nothing.
        let Some(spec) = seeds else { return Ok(Some(started)) };
        Ok(Some(Box::pin(self.seeded(started, spec)).await))
    }

    /// Prepares a new run before it is stored: its specification, its slot and its lease.
    async fn prepare(
        &self,
        new: &NewRun,
        session: Option<&Versioned>,
        is_counted: &mut bool,
    ) -> Result<Candidate, StartError> {
        self.ownership.join().await?;
        let found = session.map(|found| &found.session);
        self.take_memory(new, found)?;
        let history = self.history_of(new, found).await?;
        let generation = self.generation_of(new);
        let rest = transcript::without_known(new, &history);
        let asked = rest.as_deref().unwrap_or(new);
        let Specified { spec, servers, tools, rates } = self.specify(asked, &generation, found, &history).await?;
        self.has_budget(&spec, found, &generation.quotas).await?;
        // What other runs and the server itself begin is no request.
        let is_request = new.of.is_none() && !spec.compacts;
        if is_request && rates.are_any() && !std::mem::replace(is_counted, true) {
            // Boxed, as few agents and users have such a limit.
            Box::pin(self.limits.count_start(&spec, rates)).await?;
        }
        let account = self.limits.take_slot(&spec, &generation.quotas).await?;
        let lease = self.ownership.acquire(&spec).await.map_err(StartError::from);
        let lease = match lease.and_then(|lease| lease.ok_or_else(|| ClaimError::Busy.into())) {
            Ok(lease) => lease,
            Err(error) => return Err(Box::pin(without_slot(account, error)).await),
        };
        let budget = new.session.as_ref().map(|_| found.map(SessionBudget::of).unwrap_or_default());
        Ok(Candidate { spec, servers, tools, generation, history, budget, account, lease })
    }

    /// Counts the memory that a new run will take, as part of what its request takes until the run has begun.
    pub(super) fn take_memory(&self, new: &NewRun, session: Option<&Session>) -> Result<(), StartError> {
        let own = run_memory::size(new.system.iter().chain(&new.messages));
        let bytes = own.saturating_add(run_memory::of_stored(session.map_or(0, Session::shown_bytes)));
        drop(new.memory.take_run());
        let share = self.launcher.memory.take(bytes, Purpose::of_new(new.of.is_some()));
        new.memory.hold_run(share.ok_or(StartError::OutOfMemory)?);
        Ok(())
    }

    /// Stores the run with its first events and the documents that are created with it. Returns how many bytes are counted
    /// for it as stored.
    async fn store(
        &self,
        candidate: &Candidate,
        (session, claim): (&mut Option<Versioned>, Option<Box<ClaimEnd>>),
        turn: Turn,
        beginning: &mut Beginning,
    ) -> Result<u64, NotStored> {
        failpoint::hit("run.before_create");
        let Candidate { spec, servers, lease, .. } = candidate;
        let retention = self.ledger.retention();
        let entries = std::mem::take(&mut beginning.entries);
        let session = (session.take(), claim.as_deref().copied());
        let mut commit = commits::create(spec, lease.fence(), entries, turn, session, retention);
        if let Some(reserve) = beginning.reserved {
            commit.run = Meter::new(candidate.budget, None).begin(beginning.log.run(), reserve)(commit.run);
        }
        // The commit that creates the run is synced, and with it what was written before.
        let live = self.ownership.replica.register_new(&spec.id, &Registration::of(spec)).written();
        let offered = self.launcher.offers.keep(spec, servers.offer().written());
        let (index, live, offered) =
            tokio::join!(self.ledger.commit(commit.index.written()), self.ledger.commit(live), offered);
        let is_counted = index.is_ok();
        match index.and(offered) {
            Err(CommitError::CeilingReached { .. }) => {
                if is_counted {
                    Box::pin(self.ledger.return_storage_with(&spec.tenant, commit.counted, claim.map(|end| *end)))
                        .await;
                }
                return Err(NotStored::NoRoom(commit.counted + servers.offer().written().len() as u64));
            }
            result => result.and(live).map_err(|error| StartError::from(unavailable(error)))?,
        }
        failpoint::hit("run.indexed");
        match self.ledger.commit(commit.run).await {
            Ok(()) => {
                failpoint::hit("run.created");
                Ok(commit.of_run)
            }
            Err(CommitError::VersionConflict { key, .. }) if key == keys::session() => {
                Box::pin(self.ledger.return_storage_with(&spec.tenant, commit.counted, claim.map(|end| *end))).await;
                Err(NotStored::Changed)
            }
            // A duplicate has created the run.
            Err(CommitError::VersionConflict { .. }) => Err(StartError::from(ClaimError::Busy).into()),
            Err(error) => Err(StartError::from(unavailable(error)).into()),
        }
    }

    /// Undoes what was prepared for a run that was not stored. Fails unless the run may be stored at another attempt.
    async fn abandon(
        &self,
        candidate: Candidate,
        beginning: Box<Beginning>,
        cause: NotStored,
    ) -> Result<(), StartError> {
        let lacking = match cause {
            NotStored::Changed => None,
            NotStored::NoRoom(bytes) => Some(bytes),
            NotStored::Failed(error) => {
                // The store did not say whether the run exists: the sweep of slots decides about its slot.
                let Beginning { log, records, reserved, .. } = *beginning;
                let meter = Meter::new(candidate.budget, None);
                let uncalled = reserved.map(|_| Box::new(UncalledStep { log, records, meter }));
                self.launcher.requeue(candidate.spec, candidate.lease, uncalled);
                return Err(error);
            }
        };
        let spec = candidate.spec.clone();
        self.withdraw(candidate).await?;
        if let Some(bytes) = lacking {
            self.ledger.recount(&spec.tenant, bytes).await?;
        }
        Ok(())
    }

    /// Releases what a run held that does not begin.
    async fn withdraw(&self, candidate: Candidate) -> Result<(), StartError> {
        if let Some(mut account) = candidate.account {
            account.free_slot().await;
        }
        candidate.lease.release().await?;
        Ok(self.ownership.replica.unregister(&candidate.spec.id).await?)
    }

    /// Lets a stored run wait for its turn.
    async fn queue(&self, candidate: Candidate, turn: Turn, records: &[Arc<Record>]) -> Result<Started, StartError> {
        let Candidate { spec, lease, budget, .. } = candidate;
        let mut readers = self.launcher.telemetry.of_run(&spec, || Run::new(spec.clone()).counted());
        for record in records {
            readers.recorded(record);
        }
        lease.release().await?;
        let follower = self.followers.follow(keys::partition_of(&spec), spec.id.clone(), None, 0);
        Ok(Started::new(&spec, turn, follower, budget))
    }

    /// Lets a stored run begin here.
    fn launch(
        &self,
        new: &NewRun,
        candidate: Candidate,
        turn: Turn,
        (beginning, nudges, counted): (Box<Beginning>, Option<Watch>, u64),
    ) -> Started {
        let Beginning { log, records, reserved, .. } = *beginning;
        let first_step_began = reserved.is_some();
        let memory = new.memory.take_run().unwrap_or_else(|| self.launcher.memory.begin());
        new.servers.iter().for_each(|asked| asked.keep());
        let Candidate { spec, tools, generation, history, budget, account, lease, .. } = candidate;
        let idle = Idle::created(log, &records, lease, counted, &self.launcher.telemetry);
        let (commands, tools) = (0, Some(tools));
        let prepared = Prepared { history, budget, account, commands, nudges, memory, first_step_began, tools };
        // The agent may have it answered with a stream that does not ask for one.
        let waits_for_the_end = new.waits_for_the_end && !spec.streams;
        let follower = self.launcher.spawn(Ready { idle, generation, prepared }, 0, waits_for_the_end);
        Started::new(&spec, turn, follower, budget)
    }
}

/// Returns the slot of a run that cannot begin because of this error.
async fn without_slot(account: Option<Box<Account>>, error: StartError) -> StartError {
    if let Some(mut account) = account {
        account.return_new_slot().await;
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starting_a_run_is_a_small_future() {
        fn of<'a, F: Future>(_: impl FnOnce(&'a Admission, &'a NewRun) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = of(|admission, new| admission.start_under(new, None));
        assert!(bytes <= 2_048, "it takes {bytes} bytes");
    }
}
