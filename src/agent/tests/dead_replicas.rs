mod registrations;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::link::Link;
use super::support::{RETENTION, Say, TestAgent, client_tool, request};
use crate::agent::control::Filter;
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::log;
use crate::agent::ledger::{commits, keys};
use crate::agent::ownership::lease::Leases;
use crate::agent::ownership::registry::{Registration, Replica};
use crate::agent::ownership::watch::Look;
use crate::agent::{Head, NewRun};
use crate::store::faulty::{Fate, Faulty};
use crate::store::layer::StoreLayer;
use crate::store::memory::MemoryStore;
use crate::store::{Check, Document, Order, Partition, Scan, Store, Tx, Unavailable, Write};
use crate::telemetry::metrics::LeaseLosses;
use crate::types::clock::now_ms;
use crate::types::run::OnConflict;
use crate::types::{Event, RunId, RunSpec, RunStatus, SessionId, Tenant};

fn tenant() -> Tenant {
    Tenant::default_tenant()
}

pub(super) fn shared() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

pub(super) fn replica(link: Arc<Link>, turns: Vec<Say>) -> TestAgent {
    TestAgent::builder().store(link).turns(turns).begin()
}

async fn scan(store: &Arc<dyn Store>, prefix: &str) -> Vec<(String, Document)> {
    let scan = Scan { prefix: prefix.to_owned(), after: None, limit: usize::MAX, order: Order::Ascending };
    store.scan(&keys::live_partition(), scan).await.unwrap()
}

/// How many runs are named as this replica's.
pub(super) async fn named(store: &Arc<dyn Store>, replica: &str) -> usize {
    scan(store, &keys::live_entries(replica)).await.len()
}

pub(super) async fn is_registered(store: &Arc<dyn Store>, replica: &str) -> bool {
    store.get(&keys::live_partition(), &keys::replica(replica)).await.unwrap().is_some()
}

/// An entry of a run that was named so long ago.
pub(super) fn entry(ago: Duration) -> Registration {
    let ago = u64::try_from(ago.as_millis()).unwrap();
    Registration { tenant: tenant(), session: None, since_ms: now_ms() - ago }
}

/// Names runs that do not exist as a dead replica's, and returns its name.
pub(super) async fn dead_with(store: &Arc<dyn Store>, runs: usize, entry: &Registration) -> String {
    let dead = Replica::new(store.clone());
    let registration = Write::Put { key: keys::replica(dead.id()), value: "".into(), ttl: None };
    store.commit(Tx::new(keys::live_partition()).write(registration)).await.unwrap();
    for _ in 0..runs {
        store.commit(dead.register_new(&RunId::mint(), entry)).await.unwrap();
    }
    dead.id().to_owned()
}

/// Lets a replica look at all others.
async fn look(replica: &Replica, leases: &Leases) -> Result<(), Unavailable> {
    replica.read_others().await?;
    replica.reap_dead_replicas(leases, Look::All).await
}

fn settles(tx: &Tx) -> bool {
    tx.partition == keys::live_partition() && tx.checks.iter().any(|check| matches!(check, Check::Fence { .. }))
}

