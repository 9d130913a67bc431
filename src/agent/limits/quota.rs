//! What the runs of a key spend together, on all replicas: what a model call may take is reserved before
//! it and settled after it.
//!
//! A key's counters lie in a partition of their own, so no commit changes them and a run at once. A
//! reservation is therefore a document beside the counters that changes in the same commits as they do:
//! as long as it stands it is counted, and the replica that removes it settles it, once. The run's log says what
//! is due:
//!
//! | the process died | the log says | the replica that resumes the run |
//! | --- | --- | --- |
//! | before the reservation | the step did not begin | has nothing to do |
//! | between reservation and step | the step did not begin | gives all of it back |
//! | in the model call | the step began | leaves it charged in full, as the run is |
//! | between the step's end and settling | the step ended | settles what was used |
//!
//! If no replica resumes the run, the reservation expires some time after the run's deadline and stays
//! charged in full. A driver whose lease is lost may still come late with either commit. Its reservation
//! is then replaced by the next driver's or expires, and what it settles is what the next driver would.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::agent::limits::Limits;
use crate::agent::limits::charge::{Charge, charge, period_name};
use crate::agent::machine::budget::signed;
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::agent::quotas::Quotas;
use crate::config::QuotaConfig;
use crate::store::{Check, CommitError, Key, Order, Partition, Scan, Store, Tx, Unavailable, Write};
use crate::types::clock::now_ms;
use crate::types::event::{BudgetKind, Reservation};
use crate::types::{Record, RunId, RunSpec, SessionId, Used};

/// How long a reservation outlives its run's deadline: time for others to take the run up.
const GRACE: Duration = Duration::from_secs(600);
/// How often a reservation is read again that another driver of the run changed meanwhile.
const ATTEMPTS: usize = 4;
/// Reservations of one run that are looked at. It never has more than one, unless a driver came late.
const MOST_LEFT: usize = 64;

/// One run's part in what its key may take.
#[derive(Debug)]
pub struct Account {
    pub(in crate::agent) store: Arc<dyn Store>,
    pub(in crate::agent) partition: Partition,
    pub(in crate::agent) quota: QuotaConfig,
    pub(in crate::agent) run: RunId,
    pub(in crate::agent) session: Option<SessionId>,
    /// The version of the run's slot, if it is known to have one.
    pub(in crate::agent) slot: Option<u64>,
    held: Option<Held>,
}

/// A reservation that stands.
#[derive(Debug)]
struct Held {
    key: Key,
    version: u64,
    shares: Vec<Hold>,
}

/// What is counted of a reservation, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hold {
    kind: BudgetKind,
    counter: Key,
    amount: u64,
}

/// Why nothing was reserved.
#[derive(Debug)]
pub enum Refusal {
    /// A budget has only this much left.
    Short(BudgetKind, u64),
    /// The commit failed.
    Failed(CommitError),
}

impl Limits {
    /// The account of a run whose key has some of these quotas.
    pub(in crate::agent) fn account(&self, spec: &RunSpec, quotas: &Quotas) -> Option<Account> {
        let name = spec.key_name.as_ref()?;
        let quota = quotas.of(name)?;
        Some(Account {
            store: self.ledger.store().clone(),
            partition: keys::budget_partition(&spec.tenant, name),
            quota,
            run: spec.id.clone(),
            session: spec.session.clone(),
            slot: None,
            held: None,
        })
    }

    /// The account of a run that is taken up, of which `records` are in the log: its slot is kept, and
    /// what another driver left reserved is settled.
    pub(in crate::agent) async fn open_account(
        &self,
        spec: &RunSpec,
        records: &[Arc<Record>],
        quotas: &Quotas,
    ) -> Result<Option<Account>, Unavailable> {
        let Some(mut account) = self.account(spec, quotas) else { return Ok(None) };
        account.keep_slot().await?;
        account.settle_left(records).await?;
        Ok(Some(account))
    }
}

impl Account {
    /// What is left of the token budget and of the cost budget.
    pub async fn left(&self) -> Result<[u64; 2], Unavailable> {
        let mut left = [u64::MAX; 2];
        for (left, kind) in left.iter_mut().zip([BudgetKind::Tokens, BudgetKind::Cost]) {
            if let Some((limit, counter)) = self.budget(kind, now_ms()) {
                let taken = self.store.counter(&self.partition, &counter).await?;
                *left = limit.saturating_sub(u64::try_from(taken).unwrap_or(0));
            }
        }
        Ok(left)
    }

