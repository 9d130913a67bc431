//! Registrations of runs that no replica drives.

use super::*;

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
    assert!(driven.rooms.active.get(&kept).is_some());
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
    let _other = replica(Link::to(&store), vec![]);
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

/// A wake-up that comes late names a run as orphaned that is driven, and the run ends while a sweep takes it back.
#[tokio::test(start_paused = true)]
async fn a_run_that_ends_while_it_is_registered_again_is_not_registered_at_rest() {
    let store = shared();
    let faulty = Faulty::new(Link::to(&store), |_| Fate::Happens);
    let agent = TestAgent::builder().store(faulty.clone()).turns(vec![Say::Stall(&["x"])]).begin();
    let run = agent.start(request(), None).await.unwrap().head.id;
    let own = keys::live_entry(agent.replica().id(), &run);
    let registers = move |tx: &Tx| tx.writes.iter().any(|write| matches!(write, Write::Put { key, .. } if *key == own));
    faulty.next(registers, Fate::Hangs);
    agent.replica().enqueue(&run, &entry(Duration::ZERO)).await.unwrap();
    faulty.reached().await;
    agent.runs().cancel(&tenant(), &run).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(agent.rooms.active.get(&run).is_none(), "its driver has left it");
    faulty.go_on();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(scan(&store, "run/").await.len(), 0);
}

/// The same between the removal of the run's registration and the moment in which its driver has left it. The driver of a
/// run that has ended does not wait for the removal.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_registered_again_while_its_driver_leaves_is_not_registered_at_rest() {
    for (turn, waits) in [(Say::Calls("", vec![("pick", "{}")]), true), (Say::Text(&["done"]), false)] {
        let store = shared();
        let faulty = Faulty::new(Link::to(&store), |_| Fate::Happens);
        let agent = TestAgent::builder().store(faulty.clone()).turns(vec![turn]).begin();
        let new = NewRun { client_tools: vec![client_tool("pick")], ..request() };
        let run = new.id.clone();
        let own = keys::live_entry(agent.replica().id(), &run);
        let removes =
            move |tx: &Tx| tx.writes.iter().any(|write| matches!(write, Write::Delete { key } if *key == own));
        faulty.next(removes, Fate::HangsAfterwards);
        agent.start(new, None).await.unwrap();
        faulty.reached().await;
        assert_eq!(agent.rooms.active.get(&run).is_some(), waits, "whether its driver has not left it");
        agent.replica().enqueue(&run, &entry(Duration::ZERO)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        faulty.go_on();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(scan(&store, "run/").await.len(), 0, "waits: {waits}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_ordinary_runs_nothing_is_registered() {
    let store = shared();
    let replicas = [(); 2].map(|()| replica(Link::to(&store), vec![Say::Text(&["done"])]));
    let starts = (0..40).map(|number| {
        let session = (number % 3 > 0).then(|| SessionId::parse("s")).flatten();
        let new = NewRun { session, on_conflict: OnConflict::Enqueue, ..request() };
        let agent = replicas[number % 2].clone();
        async move { super::super::support::watch(agent.start(new, None).await.unwrap()).await }
    });
    futures_util::future::join_all(starts).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let left: Vec<_> = scan(&store, "run/").await.into_iter().map(|(key, _)| key).collect();
    assert_eq!(left, Vec::<String>::new());
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
