//! Budgets of a run's steps: reserved before a model call and settled after it, in the run's session and in its key.
//!
//! The session's counters lie in the run's partition, so they change in the commits that begin and end the step. The
//! key's counters lie in another partition: they are reserved before the step begins and settled after it has ended.

use std::time::Duration;

use futures_util::future::join_all;

use crate::agent::drive::recorder::Recorder;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::limits::holds::{Hold, Taken, taken};
use crate::agent::limits::quota::{Account, GRACE, Refusal, amounts};
use crate::agent::limits::shared::{BudgetState, SharedBudget};
use crate::agent::limits::tree::TreeAccounts;
use crate::agent::machine::Run;
use crate::agent::machine::budget::{self, signed};
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::failpoint;
use crate::store::{CommitError, Key, Tx, Unavailable, Write};
use crate::types::event::Reservation;
use crate::types::{BudgetOwner, Event, Shortfall, Used};

/// Part of a budget that a run uses until it looks again how much of the budget is used.
const LOOKS: u64 = 20;

/// The budgets that one run shares with others.
#[derive(Debug)]
pub struct Meter {
    /// What the session's budgets allow; `None` without a session.
    session: Option<SessionBudget>,
    /// What its key allows, if that is not everything. Boxed, as most runs have none.
    account: Option<Box<Account>>,
    /// What it shares with the runs above and below it. Boxed, as most runs have none.
    tree: Option<Box<TreeAccounts>>,
    /// What the run used since its shared budgets were looked at.
    since_look: Used,
}

impl Meter {
    /// The meter of a run of this session and with this account.
    pub fn new(session: Option<SessionBudget>, account: Option<Box<Account>>) -> Self {
        Self { session, account, tree: None, since_look: Used::default() }
    }

    /// The same of a run that shares this with the runs above and below it.
    pub fn in_tree(self, tree: Option<Box<TreeAccounts>>) -> Self {
        Self { tree, ..self }
    }

    /// Takes what a run shares with the runs above and below it now that it goes on as another agent. Nothing is reserved meanwhile.
    pub fn share(&mut self, tree: Option<Box<TreeAccounts>>) {
        self.tree = tree;
    }

    /// Whether the session or the key has a budget.
    pub fn has_budgets(&self) -> bool {
        self.session.is_some_and(|session| session.is_any())
            || self.account.as_ref().is_some_and(|account| account.has_budgets())
            || self.tree.as_ref().is_some_and(|tree| tree.has_budgets())
    }

    /// Whether one of them is a budget of cost.
    pub fn has_cost_budget(&self) -> bool {
        self.session.is_some_and(|session| session.cost.is_some())
            || self.account.as_ref().is_some_and(|account| account.quota.cost_budget.is_some())
            || self.tree.as_ref().is_some_and(|tree| tree.has_cost_budget())
    }

    /// Reserves the budgets of a step in the key's account, and in what the run shares with those above and below it.
    pub async fn reserve(&mut self, recorder: &Recorder, step: u32, wanted: Reservation) -> Result<(), Refusal> {
        if self.account.is_none() && self.tree.is_none() {
            return Ok(());
        }
        let (run, ttl) = (recorder.run(), Duration::from_millis(recorder.run().left_ms()));
        let least = budget::least(&run.terms(), wanted);
        if let Some(account) = &mut self.account {
            account.reserve(step, wanted, least, ttl, RetryWhileLeased::new(recorder.validity())).await?;
        }
        if let Some(tree) = &mut self.tree {
            failpoint::hit("tree.before_reserve");
            // Boxed, as most runs have none above or below them.
            let retry = RetryWhileLeased::new(recorder.validity());
            Box::pin(tree.reserve(step, (wanted, least), ttl, retry)).await?;
        }
        failpoint::hit("step.reserved");
        Ok(())
    }

    /// Adds the reservation in the session's budgets to the commit that begins a step.
    pub fn begin(&self, run: &Run, wanted: Reservation) -> impl FnOnce(Tx) -> Tx + use<> {
        self.begin_beside(run, Reservation::default(), wanted)
    }