    /// Reserves what a step may take, instead of what is reserved for it already. It expires after
    /// `ttl` and a grace. A store that does not answer is asked again while there is `retry`.
    pub async fn reserve(
        &mut self,
        step: u32,
        wanted: Reservation,
        ttl: Duration,
        mut retry: RetryWhileLeased,
    ) -> Result<(), Refusal> {
        if !self.has_budgets() {
            return Ok(());
        }
        let (key, now) = (keys::reserved(&self.run, step), now_ms());
        let amounts = [(BudgetKind::Tokens, wanted.tokens()), (BudgetKind::Cost, wanted.cost.0)];
        let budgets = amounts.into_iter().filter_map(|(kind, amount)| {
            let (limit, counter) = self.budget(kind, now)?;
            Some((Hold { kind, counter, amount }, limit))
        });
        let (shares, limits): (Vec<_>, Vec<_>) = budgets.unzip();
        let mut conflicts = 0;
        loop {
            let version = self.held.as_ref().map_or(0, |held| held.version);
            let mut tx = Tx::new(self.partition.clone()).put_at(
                key.clone(),
                version,
                encode(&shares),
                Some(ttl.saturating_add(GRACE)),
            );
            for share in self.held.iter().flat_map(|held| &held.shares) {
                tx = tx.write(share.settled_at(0));
            }
            for (share, limit) in shares.iter().zip(&limits) {
                tx = tx.write(Write::Add {
                    counter: share.counter.clone(),
                    delta: signed(share.amount),
                    ceiling: Some(signed(*limit)),
                });
            }
            match self.store.commit(tx).await {
                Ok(()) => {
                    self.held = Some(Held { key, version: version + 1, shares });
                    return Ok(());
                }
                Err(CommitError::Unavailable(error)) if retry.lasts(&error).await => {}
                // A driver that lost its lease came late, or an unconfirmed commit did happen.
                Err(CommitError::VersionConflict { .. }) if conflicts < ATTEMPTS => {
                    conflicts += 1;
                    self.held = retry.clone().read(|| self.read(&key)).await.map_err(failed)?;
                }
                Err(CommitError::CeilingReached { counter, value }) => {
                    let full = shares.iter().zip(&limits).find(|(share, _)| share.counter == counter);
                    let Some((share, limit)) = full else {
                        return Err(Refusal::Failed(CommitError::CeilingReached { counter, value }));
                    };
                    return Err(Refusal::Short(share.kind, limit.saturating_sub(u64::try_from(value).unwrap_or(0))));
                }
                Err(error) => return Err(Refusal::Failed(error)),
            }
        }
    }

    /// Whether something is reserved.
    pub fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// Settles what is reserved at what was used, once the run's log says so. A store that does not
    /// answer is asked again while there is `retry`.
    pub async fn settle(&mut self, used: Used, mut retry: RetryWhileLeased) -> Result<(), CommitError> {
        let Some(held) = self.held.take() else { return Ok(()) };
        loop {
            match self.close(&held, Charge::Used(used)).await {
                Err(CommitError::Unavailable(error)) if retry.lasts(&error).await => {}
                result => return result,
            }
        }
    }

    /// Settles what another driver of the run left reserved.
    async fn settle_left(&self, records: &[Arc<Record>]) -> Result<(), Unavailable> {
        if !self.has_budgets() {
            return Ok(());
        }
        let prefix = keys::reserved_by(&self.run);
        let scan = Scan { prefix: prefix.clone(), after: None, limit: MOST_LEFT, order: Order::Ascending };
        for (key, document) in self.store.scan(&self.partition, scan).await? {
            let Some(step) = key.strip_prefix(&prefix).and_then(|step| step.parse().ok()) else { continue };
            let shares = decode(&document.value)?;
            let held = Held { key: key.into(), version: document.version, shares };
            let charge = charge(records.iter().map(Arc::as_ref), step);
            self.close(&held, charge).await.map_err(crate::agent::error::unavailable)?;
            let estimated = charge == Charge::Everything;
            tracing::info!(run = %self.run, step, estimated, "settled the reservation of an interrupted step");
        }
        Ok(())
    }

    /// Removes a reservation and leaves what is charged for it counted; nothing happens if it was
    /// removed or replaced meanwhile.
    async fn close(&self, held: &Held, charge: Charge) -> Result<(), CommitError> {
        let mut tx = Tx::new(self.partition.clone())
            .check(Check::Version { key: held.key.clone(), version: held.version })
            .write(Write::Delete { key: held.key.clone() });
        for share in &held.shares {
            let charged = match (charge, share.kind) {
                (Charge::Nothing, _) => 0,
                (Charge::Used(used), BudgetKind::Tokens) => used.tokens,
                (Charge::Used(used), BudgetKind::Cost) => used.cost.0,
                (Charge::Everything, _) => share.amount,
            };
            tx = tx.write(share.settled_at(charged));
        }
        match self.store.commit(tx).await {
            Ok(()) | Err(CommitError::VersionConflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn read(&self, key: &Key) -> Result<Option<Held>, Unavailable> {
        let Some(document) = self.store.get(&self.partition, key).await? else { return Ok(None) };
        Ok(Some(Held { key: key.clone(), version: document.version, shares: decode(&document.value)? }))
    }

    fn has_budgets(&self) -> bool {
        self.quota.token_budget.is_some() || self.quota.cost_budget.is_some()
    }

    /// How much there is of a budget in the period of `now_ms`, and where it is counted.
    fn budget(&self, kind: BudgetKind, now_ms: u64) -> Option<(u64, Key)> {
        let (limit, per) = match kind {
            BudgetKind::Tokens => self.quota.token_budget.map(|budget| (budget.limit, budget.per)),
            BudgetKind::Cost => self.quota.cost_budget.map(|budget| (budget.limit.0, budget.per)),
        }?;
        Some((limit, keys::budget_counter(kind, &period_name(per, now_ms))))
    }
}

impl Hold {
    /// Leaves `charged` counted of what was reserved.
    fn settled_at(&self, charged: u64) -> Write {
        let delta = signed(charged) - signed(self.amount);
        Write::Add { counter: self.counter.clone(), delta, ceiling: None }
    }
}

fn failed(error: Unavailable) -> Refusal {
    Refusal::Failed(error.into())
}