#[tokio::test(start_paused = true)]
async fn one_replica_reaps_a_dead_replicas_runs_of_many_pages() {
    // One, a full page, full pages, and some more.
    for runs in [1, 128, 256, 300] {
        let store = shared();
        let dead = dead_with(&store, runs, &entry(Duration::ZERO)).await;
        let successors: Vec<Arc<dyn Store>> = vec![Link::to(&store), Link::to(&store), Link::to(&store)];
        let settled = successors.into_iter().map(|link| async move {
            look(&Replica::new(link.clone()), &Leases::new(link, LeaseLosses::default())).await.unwrap();
        });
        futures_util::future::join_all(settled).await;
        let orphans = scan(&store, &keys::live_entries(keys::ORPHANED)).await;
        assert_eq!((orphans.len(), named(&store, &dead).await), (runs, 0));
        assert!(orphans.iter().all(|(_, document)| document.version == 1), "each was moved once");
        assert!(!is_registered(&store, &dead).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_dies_while_reaping_is_followed_by_another() {
    for fate in [Fate::DiesBefore, Fate::DiesAfter] {
        let store = shared();
        let dead = dead_with(&store, 300, &entry(Duration::ZERO)).await;
        let second = AtomicUsize::new(0);
        let successor: Arc<dyn Store> = Faulty::new(store.clone(), move |tx| {
            let nth = if settles(tx) { second.fetch_add(1, Ordering::Relaxed) } else { 0 };
            if nth == 1 { fate } else { Fate::Happens }
        });
        let replica = Replica::new(successor.clone());
        let leases = Leases::new(successor, LeaseLosses::default());
        let settling = look(&replica, &leases);
        tokio::time::timeout(Duration::from_secs(1), settling).await.expect_err("the successor is dead");
        let next = Replica::new(store.clone());
        look(&next, &Leases::new(store.clone(), LeaseLosses::default())).await.unwrap();
        assert!(named(&store, &dead).await > 0, "{fate:?}: its successor may live");
        tokio::time::sleep(Duration::from_secs(10)).await;
        look(&next, &Leases::new(store.clone(), LeaseLosses::default())).await.unwrap();
        let orphans = named(&store, keys::ORPHANED).await;
        assert_eq!((orphans, named(&store, &dead).await), (300, 0), "{fate:?}");
        assert!(!is_registered(&store, &dead).await);
    }
}

#[tokio::test(start_paused = true)]
async fn each_run_of_a_dead_replica_is_resumed_by_exactly_one_other() {
    const RUNS: usize = 300;
    let store = shared();
    let way = Link::to(&store);
    let dead = replica(way.clone(), vec![Say::Stall(&["x"])]);
    for _ in 0..RUNS {
        dead.start(request(), None).await.unwrap();
    }
    let successors = [(); 2].map(|()| replica(Link::to(&store), vec![Say::Text(&["done"])]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(named(&store, dead.replica().id()).await, RUNS);
    way.cut(true);
    let since = Instant::now();
    while named(&store, dead.replica().id()).await + named(&store, keys::ORPHANED).await > 0
        || successors.iter().any(|successor| successor.active_runs() > 0)
    {
        assert!(since.elapsed() < Duration::from_secs(14), "some runs are not resumed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for successor in &successors {
        successor.idle(Duration::from_secs(5)).await;
    }
    let asked = successors.each_ref().map(|successor| successor.model.requests.lock().len());
    assert_eq!(asked[0] + asked[1], RUNS, "{asked:?}");
    assert!(asked.iter().all(|asked| *asked > 0), "both help: {asked:?}");
    let heads =
        successors[0].runs().list(&tenant(), &Filter { limit: 2 * RUNS, ..Filter::default() }).await.unwrap().found;
    assert_eq!(heads.len(), RUNS);
    for head in heads {
        assert_eq!(head.status, RunStatus::Completed);
        assert_eq!(resumptions(&store, &head.id).await, 1);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scan(&store, "run/").await.len(), 0, "nothing is left behind");
    assert!(!is_registered(&store, dead.replica().id()).await);
}

/// How often a run was resumed.
pub(super) async fn resumptions(store: &Arc<dyn Store>, run: &RunId) -> usize {
    let partition = keys::run_partition(&tenant(), None, run);
    let page = store.read_log(&partition, &keys::events(run), 0, 1_000).await.unwrap();
    let records = page.entries.iter().map(|entry| log::decode(entry).unwrap());
    records.filter(|record| matches!(record.event, Event::RunResumed { .. })).count()
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_was_presumed_dead_registers_its_runs_again() {
    let store = shared();
    let way = Link::to(&store);
    let a = replica(way.clone(), vec![Say::Stall(&["x"])]);
    let b = replica(Link::to(&store), vec![Say::Text(&["taken"])]);
    let name = a.replica().id().to_owned();
    let run = a.start(request(), None).await.unwrap().head.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // It can keep its run's lease, but not its own.
    way.cut_off(keys::live_partition());
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((named(&store, &name).await, named(&store, keys::ORPHANED).await), (0, 1), "its runs are orphaned");
    assert!(!is_registered(&store, &name).await);
    assert_eq!((a.active_runs(), b.active_runs()), (1, 0), "but its run goes on");
    way.cut(false);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((named(&store, &name).await, named(&store, keys::ORPHANED).await), (1, 0), "it took it back");
    assert!(is_registered(&store, &name).await);
    assert_eq!((a.active_runs(), resumptions(&store, &run).await), (1, 0));
    // Its new name holds: once it is dead, its run is found again.
    way.cut(true);
    tokio::time::sleep(Duration::from_secs(14)).await;
    let view = b.runs().get(&tenant(), &run).await.unwrap();
    assert_eq!((view.head.status, resumptions(&store, &run).await), (RunStatus::Completed, 1));
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_comes_back_leaves_runs_alone_that_were_taken_over() {
    let store = shared();
    let way = Link::to(&store);
    let a = replica(way.clone(), vec![Say::Stall(&["x"])]);
    let b = replica(Link::to(&store), vec![Say::Stall(&["y"])]);
    let (lost, name) = (a.start(request(), None).await.unwrap().head.id, a.replica().id().to_owned());
    tokio::time::sleep(Duration::from_secs(1)).await;
    way.cut(true);
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!((a.active_runs(), b.active_runs()), (0, 1));
    way.cut(false);
    // Long enough to compare its entries with its runs.
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!((a.active_runs(), b.active_runs(), resumptions(&store, &lost).await), (0, 1, 1));
    assert!(is_registered(&store, &name).await);
    assert_eq!(named(&store, &name).await, 0);
    assert_eq!((named(&store, b.replica().id()).await, scan(&store, "run/").await.len()), (1, 1));
    let new = a.start(request(), None).await.unwrap().head.id;
    assert_eq!(named(&store, &name).await, 1);
    for run in [lost, new] {
        assert_eq!(b.runs().cancel(&tenant(), &run).await.unwrap().head.status, RunStatus::Cancelled);
    }
}
