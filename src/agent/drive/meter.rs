//! What a run's steps may take: reserved before a model call and settled after it, with its session and
//! with its key.
//!
//! The session's counters lie in the run's partition, so they change in the commits that begin and end the
//! step. The key's lie elsewhere: they are reserved before the step begins and settled after it ended.

use std::time::Duration;

use crate::agent::drive::recorder::Recorder;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::limits::quota::{Account, Refusal};
use crate::agent::machine::budget::{self, signed};
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::failpoint;
use crate::store::{CommitError, Key, Tx, Unavailable, Write};
use crate::types::event::{BudgetKind, Reservation};
use crate::types::{Event, Micros, RunSpec, StopReason, Used};

/// The budgets that one run shares with others.
#[derive(Debug)]
pub struct Meter {
    /// What the session's budgets allow; `None` without a session.
    session: Option<SessionBudget>,
    /// What its key allows, if that is not everything.
    account: Option<Account>,
}

impl Meter {
    /// The meter of a run of this session and with this account.
    pub fn new(session: Option<SessionBudget>, account: Option<Account>) -> Self {
        Self { session, account }
    }

    /// Reserves with the key what a step may take.
    pub async fn reserve(&mut self, recorder: &Recorder, step: u32, wanted: Reservation) -> Result<(), Refusal> {
        let Some(account) = &mut self.account else { return Ok(()) };
        let ttl = Duration::from_millis(recorder.run().left_ms());
        account.reserve(step, wanted, ttl, RetryWhileLeased::new(recorder.validity())).await?;
        failpoint::hit("step.reserved");
        Ok(())
    }

    /// What adds to the commit that begins a step what it may take of the session's budgets.
    pub fn begin(&self, wanted: Reservation) -> impl FnOnce(Tx) -> Tx + use<> {
        let session = self.session;
        move |tx| match session {
            Some(session) => tx.write(add(keys::session_tokens(), signed(wanted.tokens()), session.tokens)).write(add(
                keys::session_cost(),
                signed(wanted.cost.0),
                session.cost,
            )),
            None => tx,
        }
    }

    /// What it means that the commit which begins a step was refused.
    pub fn refusal(&self, error: CommitError) -> Refusal {
        let CommitError::CeilingReached { counter, value } = error else { return Refusal::Failed(error) };
        let value = u64::try_from(value).unwrap_or(0);
        let left = |ceiling: Option<u64>| ceiling.map_or(u64::MAX, |ceiling| ceiling.saturating_sub(value));
        let session = self.session.unwrap_or_default();
        if counter == keys::session_tokens() {
            Refusal::Short(BudgetKind::Tokens, left(session.tokens))
        } else {
            Refusal::Short(BudgetKind::Cost, left(session.cost))
        }
    }

    /// The same step with less output, so that it fits what a budget has left, or the budget that forbids
    /// it.
    pub fn shrink(
        spec: &RunSpec,
        planned: Reservation,
        kind: BudgetKind,
        left: u64,
    ) -> Result<Reservation, StopReason> {
        let (tokens, money, reason) = match kind {
            BudgetKind::Tokens => (left, u64::MAX, StopReason::TokenBudget),
            BudgetKind::Cost => (u64::MAX, left, StopReason::CostBudget),
        };
        budget::shrink(spec, planned, tokens, Micros(money)).ok_or(reason)
    }

    /// Gives back what was reserved with the key for a step that does not begin.
    pub async fn cancel(&mut self, recorder: &Recorder) -> Result<(), CommitError> {
        match &mut self.account {
            Some(account) => account.settle(Used::default(), RetryWhileLeased::new(recorder.validity())).await,
            None => Ok(()),
        }
    }

    /// Records the step's end, `event`, and settles its reservation, with the session in the same commit,
    /// with the key after it.
    pub async fn settle(
        &mut self,
        recorder: &mut Recorder,
        reserved: Reservation,
        event: Event,
    ) -> Result<(), CommitError> {
        let before = recorder.run();
        let (used_before, unconfirmed_before) = (before.used(), before.unconfirmed());
        recorder.queue(event);
        let after = recorder.run();
        let used = after.used().saturating_sub(used_before);
        let unconfirmed = after.unconfirmed().saturating_sub(unconfirmed_before);
        if self.session.is_some() {
            let tokens = signed(used.tokens) - signed(reserved.tokens());
            let cost = signed(used.cost.0) - signed(reserved.cost.0);
            let settled = |tx: Tx| {
                tx.write(add(keys::session_tokens(), tokens, None)).write(add(keys::session_cost(), cost, None))
            };
            recorder.record_with(None, settled).await?;
        }
        if let Some(account) = self.account.as_mut().filter(|account| account.holds()) {
            recorder.flush().await?;
            failpoint::hit("step.before_settle");
            account.settle(used + unconfirmed, RetryWhileLeased::new(recorder.validity())).await?;
        }
        failpoint::hit("turn.settled");
        Ok(())
    }

    /// Gives the run's slot back, since it is about to end.
    pub async fn free_slot(&mut self) {
        if let Some(account) = &mut self.account {
            account.free_slot().await;
        }
    }

    /// Takes the run's slot again, since it does not end yet.
    pub async fn keep_slot(&mut self) -> Result<(), Unavailable> {
        match &mut self.account {
            Some(account) => account.keep_slot().await,
            None => Ok(()),
        }
    }
}

fn add(counter: Key, delta: i64, ceiling: Option<u64>) -> Write {
    Write::Add { counter, delta, ceiling: ceiling.map(signed) }
}
