//! The rows of usage: how many are stored, and that no sum is lost when they are forgotten, full or fall behind.

use std::sync::Arc;
use std::time::Duration;

use super::support::{RETENTION, Say, TestAgent, outcome, request, watch};
use crate::agent::ledger::document::encode;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::usage::CountedRun;
use crate::agent::usage::report::{GroupBy, UsageQuery};
use crate::agent::usage::row::{Day, Marker, OTHER, Totals};
use crate::agent::{Requester, Retention};
use crate::store::faulty::{Fate, Faulty};
use crate::store::layer::StoreLayer;
use crate::store::memory::MemoryStore;
use crate::store::{Document, Durability, Order, Scan, Store, Tx, Write};
use crate::types::clock::now_ms;
use crate::types::{Outcome, RunId, Tenant};

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

fn counts(tx: &Tx) -> bool {
    tx.writes.iter().any(|write| matches!(write, Write::Put { key, .. } if key.starts_with("counted/")))
}

/// A run that ended, from which others are made.
struct Pattern {
    head: Head,
    ended: Outcome,
}

impl Pattern {
    async fn of(agent: &TestAgent) -> Self {
        let started = agent.start(request(), None).await.unwrap();
        let id = started.head.id.clone();
        let ended = outcome(&watch(started).await);
        agent.idle(Duration::from_secs(5)).await;
        Self { head: agent.runs().get(&tenant(), &id).await.unwrap().head, ended }
    }

    /// Another run, of this user, which ended at a moment.
    fn run(&self, user: &str, at_ms: u64) -> CountedRun {
        let user = Some(user.to_owned());
        let head = Head { id: RunId::mint(), user, ended_ms: Some(at_ms), ..self.head.clone() };
        CountedRun::found(&head, Some(&self.ended), at_ms)
    }

    fn times(&self, runs: u64) -> Totals {
        let mut sum = Totals::default();
        for _ in 0..runs {
            sum += Totals::of_run(&self.ended.usage, self.ended.cost);
        }
        sum
    }
}

/// All rows that are stored of a tenant.
async fn rows(store: &dyn Store, tenant: &Tenant) -> Vec<(String, Document)> {
    let scan = Scan { prefix: keys::USAGE.to_owned(), after: None, limit: 10_000, order: Order::Ascending };
    store.scan(&keys::tenant_partition(tenant), scan).await.unwrap()
}

fn query(group_by: &[GroupBy]) -> UsageQuery {
    let today = Day::of(now_ms());
    UsageQuery {
        from: today.before(19),
        to: today,
        group_by: group_by.to_vec(),
        only: Vec::new(),
        after: None,
        limit: 1_000,
    }
}

async fn sums(agent: &TestAgent, group_by: &[GroupBy]) -> Vec<(Vec<Option<String>>, Totals)> {
    agent.usage().report(Requester::from(&tenant()), &query(group_by)).await.unwrap().groups
}