    /// The same for a step's second call, beside a first one for which `before` is reserved.
    pub fn begin_beside(&self, run: &Run, before: Reservation, wanted: Reservation) -> impl FnOnce(Tx) -> Tx + use<> {
        let (session, key) = (self.session, keys::session_hold(&run.spec().id));
        let ttl = Some(Duration::from_millis(run.left_ms()).saturating_add(GRACE));
        move |mut tx| {
            let Some(session) = session else { return tx };
            if session.is_any() {
                let holds: Vec<Hold> = amounts(before.and(wanted))
                    .into_iter()
                    .filter_map(|(kind, amount)| Some(Hold { kind, counter: session.of_kind(kind)?.1, amount }))
                    .collect();
                tx = tx.write(Write::Put { key, value: encode(&holds), ttl });
            }
            tx.write(add(keys::session_tokens(), signed(wanted.tokens()), session.tokens)).write(add(
                keys::session_cost(),
                signed(wanted.cost.0),
                session.cost,
            ))
        }
    }

    /// Adds the settlement of the session's budgets to the commit that ends a step, which has used so much.
    pub fn settled(&self, run: &Run, reserved: Reservation, used: Used) -> impl FnOnce(Tx) -> Tx + use<> {
        let (session, hold) = (self.session, keys::session_hold(&run.spec().id));
        let tokens = signed(used.tokens) - signed(reserved.tokens());
        let cost = signed(used.cost.0) - signed(reserved.cost.0);
        move |tx| {
            let Some(session) = session else { return tx };
            let tx = if session.is_any() { tx.write(Write::Delete { key: hold }) } else { tx };
            tx.write(add(keys::session_tokens(), tokens, None)).write(add(keys::session_cost(), cost, None))
        }
    }

    /// Why the commit that begins a step was refused.
    pub async fn refusal(&self, recorder: &Recorder, error: CommitError, wanted: Reservation) -> Refusal {
        let CommitError::CeilingReached { counter, value } = &error else { return Refusal::Failed(error) };
        let (run, session) = (recorder.run(), self.session.unwrap_or_default());
        let least = budget::least(&run.terms(), wanted);
        let full = amounts(least).into_iter().find_map(|(kind, needed)| {
            let (limit, of) = session.of_kind(kind)?;
            (of == *counter).then_some((kind, needed, limit))
        });
        let Some((kind, needed, limit)) = full else { return Refusal::Failed(error) };
        let seen = u64::try_from(*value).unwrap_or(0);
        match taken(&**recorder.store(), recorder.partition(), counter, Some(&run.spec().id), seen).await {
            Ok(Taken { total: taken, set_aside }) => {
                let (owner, renews_in_s) = (BudgetOwner::Session, None);
                Refusal::Short(Shortfall { owner, kind, limit, taken, set_aside, needed, renews_in_s })
            }
            Err(error) => Refusal::Failed(error.into()),
        }
    }

    /// Releases what was reserved in the key's account for a step that does not begin.
    pub async fn cancel(&mut self, recorder: &Recorder) -> Result<(), CommitError> {
        if let Some(tree) = &mut self.tree {
            Box::pin(tree.settle(Used::default(), RetryWhileLeased::new(recorder.validity()))).await?;
        }
        match &mut self.account {
            Some(account) => account.settle(Used::default(), RetryWhileLeased::new(recorder.validity())).await,
            None => Ok(()),
        }
    }

    /// Whether the calls of this step are still to be counted with those of other runs.
    pub fn counts_calls_of(&self, step: u32) -> bool {
        self.tree.as_ref().is_some_and(|tree| tree.counts_calls_of(step))
    }

    /// Counts the calls of the present step in what the run shares with those above and below it, before any of them is made;
    /// `false` if all together may not make so many more.
    pub async fn count_calls(&mut self, recorder: &Recorder) -> Result<bool, CommitError> {
        let (run, retry) = (recorder.run(), RetryWhileLeased::new(recorder.validity()));
        match self.tree.as_mut().filter(|tree| tree.counts_calls_of(run.step())) {
            Some(tree) => Box::pin(tree.count_calls(run.spec(), (run.step(), run.calls_of_step()), retry)).await,
            None => Ok(true),
        }
    }

