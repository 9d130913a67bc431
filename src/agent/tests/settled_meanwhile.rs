//! Budgets of which a part is given back while a run looks how they stand.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::quota::{counter, keyed, memory, partition, quotas, tokens};
use super::support::{Say, TestAgent, outcome, watch};
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::limits::holds::Hold;
use crate::agent::session::NewSession;
use crate::agent::{NewRun, Quotas};
use crate::store::layer::StoreLayer;
use crate::store::{CommitError, Document, Key, Partition, Scan, Store, Tx, Unavailable, Write};
use crate::types::shortfall::BudgetKind;
use crate::types::{BudgetOwner, Event, Outcome, RunId, SessionId, StopReason, Tenant};

const LIMIT: u64 = 10_000;
/// What another run has reserved, and what is used once it has settled that.
const HELD: i64 = 9_900;
const USED: i64 = 150;

/// A store in which another run settles its reservation just before reservations are read, once it is armed, which it
/// may also be by a commit.
#[derive(Debug)]
struct SettlesMeanwhile {
    inner: Arc<dyn Store>,
    /// What makes the other run reserve, in a commit that puts this document.
    reserves: Mutex<Option<(Key, Tx)>>,
    settles: Mutex<Option<Tx>>,
}

#[async_trait]
impl StoreLayer for SettlesMeanwhile {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn on_commit(&self, tx: Tx) -> Result<(), CommitError> {
        let is_at = |at: &str, key: &Key| key.starts_with(keys::RESERVED) && key.ends_with(at);
        let puts = |at: &Key| tx.writes.iter().any(|write| matches!(write, Write::Put { key, .. } if is_at(at, key)));
        let reserves = self.reserves.lock().take_if(|(key, _)| puts(key));
        if let Some((_, reserves)) = reserves {
            self.inner.commit(reserves).await?;
        }
        self.inner.commit(tx).await
    }

    async fn on_scan(&self, partition: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        if scan.prefix == keys::RESERVED && self.reserves.lock().is_none() {
            let settles = self.settles.lock().take();
            if let Some(settles) = settles {
                self.inner.commit(settles).await.unwrap();
            }
        }
        self.inner.scan(partition, scan).await
    }
}

struct Budget {
    owner: BudgetOwner,
    agent: TestAgent,
    store: Arc<SettlesMeanwhile>,
    partition: Partition,
    counter: Key,
}

impl Budget {
    /// A budget of which another run has reserved nearly all, or reserves it in the commit that puts a document of such a
    /// key.
    async fn new(owner: BudgetOwner, at: Option<&str>, turns: Vec<Say>) -> Self {
        let (tenant, id) = (Tenant::default_tenant(), SessionId::parse("s").unwrap());
        let inner = memory();
        let store = Arc::new(SettlesMeanwhile { inner, reserves: Mutex::default(), settles: Mutex::default() });
        let of_key = owner == BudgetOwner::Key;
        let quotas = if of_key { quotas(tokens(LIMIT)) } else { Quotas::default() };
        let agent = TestAgent::builder().store(store.clone()).quotas(quotas).turns(turns).begin();
        let (partition, counter) = if of_key {
            (partition(), counter(BudgetKind::Tokens))
        } else {
            let new = NewSession { id: Some(id.clone()), token_budget: Some(LIMIT), ..NewSession::default() };
            agent.sessions().create(&tenant, new).await.unwrap();
            (keys::session_partition(&tenant, &id), keys::session_tokens())
        };
        let (key, add) =
            (keys::reserved(&RunId::mint(), 1), |delta| Write::Add { counter: counter.clone(), delta, ceiling: None });
        let hold = Hold { kind: BudgetKind::Tokens, counter: counter.clone(), amount: HELD.unsigned_abs() };
        let put = Write::Put { key: key.clone(), value: encode(&[hold]), ttl: None };
        let reserves = Tx::new(partition.clone()).write(put).write(add(HELD));
        let settles = Tx::new(partition.clone()).write(Write::Delete { key }).write(add(USED - HELD));
        match at {
            Some(at) => *store.reserves.lock() = Some((at.into(), reserves)),
            None => store.inner.commit(reserves).await.unwrap(),
        }
        *store.settles.lock() = Some(settles);
        Self { owner, agent, store, partition, counter }
    }

