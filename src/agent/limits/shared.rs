//! A budget that several runs share: where it is counted, and how it stands.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::agent::error::unavailable;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::limits::charge::{period_left_s, period_name};
use crate::agent::limits::holds::{Taken, counted, taken};
use crate::agent::machine::budget::is_mostly_used;
use crate::config::{Period, QuotaConfig};
use crate::store::{CommitError, Key, Partition, Store, Tx, Unavailable};
use crate::types::BudgetOwner;
use crate::types::shortfall::BudgetKind;

/// For how long it is kept that a warning was given: longer than a month, which is the longest period that ends. Of a
/// session it is kept for so long after the last look, since its documents must expire with it; of a budget that never begins
/// anew it is kept for ever.
const WARNED_FOR: Duration = Duration::from_secs(32 * 86_400);
/// How old a mark of a session is when it is put again.
const RENEWED_AFTER_MS: u64 = 86_400_000;

/// A warning that was given.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Warned {
    /// The budget that it was of.
    limit: u64,
    /// When, in Unix milliseconds.
    at_ms: u64,
}

/// Where a budget stands. Amounts are tokens or micro-dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetState {
    /// Whose it is.
    pub owner: BudgetOwner,
    /// What it counts.
    pub kind: BudgetKind,
    /// The whole budget.
    pub limit: u64,
    /// What runs used of it.
    pub used: u64,
    /// What live runs have reserved for their model calls under way.
    pub reserved: u64,
    /// How long it lasts; `None` for ever.
    pub period: Option<Period>,
    /// In how many seconds it begins anew; `None` for never.
    pub renews_in_s: Option<u64>,
}

impl BudgetState {
    /// What is neither used nor reserved.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.used).saturating_sub(self.reserved)
    }
}

/// What is left of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLeft {
    /// Whose it is.
    pub owner: BudgetOwner,
    /// What it counts.
    pub kind: BudgetKind,
    /// The whole budget.
    pub limit: u64,
    /// What is neither used nor reserved.
    pub remaining: u64,
    /// In how many seconds it begins anew; `None` for never.
    pub renews_in_s: Option<u64>,
    /// Whether four fifths of it are used.
    pub is_mostly_used: bool,
}

/// A budget that is in force, and where it is counted.
#[derive(Debug)]
pub(in crate::agent) struct SharedBudget {
    owner: BudgetOwner,
    kind: BudgetKind,
    pub(in crate::agent) limit: u64,
    period: Option<Period>,
    partition: Partition,
    counter: Key,
}

impl SharedBudget {
    /// The budgets of a key that are counted in this partition.
    pub(in crate::agent) fn of_key(
        quota: &QuotaConfig,
        partition: &Partition,
        now_ms: u64,
    ) -> impl Iterator<Item = Self> {
        let tokens = quota.token_budget.map(|budget| (BudgetKind::Tokens, budget.limit, budget.per));
        let cost = quota.cost_budget.map(|budget| (BudgetKind::Cost, budget.limit.0, budget.per));
        [tokens, cost].into_iter().flatten().map(move |(kind, limit, period)| {
            let counter = keys::budget_counter(kind, &period_name(period, now_ms));
            Self { owner: BudgetOwner::Key, kind, limit, period, partition: partition.clone(), counter }
        })
    }

    /// The budgets of the session of this partition.
    pub(in crate::agent) fn of_session(budgets: SessionBudget, partition: &Partition) -> impl Iterator<Item = Self> {
        [BudgetKind::Tokens, BudgetKind::Cost].into_iter().filter_map(move |kind| {
            let (limit, counter) = budgets.of_kind(kind)?;
            let (owner, partition) = (BudgetOwner::Session, partition.clone());
            Some(Self { owner, kind, limit, period: None, partition, counter })
        })
    }

    /// How much of these is counted of it.
    pub(in crate::agent) fn part_of(&self, tokens: u64, cost: u64) -> u64 {
        match self.kind {
            BudgetKind::Tokens => tokens,
            BudgetKind::Cost => cost,
        }
    }

    /// Where it stands.
    pub(in crate::agent) async fn state(&self, store: &dyn Store, now_ms: u64) -> Result<BudgetState, Unavailable> {
        let seen = counted(store, &self.partition, &self.counter).await?;
        self.state_of(seen, store, now_ms).await
    }

    /// What is left of it.
    pub(in crate::agent) async fn left(&self, store: &dyn Store, now_ms: u64) -> Result<BudgetLeft, Unavailable> {
        let Self { owner, kind, limit, .. } = *self;
        let seen = counted(store, &self.partition, &self.counter).await?;
        let renews_in_s = period_left_s(self.period, now_ms);
        // What is reserved is looked up only where it matters.
        let (remaining, is_mostly_used) = if is_mostly_used(seen, limit) {
            let state = self.state_of(seen, store, now_ms).await?;
            (state.remaining(), is_mostly_used(state.used, limit))
        } else {
            (limit.saturating_sub(seen), false)
        };
        Ok(BudgetLeft { owner, kind, limit, remaining, renews_in_s, is_mostly_used })
    }

    /// Where it stands if four fifths of it are used, and no run has warned of that before: the caller is to warn.
    pub(in crate::agent) async fn due_warning(
        &self,
        store: &dyn Store,
        now_ms: u64,
    ) -> Result<Option<BudgetState>, Unavailable> {
        let seen = counted(store, &self.partition, &self.counter).await?;
        if !is_mostly_used(seen, self.limit) {
            return Ok(None);
        }
        let state = self.state_of(seen, store, now_ms).await?;
        if !is_mostly_used(state.used, self.limit) {
            return Ok(None);
        }
        let key = keys::warned(&self.counter);
        let (version, warned) = match store.get(&self.partition, &key).await? {
            Some(document) => (document.version, Some(decode::<Warned>(&document.value)?)),
            None => (0, None),
        };
        let is_given = warned.is_some_and(|warned| warned.limit == self.limit);
        let is_old = warned.is_some_and(|warned| now_ms.saturating_sub(warned.at_ms) >= RENEWED_AFTER_MS);
        if is_given && !(is_old && self.owner == BudgetOwner::Session) {
            return Ok(None);
        }
        let ttl = (self.period.is_some() || self.owner == BudgetOwner::Session).then_some(WARNED_FOR);
        let value = encode(&Warned { limit: self.limit, at_ms: now_ms });
        match store.commit(Tx::new(self.partition.clone()).put_at(key, version, value, ttl)).await {
            Ok(()) => Ok((!is_given).then_some(state)),
            Err(CommitError::VersionConflict { .. }) => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Where it stands, after its counter was `seen` to stand so.
    async fn state_of(&self, seen: u64, store: &dyn Store, now_ms: u64) -> Result<BudgetState, Unavailable> {
        let Self { owner, kind, limit, period, .. } = *self;
        let Taken { total, set_aside: reserved } = taken(store, &self.partition, &self.counter, None, seen).await?;
        let renews_in_s = period_left_s(period, now_ms);
        Ok(BudgetState { owner, kind, limit, used: total - reserved, reserved, period, renews_in_s })
    }
}
