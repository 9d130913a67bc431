//! What a run and all runs below it may take together, on all replicas.
//!
//! Each run whose budgets hold for others has counters in a partition of its own, and each run below takes from the counters of all
//! runs above. A reservation there is what it is in the account of a key: a document beside the counters, that is put before a step
//! begins and removed once it has ended. A run that nobody delegates to or from has none of this.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::limits::Limits;
use crate::agent::limits::charge::Charges;
use crate::agent::limits::quota::{Account, Refusal};
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::config::{Allotment, QuotaConfig};
use crate::failpoint;
use crate::store::{CommitError, Partition, Store, Tx, Unavailable, Write};
use crate::types::event::Reservation;
use crate::types::{BudgetOwner, RunSpec, Used};

/// One run's part in what the runs above it may take, and in what it may take with those below.
#[derive(Debug)]
pub struct TreeAccounts {
    accounts: Vec<Account>,
    /// Where calls of tools are counted, and how many there may be.
    calls: Vec<(Partition, u32)>,
    /// The step whose calls were counted last.
    counted: u32,
    store: Arc<dyn Store>,
    ttl: Duration,
}

impl Limits {
    /// What a run shares with those above and below it; `None` if that is nothing.
    pub(in crate::agent) fn tree(&self, spec: &RunSpec) -> Option<Box<TreeAccounts>> {
        let tree = spec.tree.as_ref()?;
        let (store, ttl) = (self.ledger.store(), self.ledger.retention().tree_ttl(spec));
        let mut accounts = Vec::new();
        let quota = |tokens: Option<u64>, cost| QuotaConfig {
            token_budget: tokens.map(|limit| Allotment { limit, per: None }),
            cost_budget: Option::map(cost, |limit| Allotment { limit, per: None }),
            max_concurrent_runs: None,
        };
        // The root takes from its session by its own commits.
        if let Some(bound) = tree.session.as_ref().filter(|_| spec.parent.is_some()) {
            let partition = keys::session_partition(&spec.tenant, &bound.session);
            let quota = quota(bound.tokens, bound.cost);
            accounts.push(Account::new(store, spec, (partition, quota), BudgetOwner::Session));
        }
        for bound in tree.bounds.iter().filter(|bound| bound.tokens.is_some() || bound.cost.is_some()) {
            let partition = keys::tree_partition(&spec.tenant, &bound.run);
            let account = Account::new(store, spec, (partition, quota(bound.tokens, bound.cost)), BudgetOwner::Tree);
            accounts.push(account.kept_for(ttl));
        }
        let calls = tree.bounds.iter().filter_map(|bound| {
            let most = bound.tool_calls?;
            Some((keys::tree_partition(&spec.tenant, &bound.run), most))
        });
        let calls: Vec<_> = calls.collect();
        let is_any = !accounts.is_empty() || !calls.is_empty();
        is_any.then(|| Box::new(TreeAccounts { accounts, calls, counted: 0, store: store.clone(), ttl }))
    }

    /// Settles what another driver of a run left reserved in what it shares with those above and below it.
    pub(in crate::agent) async fn settle_tree(&self, spec: &RunSpec, charges: &Charges) -> Result<(), Unavailable> {
        let Some(tree) = self.tree(spec) else { return Ok(()) };
        for account in &tree.accounts {
            account.settle_left(charges).await?;
        }
        Ok(())
    }
}

impl TreeAccounts {
    /// Whether there are budgets of tokens or money.
    pub fn has_budgets(&self) -> bool {
        !self.accounts.is_empty()
    }

    /// Whether one of them is a budget of money.
    pub fn has_cost_budget(&self) -> bool {
        self.accounts.iter().any(|account| account.quota.cost_budget.is_some())
    }

    /// Reserves the budgets of a step in all of them, or says which lacks how much of `least`. What was reserved in the others stays
    /// until it is settled, or replaced by the next attempt.
    pub async fn reserve(
        &mut self,
        step: u32,
        (wanted, least): (Reservation, Reservation),
        ttl: Duration,
        retry: RetryWhileLeased,
    ) -> Result<(), Refusal> {
        for account in &mut self.accounts {
            account.reserve(step, wanted, least, ttl, retry.clone()).await?;
            failpoint::hit("tree.partly_reserved");
        }
        Ok(())
    }

    /// Whether something is reserved.
    pub fn holds(&self) -> bool {
        self.accounts.iter().any(Account::holds)
    }

    /// Whether something is reserved for this step.
    pub fn holds_for(&self, step: u32) -> bool {
        self.accounts.iter().any(|account| account.holds_for(step))
    }

    /// Settles what is reserved at what was used, once the run's log says so.
    pub async fn settle(&mut self, used: Used, retry: RetryWhileLeased) -> Result<(), CommitError> {
        for account in &mut self.accounts {
            account.settle(used, retry.clone()).await?;
            failpoint::hit("tree.partly_settled");
        }
        Ok(())
    }

    /// Whether the calls of this step are still to be counted.
    pub fn counts_calls_of(&self, step: u32) -> bool {
        !self.calls.is_empty() && self.counted != step
    }

    /// Counts the calls of a step before any of them is made, once however often this is tried; `false` if there may not be so
    /// many more. What was counted of a step that makes none then stays counted.
    pub async fn count_calls(
        &mut self,
        spec: &RunSpec,
        (step, calls): (u32, u32),
        mut retry: RetryWhileLeased,
    ) -> Result<bool, CommitError> {
        for (partition, most) in &self.calls {
            let (counter, note) = (keys::tree_calls(), keys::counted_calls(&spec.id, step));
            loop {
                let tx = Tx::new(partition.clone())
                    .put_at(note.clone(), 0, encode(&calls), Some(self.ttl))
                    .write(Write::Add {
                        counter: counter.clone(),
                        delta: i64::from(calls),
                        ceiling: Some(i64::from(*most)),
                    })
                    .write(Write::ExpireCounter { counter: counter.clone(), ttl: self.ttl });
                match self.store.commit(tx).await {
                    // They were counted before a crash, or the store's answer was lost.
                    Ok(()) | Err(CommitError::VersionConflict { .. }) => break,
                    Err(CommitError::CeilingReached { .. }) => return Ok(false),
                    Err(CommitError::Unavailable(error)) if retry.lasts(&error).await => {}
                    Err(error) => return Err(error),
                }
            }
        }
        failpoint::hit("tree.calls_counted");
        self.counted = step;
        Ok(true)
    }
}
