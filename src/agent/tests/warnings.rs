//! Warnings that a budget which several runs share is mostly used.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;

use super::quota::{counter, keyed, memory, partition, quotas, tokens};
use super::support::{Say, TestAgent, outcome, watch};
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::limits::holds::Hold;
use crate::agent::session::{NewSession, SessionPatch};
use crate::agent::{NewRun, Quotas};
use crate::store::faulty::{Fate, Faulty};
use crate::store::{Key, Partition, Store, Tx, Write};
use crate::types::shortfall::BudgetKind;
use crate::types::{BudgetOwner, Event, Record, RunId, SessionId, Tenant};

const LIMIT: u64 = 4_000;
/// What a run of these tests uses.
const USED: u64 = 15;

/// A tenant with a budget of [`LIMIT`] tokens, and where it is counted.
struct Budget {
    store: Arc<dyn Store>,
    owner: BudgetOwner,
    partition: Partition,
    counter: Key,
}

impl Budget {
    /// A budget of this owner, of which so many tokens are used.
    async fn used(owner: BudgetOwner, used: i64) -> Self {
        let (store, id) = (memory(), SessionId::parse("s").unwrap());
        let (partition, counter) = match owner {
            BudgetOwner::Key | BudgetOwner::Run | BudgetOwner::Tree => (partition(), counter(BudgetKind::Tokens)),
            BudgetOwner::Session => {
                let new = NewSession { id: Some(id.clone()), token_budget: Some(LIMIT), ..NewSession::default() };
                let agent = TestAgent::builder().store(store.clone()).build();
                agent.sessions().create(&Tenant::default_tenant(), new).await.unwrap();
                (keys::session_partition(&Tenant::default_tenant(), &id), keys::session_tokens())
            }
        };
        let budget = Self { store, owner, partition, counter };
        budget.add(used, None).await;
        budget
    }

    /// Counts so much more, and a reservation of it under this run if there is one.
    async fn add(&self, delta: i64, reserved_by: Option<&RunId>) {
        let mut tx = Tx::new(self.partition.clone());
        if let Some(run) = reserved_by {
            let (kind, counter) = (BudgetKind::Tokens, self.counter.clone());
            let holds = [Hold { kind, counter, amount: delta.unsigned_abs() }];
            tx = tx.write(Write::Put { key: keys::reserved(run, 1), value: encode(&holds), ttl: None });
        }
        let add = Write::Add { counter: self.counter.clone(), delta, ceiling: None };
        self.store.commit(tx.write(add)).await.unwrap();
    }

    fn agent(&self) -> TestAgent {
        self.agent_over(self.store.clone())
    }

    fn agent_over(&self, store: Arc<dyn Store>) -> TestAgent {
        let quotas = if self.owner == BudgetOwner::Key { quotas(tokens(LIMIT)) } else { Quotas::default() };
        TestAgent::builder().store(store).quotas(quotas).turns(vec![Say::Text(&["hello"]); 8]).begin()
    }

    fn request(&self) -> NewRun {
        let session = (self.owner == BudgetOwner::Session).then(|| SessionId::parse("s").unwrap());
        NewRun { session, ..keyed() }
    }

    /// The warnings of a run.
    async fn warnings(&self, agent: &TestAgent) -> Vec<(BudgetOwner, u64, u64)> {
        let records = watch(agent.start(self.request(), None).await.unwrap()).await;
        assert_eq!(outcome(&records).usage.total(), USED);
        agent.idle(Duration::from_secs(5)).await;
        warnings(&records)
    }
}

fn warnings(records: &[Record]) -> Vec<(BudgetOwner, u64, u64)> {
    let warnings = records.iter().filter_map(|record| match record.event {
        Event::BudgetWarning { owner, kind: BudgetKind::Tokens, used, limit } => Some((owner, used, limit)),
        _ => None,
    });
    warnings.collect()
}

