use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::link::Link;
use super::support::{Say, TestAgent, outcome, request, shown, watch, with_options};
use crate::agent::NewRun;
use crate::agent::follow::active::Live;
use crate::agent::follow::tail::Tail;
use crate::agent::follow::{FollowError, Follower};
use crate::agent::ledger::keys;
use crate::llm::openai::messages::joined;
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::{Durability, Order, Store, Write};
use crate::types::run::OnDisconnect;
use crate::types::{Effect, Event, Message, Role, RunId, RunStatus, SessionId, StopReason, Tenant};

pub(super) struct Replica {
    pub(super) agent: TestAgent,
    pub(super) link: Arc<Link>,
}

/// A replica on this way to the store whose model plays `turns`.
pub(super) fn replica(link: Arc<Link>, turns: Vec<Say>) -> Replica {
    let agent = TestAgent::builder().store(link.clone()).turns(turns).begin();
    Replica { agent, link }
}

pub(super) fn shared() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

pub(super) fn tenant() -> Tenant {
    Tenant::default_tenant()
}

pub(super) async fn status(replica: &Replica, run: &RunId) -> RunStatus {
    replica.agent.runs().get(&tenant(), run).await.unwrap().head.status
}

/// Returns once the run is over, and how long that took.
pub(super) async fn over(replica: &Replica, run: &RunId) -> Duration {
    let since = Instant::now();
    while !status(replica, run).await.is_final() {
        assert!(since.elapsed() < Duration::from_secs(60), "the run does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    since.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_run_is_cancelled_from_a_replica_that_does_not_drive_it() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Stall(&["x"])]);
    let b = replica(Link::to(&store), vec![]);
    let run = a.agent.start(request(), None).await.unwrap().head.id;
    let since = Instant::now();
    let view = b.agent.runs().cancel(&tenant(), &run).await.unwrap();
    assert_eq!(view.head.status, RunStatus::Cancelled);
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    assert_eq!(b.agent.runs().cancel(&tenant(), &run).await.unwrap().head.status, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_run_under_way_names_the_replica_that_drives_it_whichever_is_asked() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Stall(&["x"])]);
    let b = replica(Link::to(&store), vec![]);
    let run = a.agent.start(request(), None).await.unwrap().head.id;
    for asked in [&a, &b] {
        let progress = asked.agent.runs().get(&tenant(), &run).await.unwrap().progress.unwrap();
        assert_eq!(progress.replica.as_deref(), Some(a.agent.replica().id()));
    }
    // What is known of the run does not depend on where it is registered.
    b.link.cut_off(keys::live_partition());
    let progress = b.agent.runs().get(&tenant(), &run).await.unwrap().progress.unwrap();
    assert_eq!((progress.step, progress.replica), (1, None));
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_whose_nudge_was_lost_only_takes_longer() {
    let store = shared();
    let a = replica(Link::deaf(&store), vec![Say::Stall(&["x"])]);
    let b = replica(Link::deaf(&store), vec![]);
    let run = a.agent.start(request(), None).await.unwrap().head.id;
    let since = Instant::now();
    assert_eq!(b.agent.runs().cancel(&tenant(), &run).await.unwrap().head.status, RunStatus::Cancelled);
    assert!(since.elapsed() <= Duration::from_millis(3_500), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_cut_off_stops_by_itself_and_another_resumes_its_run() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Calls("", vec![("echo", "{}")]), Say::Stall(&["lost"])]);
    let b = replica(Link::to(&store), vec![Say::Text(&["never"]), Say::Text(&["found"])]);
    let started = a.agent.start(request(), None).await.unwrap();
    let run = started.head.id.clone();
    tokio::time::sleep(Duration::from_secs(1)).await;
    a.link.cut(true);
    let took = over(&b, &run).await;
    assert!(took <= Duration::from_secs(12), "{took:?}");
    a.link.cut(false);
    let view = b.agent.runs().get(&tenant(), &run).await.unwrap().outcome.unwrap();
    assert_eq!((view.output_text.as_str(), view.tool_calls), ("found", 1));
    assert_eq!(b.agent.journal.lock().len(), 0, "the call before was not repeated");
    // The reader at the replica that was cut off saw it all, though from elsewhere.
    let records = watch(started).await;
    let numbers: Vec<u64> = records.iter().map(|record| record.seq).collect();
    assert_eq!(numbers, (1..=records.len() as u64).collect::<Vec<_>>());
    assert!(shown(&records).ends_with("found"));
    assert_eq!(a.agent.active_runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_short_silence_of_the_store_does_not_interrupt_a_run() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["done"])]);
    let started = a.agent.start(request(), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    a.link.cut(true);
    // The tool's timeout passes meanwhile, and its result must be recorded.
    tokio::time::sleep(Duration::from_secs(3)).await;
    a.link.cut(false);
    let records = watch(started).await;
    assert_eq!(outcome(&records).reason, StopReason::Done);
    assert!(!records.iter().any(|record| matches!(record.event, Event::RunResumed { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_drained_replica_hands_its_runs_over_before_their_next_step() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Calls("", vec![("hang", "{}")])]);
    let b = replica(Link::to(&store), vec![Say::Text(&["never"]), Say::Text(&["done"])]);
    let started = a.agent.start(request(), None).await.unwrap();
    let run = started.head.id.clone();
    let mut follower = started.follower.movable();
    tokio::time::sleep(Duration::from_secs(1)).await;
    a.agent.announce_end();
    let mut seen = 0;
    let left = loop {
        match follower.next().await {
            Ok(Some(records)) => seen = records.last().unwrap().seq,
            end => break end,
        }
    };
    assert!(matches!(left, Err(FollowError::Leaving)), "{left:?}");
    drop(follower);
    // The tool ran to its timeout and was not run again.
    assert!(over(&b, &run).await <= Duration::from_secs(1));
    let rest = b.agent.runs().follow(&tenant(), &run, seen).await.unwrap().follower.unwrap().available().await.unwrap();
    assert_eq!(rest[0].seq, seen + 1);
    let outcome = outcome(&rest.iter().map(|record| (**record).clone()).collect::<Vec<_>>());
    assert_eq!((outcome.output_text.as_str(), outcome.tool_calls, outcome.iterations), ("done", 1, 2));
    a.agent.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_first_step_that_is_left_before_its_call_costs_its_session_nothing() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Text(&["never"])]);
    let b = replica(Link::to(&store), vec![Say::Text(&["done"])]);
    a.agent.announce_end();
    let session = SessionId::parse("s").unwrap();
    let started = a.agent.start(NewRun { session: Some(session.clone()), ..request() }, None).await.unwrap();
    over(&b, &started.head.id).await;
    let run = b.agent.runs().get(&tenant(), &started.head.id).await.unwrap();
    let (outcome, asked) = (run.outcome.unwrap(), a.agent.model.requests.lock().len());
    assert_eq!((outcome.output_text.as_str(), asked), ("done", 0));
    let spent = store.counter(&keys::session_partition(&tenant(), &session), &keys::session_tokens()).await.unwrap();
    assert_eq!(u64::try_from(spent).unwrap(), outcome.usage.total());
}

