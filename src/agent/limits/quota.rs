//! What the runs of a key spend together, on all replicas: the budget of a model call is reserved before the call and
//! settled after it.
//!
//! A key's counters lie in a partition of their own, so no commit changes both them and a run. A reservation is
//! therefore a document beside the counters, which changes in the same commits as they do. As long as it exists it is
//! counted; the replica that removes it settles it, once. The run's log says what is due:
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

use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::agent::limits::Limits;
use crate::agent::limits::charge::{Charge, Charges, period_left_s, period_name};
use crate::agent::limits::holds::{Hold, Taken, counted, taken};
use crate::agent::limits::shared::SharedBudget;
use crate::agent::limits::slot::Slot;
use crate::agent::machine::budget::signed;
use crate::agent::ownership::retry::RetryWhileLeased;
use crate::agent::quotas::Quotas;
use crate::config::QuotaConfig;
use crate::store::{Check, CommitError, Key, Order, Partition, Scan, Store, Tx, Unavailable, Write};
use crate::types::event::Reservation;
use crate::types::shortfall::BudgetKind;
use crate::types::{BudgetOwner, RunId, RunSpec, Shortfall, Used};

/// How long a reservation outlives its run's deadline: time for other replicas to resume the run.
pub(in crate::agent) const GRACE: Duration = Duration::from_secs(600);
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
    /// Where it is counted among the runs that are under way at once.
    pub(super) slots: Vec<Slot>,
    /// Whose budgets they are.
    pub(super) owner: BudgetOwner,
    /// How long the counters are kept after the last reservation; `None` for as long as anything keeps them.
    pub(super) counters_ttl: Option<Duration>,
    held: Option<Held>,
}

/// A reservation that stands.
#[derive(Debug)]
struct Held {
    key: Key,
    version: u64,
    shares: Vec<Hold>,
}

/// Why nothing was reserved.
#[derive(Debug)]
pub enum Refusal {
    /// A budget has no room for it.
    Short(Shortfall),
    /// The commit failed.
    Failed(CommitError),
}

impl Limits {
    /// The account of a run whose key has some of these quotas, or that is counted with others of its agent or user.
    pub(in crate::agent) fn account(&self, spec: &RunSpec, quotas: &Quotas) -> Option<Account> {
        let of_key = spec
            .key_name
            .as_ref()
            .and_then(|name| Some((keys::budget_partition(&spec.tenant, name), quotas.of(name)?)));
        let shared = self.shared_slot(spec);
        if of_key.is_none() && shared.is_none() {
            return None;
        }
        let store = self.ledger.store();
        // Without quotas of a key nothing is reserved.
        let (partition, quota) =
            of_key.unwrap_or_else(|| (keys::shares_partition(&spec.tenant), QuotaConfig::default()));
        let slot = |most| {
            let taken = (encode(&spec.session), vec![(keys::slots_taken(), most)]);
            Slot::new(store, partition.clone(), &spec.id, taken)
        };
        let slots = quota.max_concurrent_runs.map(slot).into_iter().chain(shared).collect();
        let account = Account::new(store, spec, (partition, quota), BudgetOwner::Key);
        Some(Account { slots, ..account })
    }

    /// The account of a run that is resumed, whose steps are to be charged as `charges` say: its slot is kept, and the
    /// reservation that another driver left is settled. If that fails, the slot stays only if the run had it before.
    pub(in crate::agent) async fn open_account(
        &self,
        spec: &RunSpec,
        charges: &Charges,
        quotas: &Quotas,
    ) -> Result<Option<Box<Account>>, Unavailable> {
        let Some(mut account) = self.account(spec, quotas) else { return Ok(None) };
        let opened = match account.keep_slot().await {
            Ok(()) => account.settle_left(charges).await,
            Err(error) => Err(error),
        };
        if let Err(error) = opened {
            // It may have one of two. What the run had before stays: another driver goes on with it.
            Box::pin(account.return_new_slot()).await;
            return Err(error);
        }
        Ok(Some(Box::new(account)))
    }
}