#[tokio::test(start_paused = true)]
async fn the_run_that_takes_a_shared_budget_to_four_fifths_warns_of_it_and_no_other() {
    for owner in [BudgetOwner::Key, BudgetOwner::Session] {
        let budget = Budget::used(owner, 3_170).await;
        let agent = budget.agent();
        let other = RunId::mint();
        budget.add(100, Some(&other)).await;
        assert_eq!(budget.warnings(&agent).await, [], "what is reserved may come back: {owner}");
        assert_eq!(budget.warnings(&agent).await, [(owner, 3_200, LIMIT)]);
        assert_eq!(budget.warnings(&agent).await, [], "one run warned: {owner}");
        assert_eq!(budget.warnings(&budget.agent()).await, [], "that was on another replica: {owner}");
    }
}

#[tokio::test(start_paused = true)]
async fn runs_that_take_a_budget_to_four_fifths_together_warn_of_it_once() {
    let budget = Budget::used(BudgetOwner::Key, 3_190).await;
    // Reservations of all of them have no room at once, so they begin one after the other and end in between.
    let replicas = [budget.agent(), budget.agent()];
    let runs = (0..8).map(|number| {
        let agent = &replicas[number % 2];
        async { watch(agent.start(budget.request(), None).await.unwrap()).await }
    });
    let warned: Vec<_> = join_all(runs).await.iter().flat_map(|records| warnings(records)).collect();
    assert_eq!(warned.len(), 1, "{warned:?}");
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_changed_and_a_session_that_is_made_anew_are_warned_of_again() {
    let budget = Budget::used(BudgetOwner::Session, 3_190).await;
    let (agent, tenant, id) = (budget.agent(), Tenant::default_tenant(), SessionId::parse("s").unwrap());
    assert_eq!(budget.warnings(&agent).await, [(BudgetOwner::Session, 3_205, LIMIT)]);
    let patch = SessionPatch { token_budget: Some(Some(4_020)), ..SessionPatch::default() };
    agent.sessions().patch(&tenant, &id, patch).await.unwrap();
    assert_eq!(budget.warnings(&agent).await, [(BudgetOwner::Session, 3_220, 4_020)]);
    agent.sessions().delete(&tenant, &id).await.unwrap();
    let new = NewSession { id: Some(id.clone()), token_budget: Some(4_020), ..NewSession::default() };
    agent.sessions().create(&tenant, new).await.unwrap();
    budget.add(3_210, None).await;
    assert_eq!(budget.warnings(&agent).await, [(BudgetOwner::Session, 3_225, 4_020)]);
}

/// For how long it is kept that a run warned: for ever of a budget that never begins anew, and of a session as long as runs
/// look.
#[tokio::test(start_paused = true)]
async fn a_budget_that_never_begins_anew_is_warned_of_once() {
    const MONTH: Duration = Duration::from_secs(31 * 86_400);
    for owner in [BudgetOwner::Key, BudgetOwner::Session] {
        let budget = Budget::used(owner, 3_190).await;
        let key = keys::warned(&budget.counter);
        let kept: Arc<Mutex<Vec<Option<Duration>>>> = Arc::default();
        let (mark, seen) = (key.clone(), kept.clone());
        let store = Faulty::new(budget.store.clone(), move |tx| {
            let marks = tx.writes.iter().filter_map(|write| match write {
                Write::Put { key, ttl, .. } if *key == mark => Some(*ttl),
                _ => None,
            });
            seen.lock().extend(marks);
            Fate::Happens
        });
        let agent = budget.agent_over(store);
        assert_eq!(budget.warnings(&agent).await.len(), 1, "{owner}");
        assert_eq!(budget.warnings(&agent).await.len(), 0, "{owner}");
        let is_session = owner == BudgetOwner::Session;
        assert_eq!(kept.lock().len(), 1, "{owner}");
        assert!(kept.lock()[0].is_none_or(|ttl| ttl > MONTH && is_session), "{owner}: {:?}", kept.lock());
        // As it would be two days later.
        let document = budget.store.get(&budget.partition, &key).await.unwrap().unwrap();
        let mut old: serde_json::Value = serde_json::from_slice(&document.value).unwrap();
        old["at_ms"] = (old["at_ms"].as_u64().unwrap() - 2 * 86_400_000).into();
        let put = Write::Put { key, value: encode(&old), ttl: None };
        budget.store.commit(Tx::new(budget.partition.clone()).write(put)).await.unwrap();
        assert_eq!(budget.warnings(&agent).await.len(), 0, "{owner}");
        assert_eq!(kept.lock().len(), 1 + usize::from(is_session), "{owner}");
    }
}