/// Two replicas, a run of the first that ends without readers, and a reader at the second.
async fn read_elsewhere() -> (Replica, Replica, RunId, Follower) {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Stall(&["x"])]);
    let b = replica(Link::to(&store), vec![]);
    let new = with_options(|options| options.on_disconnect = OnDisconnect::Cancel);
    let run = a.agent.start(new, None).await.unwrap().head.id;
    let follower = b.agent.runs().follow(&tenant(), &run, 0).await.unwrap().follower.unwrap();
    (a, b, run, follower)
}

#[tokio::test(start_paused = true)]
async fn a_reader_at_another_replica_keeps_a_run_alive_until_it_leaves() {
    let (_a, b, run, mut follower) = read_elsewhere().await;
    let reading =
        tokio::time::timeout(Duration::from_secs(28), async { while let Ok(Some(_)) = follower.next().await {} });
    reading.await.expect_err("it is read for 28 s and does not end");
    assert_eq!(status(&b, &run).await, RunStatus::InProgress);
    drop(follower);
    // Long before its time is up.
    let took = over(&b, &run).await;
    assert!((10..=25).contains(&took.as_secs()), "{took:?}");
    assert_eq!(status(&b, &run).await, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_at_another_replica_still_counts() {
    let (_a, b, run, mut follower) = read_elsewhere().await;
    let caught_up = async { while let Ok(Some(_)) = follower.next().await {} };
    tokio::time::timeout(Duration::from_secs(1), caught_up).await.expect_err("the run goes on");
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(status(&b, &run).await, RunStatus::InProgress);
    drop(follower);
}

#[tokio::test(start_paused = true)]
async fn a_reader_is_announced_only_while_its_run_is_driven_elsewhere() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Stall(&["x"])]);
    let b = replica(Link::to(&store), vec![Say::Stall(&["y"])]);
    let run = a.agent.start(request(), None).await.unwrap().head.id;
    let mut follower = b.agent.runs().follow(&tenant(), &run, 0).await.unwrap().follower.unwrap();
    let mut reader = JoinSet::new();
    reader.spawn(async move { while let Ok(Some(_)) = follower.next().await {} });
    let partition = keys::run_partition(&tenant(), None, &run);
    let announced = async || store.get(&partition, &keys::reader(&run)).await.unwrap().is_some();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(announced().await);
    a.link.cut(true);
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert!(b.agent.active_runs() == 1, "it was taken over");
    assert!(!announced().await);
}

