//! Whatever the order of decisions, repetitions and expiries, and whichever replicas die where: an approved call is made
//! once at most, a denied one never, and each call has one result before the next model call. That is also what the
//! scripted model asserts of each request.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::types::run::OnUnknownOutcome;

/// How long a process that does not answer is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between sweeps of the index of what is due.
const SWEEPS_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
enum Happens {
    /// A process is told a decision about some of the calls, by their places.
    Decided { process: usize, calls: Vec<usize>, decision: ApprovalDecision },
    /// A process finds that the time is up.
    Expired { process: usize },
}

fn happens() -> impl Strategy<Value = Happens> {
    let decisions =
        prop_oneof![Just(ApprovalDecision::Approve), Just(ApprovalDecision::Deny), Just(ApprovalDecision::Skip)];
    prop_oneof![
        6 => (0..3_usize, vec(0..3_usize, 1..3), decisions)
            .prop_map(|(process, calls, decision)| Happens::Decided { process, calls, decision }),
        1 => (0..3_usize).prop_map(|process| Happens::Expired { process }),
    ]
}

fn deaths() -> impl Strategy<Value = Option<(usize, Fate)>> {
    let fate = prop_oneof![Just(Fate::DiesBefore), Just(Fate::DiesAfter), Just(Fate::FailsAfterwards)];
    prop_oneof![1 => Just(None), 3 => (1..14_usize, fate).prop_map(Some)]
}

/// A process over the same store as others, one of whose commits has this fate.
fn process(store: &Arc<dyn Store>, death: Option<(usize, Fate)>) -> TestAgent {
    let count = AtomicUsize::new(0);
    let store = Faulty::new(Link::to(store), move |_| {
        let nth = count.fetch_add(1, Ordering::Relaxed) + 1;
        death.filter(|(at, _)| *at == nth).map_or(Fate::Happens, |(_, fate)| fate)
    });
    let calls = vec![("echo", ONE), ("echo", TWO), ("echo", r#"{"n":3}"#)];
    replica(&(store as Arc<dyn Store>), vec![Say::Calls("", calls), Say::Text(&["done"])])
}

async fn plays(deaths: Vec<Option<(usize, Fate)>>, plan: Vec<Happens>) {
    let store = shared();
    let survivor = process(&store, None);
    let processes: Vec<_> = deaths.into_iter().map(|death| process(&store, death)).collect();
    // The third call needs no approval.
    let asked = |n: &str| Rule { arguments: [("n".to_owned(), vec![n.to_owned()])].into(), ..Rule::of("echo") };
    let layer = Layer { ask: vec![asked("1"), asked("2")], ..Layer::default() };
    let mut new = NewRun { policy: Some(Arc::new(layer)), ..request() };
    new.options.on_unknown_outcome = OnUnknownOutcome::TellModel;
    new.options.on_disconnect = OnDisconnect::Continue;
    let run = new.id.clone();
    let _ = tokio::time::timeout(PATIENCE, processes[0].start(new, None)).await;
    let ids: Vec<_> = (1..=3).map(|number| run.call(number)).collect();
    for what in plan {
        if !settles(&survivor, &run).await {
            break;
        }
        let one = async {
            match &what {
                Happens::Decided { process, calls, decision: decided } => {
                    let mut calls = calls.clone();
                    calls.sort_unstable();
                    calls.dedup();
                    let approvals = calls.iter().map(|place| decision(&ids[*place], *decided)).collect();
                    if let Ok(started) = processes[*process].start(deciding(&run, approvals), None).await {
                        drop(started);
                    }
                }
                Happens::Expired { process } => {
                    let _ = processes[*process].rooms.recovery.do_what_is_due(u64::MAX).await;
                }
            }
        };
        let _ = tokio::time::timeout(PATIENCE, one).await;
    }
    for attempt in 0.. {
        if !settles(&survivor, &run).await {
            break;
        }
        assert!(attempt < 10, "the run waits on after its time");
        // A process that died holds the lease of the run until that runs out.
        tokio::time::sleep(SWEEPS_EVERY).await;
        survivor.rooms.recovery.do_what_is_due(u64::MAX).await.unwrap();
    }
    let journals = processes.iter().chain([&survivor]).flat_map(|process| process.journal.lock().clone());
    check(&store, &run, &journals.collect::<Vec<_>>()).await;
}

/// Waits until nothing is under way; whether the run waits. A run that was never created does not.
async fn settles(survivor: &TestAgent, run: &RunId) -> bool {
    for _ in 0..1_000 {
        match survivor.runs().get(&Tenant::default_tenant(), run).await {
            Ok(view) if view.head.status == RunStatus::RequiresAction => return true,
            Ok(view) if view.head.status.is_final() => return false,
            Err(_) => return false,
            Ok(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
    panic!("the run is neither resumed nor ended");
}

/// Compares what the tool did with what the log says.
async fn check(store: &Arc<dyn Store>, run: &RunId, journal: &[String]) {
    let partition = keys::run_partition(&Tenant::default_tenant(), None, run);
    let page = store.read_log(&partition, &keys::events(run), 0, 10_000).await.unwrap();
    let (mut decided, mut finished) = (BTreeMap::new(), BTreeMap::<CallId, u32>::new());
    for entry in &page.entries {
        match log::decode(entry).unwrap().event {
            Event::ApprovalResolved(approval) => {
                assert!(decided.insert(approval.call_id.clone(), approval.decision).is_none(), "decided twice");
            }
            Event::ToolFinished { call_id, .. } => *finished.entry(call_id).or_default() += 1,
            _ => {}
        }
    }
    if page.entries.is_empty() {
        assert!(journal.is_empty());
        return;
    }
    for (number, arguments) in [(1, ONE), (2, TWO), (3, r#"{"n":3}"#)] {
        let id = run.call(number);
        let made = journal.iter().filter(|made| made.as_str() == arguments).count();
        let may_be_made = number == 3 || decided.get(&id) == Some(&ApprovalDecision::Approve);
        assert!(made <= usize::from(may_be_made), "the call {number} was made {made} times: {decided:?}");
        assert_eq!(finished.get(&id), Some(&1), "the call {number} has one result");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn an_approved_call_is_made_once_at_most_and_a_denied_one_never(
        deaths in vec(deaths(), 3),
        plan in vec(happens(), 0..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(plays(deaths, plan));
    }
}