impl Account {
    /// A run's part in these budgets, which are counted in this partition.
    pub(super) fn new(
        store: &Arc<dyn Store>,
        spec: &RunSpec,
        (partition, quota): (Partition, QuotaConfig),
        owner: BudgetOwner,
    ) -> Self {
        let (store, run) = (store.clone(), spec.id.clone());
        Self { store, partition, quota, run, slots: Vec::new(), owner, counters_ttl: None, held: None }
    }

    /// The same, whose counters are kept for so long after the last reservation.
    pub(super) fn kept_for(self, ttl: Duration) -> Self {
        Self { counters_ttl: Some(ttl), ..self }
    }

    /// The first of the key's budgets that has no room for this.
    pub async fn shortfall(&self, least: Reservation) -> Result<Option<Shortfall>, Unavailable> {
        let now = self.store.now_ms();
        for (kind, needed) in amounts(least) {
            if let Some((limit, counter)) = self.budget(kind, now) {
                let seen = counted(&*self.store, &self.partition, &counter).await?;
                if limit.saturating_sub(seen) < needed {
                    let short = self.describe(kind, needed, seen, now).await?;
                    if short.missing() > 0 {
                        return Ok(Some(short));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Reserves the budgets of a step, in place of what the run has reserved, or says which budget lacks how much of
    /// `least`. The reservation expires after `ttl` and a grace. A store that does not answer is asked again as long as
    /// `retry` lasts.
    pub async fn reserve(
        &mut self,
        step: u32,
        wanted: Reservation,
        least: Reservation,
        ttl: Duration,
        mut retry: RetryWhileLeased,
    ) -> Result<(), Refusal> {
        if !self.has_budgets() {
            return Ok(());
        }
        let (key, now, mut conflicts) = (keys::reserved(&self.run, step), self.store.now_ms(), 0);
        let shares = self.shares(wanted, now);
        loop {
            match self.store.commit(self.reservation(&key, &shares, ttl)).await {
                Ok(()) => {
                    let version = self.held.as_ref().map_or(0, |held| held.version) + 1;
                    let shares = shares.into_iter().map(|(share, _)| share).collect();
                    self.held = Some(Held { key, version, shares });
                    return Ok(());
                }
                Err(CommitError::Unavailable(error)) if retry.lasts(&error).await => {}
                // A driver that lost its lease wrote late, or an unconfirmed commit has happened.
                Err(CommitError::VersionConflict { .. }) if conflicts < ATTEMPTS => {
                    conflicts += 1;
                    self.held = retry.clone().read(|| self.read(&key)).await.map_err(failed)?;
                }
                Err(error) => return Err(self.refused(error, &shares, least, now).await),
            }
        }
    }

    /// What a step takes of each budget that the key has, and the budget.
    fn shares(&self, wanted: Reservation, now_ms: u64) -> Vec<(Hold, u64)> {
        let budgets = amounts(wanted).into_iter().filter_map(|(kind, amount)| {
            let (limit, counter) = self.budget(kind, now_ms)?;
            Some((Hold { kind, counter, amount }, limit))
        });
        budgets.collect()
    }

    /// The commit that reserves these shares under `key`, instead of what is reserved.
    fn reservation(&self, key: &Key, shares: &[(Hold, u64)], ttl: Duration) -> Tx {
        let version = self.held.as_ref().map_or(0, |held| held.version);
        let document: Vec<&Hold> = shares.iter().map(|(share, _)| share).collect();
        let ttl = Some(ttl.saturating_add(GRACE));
        let mut tx = Tx::new(self.partition.clone()).put_at(key.clone(), version, encode(&document), ttl);
        for share in self.held.iter().flat_map(|held| &held.shares) {
            tx = tx.write(share.settled_at(0));
        }
        for (share, limit) in shares {
            let (counter, delta) = (share.counter.clone(), signed(share.amount));
            tx = tx.write(Write::Add { counter: counter.clone(), delta, ceiling: Some(signed(*limit)) });
            if let Some(ttl) = self.counters_ttl {
                tx = tx.write(Write::ExpireCounter { counter, ttl });
            }
        }
        tx
    }

    /// Why a reservation was refused.
    async fn refused(&self, error: CommitError, shares: &[(Hold, u64)], least: Reservation, now_ms: u64) -> Refusal {
        let CommitError::CeilingReached { counter, value } = &error else { return Refusal::Failed(error) };
        let Some((share, _)) = shares.iter().find(|(share, _)| share.counter == *counter) else {
            return Refusal::Failed(error);
        };
        let (kind, seen) = (share.kind, u64::try_from(*value).unwrap_or(0));
        let needed = amounts(least).into_iter().find_map(|(of, amount)| (of == kind).then_some(amount));
        match self.describe(kind, needed.unwrap_or(0), seen, now_ms).await {
            Ok(short) => Refusal::Short(short),
            Err(error) => failed(error),
        }
    }

    /// The shortfall of a budget whose counter was `seen` to stand so. It lacks nothing if enough came back meanwhile.
    async fn describe(&self, kind: BudgetKind, needed: u64, seen: u64, now_ms: u64) -> Result<Shortfall, Unavailable> {
        let (limit, counter) = self.budget(kind, now_ms).unwrap_or((u64::MAX, Key::from("")));
        let per = match kind {
            BudgetKind::Tokens => self.quota.token_budget.and_then(|budget| budget.per),
            BudgetKind::Cost => self.quota.cost_budget.and_then(|budget| budget.per),
        };
        let Taken { total: taken, set_aside } =
            taken(&*self.store, &self.partition, &counter, Some(&self.run), seen).await?;
        let (owner, renews_in_s) = (self.owner, period_left_s(per, now_ms));
        Ok(Shortfall { owner, kind, limit, taken, set_aside, needed, renews_in_s })
    }

    /// Whether something is reserved.
    pub fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// Whether something is reserved for this step.
    pub fn holds_for(&self, step: u32) -> bool {
        self.held.as_ref().is_some_and(|held| held.key == keys::reserved(&self.run, step))
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
    pub(super) async fn settle_left(&self, charges: &Charges) -> Result<(), Unavailable> {
        if !self.has_budgets() {
            return Ok(());
        }
        let prefix = keys::reserved_by(&self.run);
        let scan = Scan { prefix: prefix.clone(), after: None, limit: MOST_LEFT, order: Order::Ascending };
        for (key, document) in self.store.scan(&self.partition, scan).await? {
            let Some(step) = key.strip_prefix(&prefix).and_then(|step| step.parse().ok()) else { continue };
            let shares = decode(&document.value)?;
            let held = Held { key: key.into(), version: document.version, shares };
            let charge = charges.of(step);
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

    /// Whether its key has a budget at all.
    pub(in crate::agent) fn has_budgets(&self) -> bool {
        self.quota.token_budget.is_some() || self.quota.cost_budget.is_some()
    }

    /// The key's budgets in the period of `now_ms`.
    pub(in crate::agent) fn shared_budgets(&self, now_ms: u64) -> impl Iterator<Item = SharedBudget> {
        SharedBudget::of_key(&self.quota, &self.partition, now_ms)
    }

    /// How much there is of a budget in the period of `now_ms`, and where it is counted.
    fn budget(&self, kind: BudgetKind, now_ms: u64) -> Option<(u64, Key)> {
        let (limit, per) = match kind {
            BudgetKind::Tokens => self.quota.token_budget.map(|budget| (budget.limit, budget.per)),
            BudgetKind::Cost => self.quota.cost_budget.map(|budget| (budget.limit.0, budget.per)),
        }?;
        let counter = match (self.owner, kind) {
            (BudgetOwner::Session, BudgetKind::Tokens) => keys::session_tokens(),
            (BudgetOwner::Session, BudgetKind::Cost) => keys::session_cost(),
            (BudgetOwner::Run | BudgetOwner::Tree | BudgetOwner::Key, _) => {
                keys::budget_counter(kind, &period_name(per, now_ms))
            }
        };
        Some((limit, counter))
    }
}

/// What a reservation is of each kind of budget.
pub(in crate::agent) fn amounts(reserved: Reservation) -> [(BudgetKind, u64); 2] {
    [(BudgetKind::Tokens, reserved.tokens()), (BudgetKind::Cost, reserved.cost.0)]
}

fn failed(error: Unavailable) -> Refusal {
    Refusal::Failed(error.into())
}