async fn all(agent: &TestAgent) -> Totals {
    sums(agent, &[]).await.first().map(|(_, totals)| *totals).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_forgotten_is_not_begun_again() {
    const TENANTS: usize = 1_100;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).build();
    let pattern = Pattern::of(&agent).await;
    let named = |number: usize| Tenant::parse(&format!("t{number}")).unwrap();
    for _ in 0..3 {
        for number in 0..TENANTS {
            agent.usage().count(&named(number), pattern.run("ann", now_ms())).await.unwrap();
        }
    }
    for number in [0, 500, TENANTS - 1] {
        assert_eq!(rows(&*store, &named(number)).await.len(), 1);
        let (tenant, query) = (named(number), query(&[]));
        let page = agent.usage().report(Requester::from(&tenant), &query).await.unwrap();
        assert_eq!(page.groups[0].1, pattern.times(3));
    }
    assert_eq!(agent.usage().rows_at_hand(), 1_024, "those that were counted last are at hand");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_now_and_then_makes_no_other_rows() {
    let store = Faulty::memory();
    let agent = TestAgent::builder().store(store.clone()).build();
    let pattern = Pattern::of(&agent).await;
    let mut runs = 1;
    for fate in [Fate::Fails, Fate::FailsAfterwards, Fate::Fails, Fate::FailsAfterwards] {
        let run = pattern.run("ann", now_ms());
        store.next(counts, fate);
        agent.usage().count(&tenant(), run.clone()).await.unwrap_err();
        agent.usage().count(&tenant(), run).await.unwrap();
        runs += 1;
    }
    assert_eq!(all(&agent).await, pattern.times(runs));
    assert_eq!(rows(&*store, &tenant()).await.len(), 2, "one of the first run, which named no user, and one");
}

#[tokio::test(start_paused = true)]
async fn days_that_are_full_are_counted_together() {
    for usage_rows in 1..4 {
        let agent = TestAgent::builder().retention(Retention { usage_rows, ..RETENTION }).build();
        let pattern = Pattern::of(&agent).await;
        let (now, mut counted) = (now_ms(), 1);
        for round in 0..3 {
            let runs: Vec<_> = (0..48_u64)
                .map(|number| pattern.run(&format!("{round} {number}"), now - number % 12 * 86_400_000))
                .collect();
            counted += runs.len() as u64;
            agent.usage().count_all(&tenant(), runs).await.unwrap();
            assert_eq!(all(&agent).await, pattern.times(counted), "{usage_rows}");
        }
        let by_day = sums(&agent, &[GroupBy::Day]).await;
        assert_eq!(by_day.iter().map(|(_, totals)| totals.runs).collect::<Vec<_>>(), [vec![12; 11], vec![13]].concat());
    }
}

/// A run whose counting fails keeps no other run from being counted and unregistered.
#[tokio::test(start_paused = true)]
async fn runs_that_cannot_be_counted_together_are_counted_one_by_one() {
    let store = Faulty::memory();
    let agent = TestAgent::builder().store(store.clone()).build();
    let pattern = Pattern::of(&agent).await;
    let (inner, watched) = (pattern.run("ann", now_ms()), pattern.run("bob", now_ms()));
    let marker = keys::usage_counted(inner.id());
    // Another process counts the one of them again and again, each time a little more.
    let partition = keys::tenant_partition(&tenant());
    let contended = {
        let (marker, store) = (marker.clone(), store.clone());
        move |tx: &Tx| {
            let puts = tx.writes.iter().any(|write| matches!(write, Write::Put { key, .. } if *key == marker));
            if puts {
                let put = Write::Put { key: marker.clone(), value: encode(&Marker::default()), ttl: None };
                let inner = store.inner();
                futures_util::FutureExt::now_or_never(inner.commit(Tx::new(partition.clone()).write(put)));
            }
            Fate::Happens
        }
    };
    store.follow(contended);
    let results = agent.usage().count_each(&tenant(), [inner, watched]).await;
    assert!(results[0].is_err() && results[1].is_ok(), "{results:?}");
    assert_eq!(all(&agent).await, pattern.times(2));
}

/// A failover may forget a commit that was confirmed, while this process has its rows at hand.
#[tokio::test(start_paused = true)]
async fn what_a_store_forgets_is_counted_again_and_once() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).build();
    let pattern = Pattern::of(&agent).await;
    let partition = keys::tenant_partition(&tenant());
    let (first, second) = (pattern.run("ann", now_ms()), pattern.run("ann", now_ms()));
    agent.usage().count(&tenant(), first).await.unwrap();
    let before = rows(&*store, &tenant()).await;
    agent.usage().count(&tenant(), second.clone()).await.unwrap();
    // The last commit is undone, with its row's version.
    let mut undo = Tx::new(partition.clone()).write(Write::Delete { key: keys::usage_counted(second.id()) });
    for (key, _) in &before {
        undo = undo.write(Write::Delete { key: key.as_str().into() });
    }
    store.commit(undo).await.unwrap();
    for (key, document) in &before {
        let put = Write::Put { key: key.as_str().into(), value: document.value.clone(), ttl: None };
        store.commit(Tx::new(partition.clone()).write(put)).await.unwrap();
    }
    assert_eq!(all(&agent).await, pattern.times(2));
    agent.usage().count(&tenant(), second.clone()).await.unwrap();
    assert_eq!(all(&agent).await, pattern.times(3));
    agent.usage().count(&tenant(), second).await.unwrap();
    assert_eq!(all(&agent).await, pattern.times(3));
}

/// A store that other processes share.
#[derive(Debug)]
struct Shared(Arc<Faulty>);

impl StoreLayer for Shared {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn has_others(&self) -> bool {
        true
    }
}

/// Its registration may lie on another server, which keeps it removed.
#[tokio::test(start_paused = true)]
async fn a_run_is_unregistered_from_a_shared_store_once_its_count_lasts() {
    for is_shared in [true, false] {
        let seen: Arc<parking_lot::Mutex<Vec<Durability>>> = Arc::default();
        let written = seen.clone();
        let faulty = Faulty::new(Arc::new(MemoryStore::default()), move |tx| {
            written.lock().extend(counts(tx).then_some(tx.durability));
            Fate::Happens
        });
        let store: Arc<dyn Store> = if is_shared { Arc::new(Shared(faulty)) } else { faulty };
        Pattern::of(&TestAgent::builder().store(store).turns(vec![Say::Text(&["hello"])]).build()).await;
        let expected = if is_shared { Durability::Synced } else { Durability::Written };
        assert_eq!(*seen.lock(), [expected]);
    }
}

/// However full a day is, keys that may use some agents read what these agents used.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_bound_to_agents_sees_all_that_they_used() {
    let agent = TestAgent::builder().retention(Retention { usage_rows: 1, ..RETENTION }).build();
    let pattern = Pattern::of(&agent).await;
    for number in 0..9 {
        // Rows that name a model have no room soon.
        let called_model = format!("scripted/m{number}");
        let head = Head { id: RunId::mint(), called_model, ..pattern.head.clone() };
        let run = CountedRun::found(&head, Some(&pattern.ended), now_ms());
        agent.usage().count(&tenant(), run).await.unwrap();
    }
    let (default, agents) = (tenant(), ["default".to_owned()]);
    let bound = Requester { tenant: &default, agents: Some(&agents) };
    let page = agent.usage().report(bound, &query(&[])).await.unwrap();
    assert_eq!(page.groups, [(vec![], pattern.times(10))]);
    let models: Vec<_> = sums(&agent, &[GroupBy::Model]).await.into_iter().map(|(group, _)| group[0].clone()).collect();
    assert!(models.contains(&Some(OTHER.to_owned())), "{models:?}");
}