    fn request(&self) -> NewRun {
        NewRun { session: (self.owner == BudgetOwner::Session).then(|| SessionId::parse("s").unwrap()), ..keyed() }
    }

    /// How a run ends, which has to find that the other one settled.
    async fn run(&self) -> (Outcome, Vec<u64>) {
        let records = watch(self.agent.start(self.request(), None).await.unwrap()).await;
        let warned = records.iter().filter_map(|record| match record.event {
            Event::BudgetWarning { used, .. } => Some(used),
            _ => None,
        });
        self.agent.idle(Duration::from_secs(5)).await;
        (outcome(&records), warned.collect())
    }

    fn has_settled(&self) -> bool {
        self.store.settles.lock().is_none()
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_not_refused_for_what_is_given_back_while_it_is_looked_at() {
    for owner in [BudgetOwner::Key, BudgetOwner::Session] {
        let budget = Budget::new(owner, None, vec![Say::Text(&["hello"])]).await;
        assert_eq!(budget.run().await.0.reason, StopReason::Done, "{owner}");
        assert!(budget.has_settled(), "{owner}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_not_stopped_for_what_is_given_back_while_it_looks() {
    for (owner, at) in [(BudgetOwner::Key, "/2"), (BudgetOwner::Session, "/session")] {
        let turns = vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["hello"])];
        let budget = Budget::new(owner, Some(at), turns).await;
        let (ended, _) = budget.run().await;
        assert_eq!((ended.reason, ended.output_text.as_str()), (StopReason::Done, "hello"), "{owner}: {ended:?}");
        assert!(budget.has_settled(), "{owner}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_warning_is_given_for_what_is_given_back_while_it_is_looked_at() {
    for owner in [BudgetOwner::Key, BudgetOwner::Session] {
        let budget = Budget::new(owner, None, vec![Say::Text(&["hello"]); 3]).await;
        // Beside the reservation there is room for the run's own.
        let less = |delta| Write::Add { counter: budget.counter.clone(), delta, ceiling: None };
        let (taken, back) = (i64::try_from(LIMIT / 10).unwrap(), budget.store.settles.lock().take().unwrap());
        let commit = |delta| budget.store.inner.commit(Tx::new(budget.partition.clone()).write(less(delta)));
        commit(-taken).await.unwrap();
        *budget.store.settles.lock() = Some(back.write(less(taken)));
        let quotas = quotas(tokens(LIMIT));
        let id = SessionId::parse("s").unwrap();
        let session = (owner == BudgetOwner::Session).then_some(&id);
        let key = (owner == BudgetOwner::Key).then_some("web");
        assert_eq!(budget.run().await.1, Vec::<u64>::new(), "{owner}");
        assert!(budget.has_settled(), "{owner}");
        let states = budget.agent.limits().budgets(&Tenant::default_tenant(), key, session, &quotas).await.unwrap();
        let state = states.into_iter().find(|state| state.owner == owner).unwrap();
        let used = u64::try_from(USED).unwrap() + 15;
        assert_eq!((state.used, state.reserved), (used, 0), "{owner}");
        // The warning that is due is still given.
        commit(i64::try_from(LIMIT * 4 / 5 - used).unwrap()).await.unwrap();
        assert_eq!(budget.run().await.1, [LIMIT * 4 / 5 + 15], "{owner}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_shown_without_what_is_given_back_while_it_is_read() {
    let budget = Budget::new(BudgetOwner::Key, None, Vec::new()).await;
    let quotas = quotas(tokens(LIMIT));
    let limits = budget.agent.limits();
    let states = limits.budgets(&Tenant::default_tenant(), Some("web"), None, &quotas).await.unwrap();
    assert_eq!((states[0].used, states[0].reserved, budget.has_settled()), (USED.unsigned_abs(), 0, true));

    let budget = Budget::new(BudgetOwner::Key, None, Vec::new()).await;
    let left = budget.agent.limits().budgets_left(&Tenant::default_tenant(), Some("web"), None, &quotas).await.unwrap();
    assert_eq!((left[0].remaining, left[0].is_mostly_used), (LIMIT - USED.unsigned_abs(), false));
}
