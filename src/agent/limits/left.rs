//! What is left of the budgets that a key's runs, and those of a session, share.

use crate::agent::error::LookupError;
use crate::agent::ledger::keys;
use crate::agent::ledger::session::SessionBudget;
use crate::agent::limits::Limits;
use crate::agent::limits::charge::{period_left_s, period_name};
use crate::agent::limits::quota::set_aside;
use crate::agent::quotas::Quotas;
use crate::config::Period;
use crate::store::{Key, Partition, Unavailable};
use crate::types::shortfall::BudgetKind;
use crate::types::{BudgetOwner, SessionId, Tenant};

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

/// A budget that is in force, and where it is counted.
struct InForce {
    owner: BudgetOwner,
    kind: BudgetKind,
    limit: u64,
    period: Option<Period>,
    counter: Key,
}

impl Limits {
    /// The budgets of this key, and of this session, if the request names them.
    ///
    /// # Errors
    /// If there is no such session, or the store does not answer.
    pub async fn budgets(
        &self,
        tenant: &Tenant,
        key_name: Option<&str>,
        session: Option<&SessionId>,
        quotas: &Quotas,
    ) -> Result<Vec<BudgetState>, LookupError> {
        let (now, mut states) = (self.ledger.store().now_ms(), Vec::new());
        if let Some((name, quota)) = key_name.and_then(|name| Some((name, quotas.of(name)?))) {
            let tokens = quota.token_budget.map(|budget| (BudgetKind::Tokens, budget.limit, budget.per));
            let cost = quota.cost_budget.map(|budget| (BudgetKind::Cost, budget.limit.0, budget.per));
            let partition = keys::budget_partition(tenant, name);
            for (kind, limit, period) in [tokens, cost].into_iter().flatten() {
                let counter = keys::budget_counter(kind, &period_name(period, now));
                let budget = InForce { owner: BudgetOwner::Key, kind, limit, period, counter };
                states.push(self.state(&partition, budget, now).await?);
            }
        }
        if let Some(id) = session {
            let missing = || LookupError::SessionNotFound(id.to_string());
            let found = self.ledger.find_session(tenant, id).await?.ok_or_else(missing)?;
            let (partition, budgets) = (keys::session_partition(tenant, id), SessionBudget::of(&found.session));
            for kind in [BudgetKind::Tokens, BudgetKind::Cost] {
                let Some((limit, counter)) = budgets.of_kind(kind) else { continue };
                let budget = InForce { owner: BudgetOwner::Session, kind, limit, period: None, counter };
                states.push(self.state(&partition, budget, now).await?);
            }
        }
        Ok(states)
    }

    async fn state(&self, partition: &Partition, budget: InForce, now_ms: u64) -> Result<BudgetState, Unavailable> {
        let InForce { owner, kind, limit, period, counter } = budget;
        let store = &**self.ledger.store();
        let taken = u64::try_from(store.counter(partition, &counter).await?).unwrap_or(0);
        // Read later, so it may have more: what has been reserved since is not in the counter that was read.
        let reserved = set_aside(store, partition, &counter, None).await?.min(taken);
        let renews_in_s = period_left_s(period, now_ms);
        Ok(BudgetState { owner, kind, limit, used: taken - reserved, reserved, period, renews_in_s })
    }
}