#[tokio::test(start_paused = true)]
async fn a_message_to_a_live_run_joins_before_its_next_model_call() {
    let store = shared();
    let turns = vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["first"]), Say::Text(&["second"])];
    let a = replica(Link::to(&store), turns);
    let b = replica(Link::to(&store), vec![]);
    let new = NewRun { session: SessionId::parse("s"), ..request() };
    let started = a.agent.start(new, None).await.unwrap();
    let run = started.head.id.clone();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let say = |text: &str| vec![Message::text(Role::User, text)];
    b.agent.runs().steer(&tenant(), &run, say("rather this"), None).await.unwrap();
    b.agent.runs().steer(&tenant(), &run, say("and that"), None).await.unwrap();
    assert_eq!(outcome(&watch(started).await).output_text, "first");
    let asked = joined(&a.agent.model.requests.lock().last().unwrap().conversation);
    assert!(
        asked.ends_with(r#"{"role":"user","content":"rather this"},{"role":"user","content":"and that"}"#),
        "{asked}"
    );
    let (messages, _) = b
        .agent
        .sessions()
        .messages(&tenant(), &SessionId::parse("s").unwrap(), 0, 100, Order::Ascending)
        .await
        .unwrap();
    assert_eq!(messages.len(), 6, "the session keeps what was said");
    let late = b.agent.runs().steer(&tenant(), &run, say("too late"), None).await;
    assert!(late.is_err_and(|error| error.to_string().contains("has ended")));
}

/// A process that stood still has the run's tail as it was then, while another has driven it to its end.
#[tokio::test(start_paused = true)]
async fn a_stale_tail_does_not_tell_a_reader_where_the_log_ends() {
    let store = shared();
    let frozen = replica(Link::to(&store), vec![]);
    let other = replica(Link::to(&store), vec![Say::Text(&["one ", "two"])]);
    let started = other.agent.start(request(), None).await.unwrap();
    let run = started.head.id.clone();
    let records = watch(started).await;
    let last = records.last().unwrap().seq;
    let tail = Arc::<Tail>::default();
    tail.push(records[..2].iter().cloned().map(|record| (Arc::new(record), 1)));
    let live = Live { tenant: tenant(), tail, cancel: CancellationToken::new(), left: CancellationToken::new() };
    frozen.agent.rooms.active.insert(run.clone(), live);
    for seen in 1..last {
        let following = frozen.agent.runs().follow(&tenant(), &run, seen).await;
        assert!(following.unwrap().follower.is_some(), "there is more after event {seen} of {last}");
    }
    assert!(frozen.agent.runs().follow(&tenant(), &run, last).await.unwrap().follower.is_none());
}

/// Starts a run on `a` and cancels it through `b`: just before its first tool is stopped, which is after five seconds,
/// and before the lease is renewed, which is after six.
async fn cancelled_during_a_tool(a: &Replica, b: &Replica) -> RunStatus {
    let started = a.agent.start(request(), None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(4_900)).await;
    let (canceller, run) = (b.agent.clone(), started.head.id.clone());
    let mut cancelling = JoinSet::new();
    cancelling.spawn(async move { canceller.runs().cancel(&tenant(), &run).await.unwrap() });
    outcome(&watch(started).await).status()
}