    /// Releases what was reserved in the key's account for the step after the last one that began.
    pub async fn cancel_next(&mut self, recorder: &Recorder) -> Result<(), CommitError> {
        let next = recorder.run().step() + 1;
        let of_tree = self.tree.as_ref().is_some_and(|tree| tree.holds_for(next));
        if of_tree || self.account.as_ref().is_some_and(|account| account.holds_for(next)) {
            self.cancel(recorder).await?;
        }
        Ok(())
    }

    /// Records the step's end, `event`, with what is `next` in the run, and settles the reservation: in the session's
    /// budgets in the same commit, in the key's account after it.
    pub async fn settle(
        &mut self,
        recorder: &mut Recorder,
        reserved: Reservation,
        event: Event,
        next: Option<Event>,
    ) -> Result<(), CommitError> {
        let before = recorder.run();
        let (used_before, unconfirmed_before) = (before.used(), before.unconfirmed());
        // A second call was charged when it was dropped, and is settled with the step.
        let (reserved, (used_beside, unconfirmed_beside)) =
            (reserved.and(before.reserved_beside()), before.used_beside());
        recorder.queue(event);
        let after = recorder.run();
        let used = after.used().saturating_sub(used_before) + used_beside;
        let unconfirmed = after.unconfirmed().saturating_sub(unconfirmed_before) + unconfirmed_beside;
        self.since_look += used + unconfirmed;
        if let Some(next) = next {
            recorder.queue(next);
        }
        if self.session.is_some() {
            let settled = self.settled(recorder.run(), reserved, used);
            recorder.record_with(None, settled).await?;
        }
        if let Some(tree) = self.tree.as_mut().filter(|tree| tree.holds()) {
            recorder.flush().await?;
            failpoint::hit("tree.before_settle");
            Box::pin(tree.settle(used + unconfirmed, RetryWhileLeased::new(recorder.validity()))).await?;
        }
        if let Some(account) = self.account.as_mut().filter(|account| account.holds()) {
            recorder.flush().await?;
            failpoint::hit("step.before_settle");
            account.settle(used + unconfirmed, RetryWhileLeased::new(recorder.validity())).await?;
        }
        failpoint::hit("turn.settled");
        Ok(())
    }

    /// Where those shared budgets stand of which the run is to warn. They are looked at once the run used a twentieth of
    /// one, and before it `ends`. If the store does not answer, a later look may warn.
    pub async fn due_warnings(&mut self, recorder: &Recorder, ends: bool) -> Vec<BudgetState> {
        let Used { tokens, cost } = self.since_look;
        if !self.has_budgets() || self.since_look.is_nothing() {
            return Vec::new();
        }
        let (store, now_ms) = (&**recorder.store(), recorder.store().now_ms());
        let of_session =
            self.session.into_iter().flat_map(|budgets| SharedBudget::of_session(budgets, recorder.partition()));
        let of_key = self.account.iter().flat_map(|account| account.shared_budgets(now_ms));
        let shared: Vec<_> = of_session.chain(of_key).collect();
        let is_much = |budget: &SharedBudget| budget.part_of(tokens, cost.0) >= budget.limit / LOOKS;
        if !ends && !shared.iter().any(is_much) {
            return Vec::new();
        }
        self.since_look = Used::default();
        let looked = join_all(shared.iter().map(|budget| budget.due_warning(store, now_ms))).await;
        looked.into_iter().filter_map(|due| due.ok().flatten()).collect()
    }

    /// Releases the run's slot, since the run is about to end.
    pub async fn free_slot(&mut self) {
        if let Some(account) = &mut self.account {
            account.free_slot().await;
        }
    }

    /// Acquires the run's slot again, since the run does not end yet.
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
