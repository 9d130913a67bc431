use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::link::Link;
use super::support::{RETENTION, Say, TestAgent, request};
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
            look(&Replica::new(link.clone()), &Leases::new(link)).await.unwrap();
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
        let leases = Leases::new(successor);
        let settling = look(&replica, &leases);
        tokio::time::timeout(Duration::from_secs(1), settling).await.expect_err("the successor is dead");
        let next = Replica::new(store.clone());
        look(&next, &Leases::new(store.clone())).await.unwrap();
        assert!(named(&store, &dead).await > 0, "{fate:?}: its successor may live");
        tokio::time::sleep(Duration::from_secs(10)).await;
        look(&next, &Leases::new(store.clone())).await.unwrap();
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

#[tokio::test(start_paused = true)]
async fn a_registration_whose_run_was_never_created_is_removed_after_a_minute() {
    let store = shared();
    dead_with(&store, 1, &entry(Duration::from_secs(61))).await;
    dead_with(&store, 1, &entry(Duration::from_secs(30))).await;
    let _agent = replica(Link::to(&store), vec![]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let left = scan(&store, "run/").await;
    assert_eq!(left.len(), 1, "the younger one may still come to be");
    let entry: Registration = decode(&left[0].1.value).unwrap();
    assert!(now_ms() - entry.since_ms < 40_000);
}

/// A run like this one.
async fn another(store: &Arc<dyn Store>, run: &RunId) -> RunSpec {
    let partition = keys::run_partition(&tenant(), None, run);
    let document = store.get(&partition, &keys::spec(run)).await.unwrap().unwrap();
    RunSpec { id: RunId::mint(), ..decode(&document.value).unwrap() }
}

/// How it is made.
fn made(spec: &RunSpec) -> Tx {
    let entries = vec![log::encode(&mut 0, now_ms(), Event::RunStarted).1];
    Tx::new(keys::partition_of(spec))
        .put_at(keys::spec(&spec.id), 0, encode(spec), None)
        .put_at(keys::head(&spec.id), 0, encode(&Head::new(spec)), None)
        .write(Write::Append { log: keys::events(&spec.id), after: 0, entries })
}

#[tokio::test(start_paused = true)]
async fn a_replica_orphans_registered_runs_that_it_does_not_drive() {
    let store = shared();
    let agent = replica(Link::to(&store), vec![]);
    let driven = replica(Link::to(&store), vec![Say::Stall(&["x"])]);
    let kept = driven.start(request(), None).await.unwrap().head.id;
    // It was made, then the one who made it was lost.
    let spec = another(&store, &kept).await;
    store.commit(made(&spec)).await.unwrap();
    store.commit(commits::run_entry(&spec, RETENTION)).await.unwrap();
    let (old, young) = (entry(Duration::from_secs(31)), RunId::mint());
    store.commit(agent.replica().register_new(&spec.id, &old)).await.unwrap();
    // This one is about to be made.
    store.commit(agent.replica().register_new(&young, &entry(Duration::ZERO))).await.unwrap();
    // This one is driven, however old its entry is.
    store.commit(driven.replica().register_new(&kept, &old)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(named(&store, agent.replica().id()).await, 2);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(resumptions(&store, &spec.id).await, 1, "somebody took it up");
    assert!(scan(&store, &keys::live_entry(agent.replica().id(), &young)).await.len() == 1, "it may still be made");
    assert!(driven.0.active.get(&kept).is_some());
    assert_eq!(resumptions(&store, &kept).await, 0);
    let its_name = keys::live_entry(driven.replica().id(), &kept);
    assert_eq!(scan(&store, &its_name).await.len(), 1);
}

/// A process that stands still while it begins a run: it has said so, and goes on long after others took it
/// for dead. Returns whether the run came to be, and how many entries lead to it.
async fn begun_by_a_dead_process(stops_at: impl Fn(&Tx) -> bool + Send + 'static) -> (bool, usize) {
    let store = shared();
    let faulty = Faulty::new(Link::to(&store), |_| Fate::Happens);
    // Nothing renews its leases: it stands still as a whole.
    let dead = TestAgent::builder().store(faulty.clone()).turns(vec![Say::Stall(&["x"])]).build();
    let new = request();
    let run = new.id.clone();
    faulty.next(stops_at, Fate::Hangs);
    let agent = dead.clone();
    let mut starting = JoinSet::new();
    starting.spawn(async move { agent.start(new, None).await });
    faulty.reached().await;
    let _heir = replica(Link::to(&store), vec![]);
    tokio::time::sleep(Duration::from_secs(15)).await;
    let orphan = keys::live_entry(keys::ORPHANED, &run);
    if store.get(&keys::live_partition(), &orphan).await.unwrap().is_some() {
        // A minute passes: it will not come to be.
        let old = Write::Put { key: orphan, value: encode(&entry(Duration::from_secs(61))), ttl: None };
        store.commit(Tx::new(keys::live_partition()).write(old)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(named(&store, keys::ORPHANED).await, 0, "it is forgotten");
    }
    faulty.go_on();
    let started = starting.join_next().await.unwrap().unwrap();
    let partition = keys::run_partition(&tenant(), None, &run);
    let exists = store.get(&partition, &keys::head(&run)).await.unwrap().is_some();
    assert_eq!(started.is_ok(), exists, "{started:?}");
    (exists, scan(&store, "run/").await.len())
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_registration_was_removed_is_not_created_unregistered() {
    let creates = |tx: &Tx| tx.writes.iter().any(|write| matches!(write, Write::Append { after: 0, .. }));
    assert_eq!(begun_by_a_dead_process(creates).await, (false, 0));
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_was_presumed_dead_registers_nothing_under_its_old_name() {
    let marks = |tx: &Tx| {
        tx.writes.iter().any(|write| {
            matches!(write, Write::Put { key, .. } if key.starts_with("run/")) && tx.partition == keys::live_partition()
        })
    };
    assert_eq!(begun_by_a_dead_process(marks).await, (false, 0));
}

/// The way of a replica behind whose back a run is made: after it first looked for it, and before it looks
/// again.
#[derive(Debug)]
struct Late {
    store: Arc<dyn Store>,
    made: Tx,
    looks: AtomicUsize,
}

#[async_trait]
impl StoreLayer for Late {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn pass(&self, place: Option<&Partition>) -> Result<(), Unavailable> {
        if place == Some(&self.made.partition) && self.looks.fetch_add(1, Ordering::Relaxed) == 1 {
            self.store.commit(self.made.clone()).await.unwrap();
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_created_while_its_registration_is_removed_is_resumed() {
    let store = shared();
    // It drives a run of its own only, and looks for no others.
    let other = TestAgent::builder().store(Link::to(&store)).turns(vec![Say::Stall(&["x"])]).build();
    let like = other.start(request(), None).await.unwrap().head.id;
    let spec = another(&store, &like).await;
    store.commit(commits::run_entry(&spec, RETENTION)).await.unwrap();
    let key = keys::live_entry(keys::ORPHANED, &spec.id);
    let old = Write::Put { key, value: encode(&entry(Duration::from_secs(61))), ttl: None };
    store.commit(Tx::new(keys::live_partition()).write(old)).await.unwrap();
    let late = Arc::new(Late { store: store.clone(), made: made(&spec), looks: AtomicUsize::new(0) });
    let agent = TestAgent::builder().store(late).turns(vec![Say::Text(&["done"])]).begin();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(agent.runs().get(&tenant(), &spec.id).await.unwrap().head.status, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_shuts_down_orphans_all_its_registered_runs() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Stall(&["x"])]);
    let name = a.replica().id().to_owned();
    let new = |on_conflict| NewRun { session: SessionId::parse("s"), on_conflict, ..request() };
    let live = a.start(new(OnConflict::Reject), None).await.unwrap().head.id;
    let waiting = a.start(new(OnConflict::Enqueue), None).await.unwrap().head.id;
    assert_eq!(named(&store, &name).await, 2);
    a.close().await;
    assert!(!is_registered(&store, &name).await);
    assert_eq!((named(&store, &name).await, named(&store, keys::ORPHANED).await), (0, 2));
    let b = replica(Link::to(&store), vec![Say::Text(&["done"])]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    for run in [live, waiting] {
        assert_eq!(b.runs().get(&tenant(), &run).await.unwrap().head.status, RunStatus::Completed);
    }
}