#[tokio::test(start_paused = true)]
async fn no_tool_begins_after_a_cancellation_is_committed_though_its_nudge_was_lost() {
    let store = shared();
    let link = Link::deaf(&store);
    let turns = vec![Say::Calls("", vec![("hang", "{}"), ("echo", r#"{"n":1}"#)])];
    let agent = TestAgent::builder().store(link.clone()).turns(turns).echo(Effect::Write).begin();
    let a = Replica { agent, link };
    let b = replica(Link::deaf(&store), vec![]);
    assert_eq!(cancelled_during_a_tool(&a, &b).await, RunStatus::Cancelled);
    assert!(a.agent.journal.lock().is_empty(), "the second one was not called");
}

#[tokio::test(start_paused = true)]
async fn no_model_call_begins_after_a_cancellation_is_committed_though_its_nudge_was_lost() {
    let store = shared();
    let a = replica(Link::deaf(&store), vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["done"])]);
    let b = replica(Link::deaf(&store), vec![]);
    assert_eq!(cancelled_during_a_tool(&a, &b).await, RunStatus::Cancelled);
    assert_eq!(a.agent.model.requests.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn tools_are_given_a_higher_fence_after_each_takeover() {
    let store = shared();
    let turns = vec![Say::Calls("", vec![("hang", "{}")])];
    let replicas = [(); 3].map(|()| TestAgent::builder().store(Link::to(&store)).turns(turns.clone()).build());
    let run = replicas[0].start(request(), None).await.unwrap().head.id;
    for (left, replica) in replicas.iter().enumerate() {
        if left > 0 {
            replica.begin();
        }
        let since = Instant::now();
        while replica.fences.lock().is_empty() {
            assert!(since.elapsed() < Duration::from_secs(3), "it is not called by {left}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        replica.close().await;
    }
    let fences: Vec<u64> = replicas.iter().flat_map(|replica| replica.fences.lock().clone()).collect();
    assert_eq!(fences.len(), 3);
    assert!(fences.is_sorted_by(|before, after| before < after), "{fences:?}");
    assert_eq!(replicas[2].runs().get(&tenant(), &run).await.unwrap().head.status, RunStatus::InProgress);
}

/// A machine's death loses what was only written; where others go on, they would write something else under
/// the numbers that were shown.
#[tokio::test(start_paused = true)]
async fn on_a_shared_store_text_is_durable_before_it_is_shown() {
    for is_shared in [true, false] {
        let store: Arc<dyn Store> = if is_shared { Link::to(&shared()) } else { shared() };
        let written = Arc::new(AtomicUsize::new(0));
        let (counter, mut first) = (written.clone(), true);
        let faulty = Faulty::new(store, move |tx| {
            let appends = tx.writes.iter().any(|write| matches!(write, Write::Append { .. }));
            counter.fetch_add(usize::from(appends && tx.durability == Durability::Written), Ordering::Relaxed);
            let is_text = |entry: &bytes::Bytes| String::from_utf8_lossy(entry).contains("hidden");
            let has_text = tx
                .writes
                .iter()
                .any(|write| matches!(write, Write::Append { entries, .. } if entries.iter().any(is_text)));
            if has_text && std::mem::take(&mut first) { Fate::Hangs } else { Fate::Happens }
        });
        let agent = TestAgent::builder().store(faulty.clone()).turns(vec![Say::Text(&["hidden", " text"])]).build();
        let mut started = agent.start(request(), None).await.unwrap();
        faulty.reached().await;
        let mut seen = Vec::new();
        let read = async {
            while let Some(page) = started.follower.next().await.unwrap() {
                seen.extend(page.iter().map(|record| (**record).clone()));
            }
        };
        tokio::time::timeout(Duration::from_secs(5), read).await.expect_err("it is being recorded");
        assert_eq!(shown(&seen), "");
        faulty.go_on();
        assert_eq!(shown(&watch(started).await), "hidden text");
        assert_eq!(written.load(Ordering::Relaxed) == 0, is_shared);
    }
}
