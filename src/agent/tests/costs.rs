//! What a run costs, counted: how often it asks the store. More is a price that every run pays, so it should be
//! worth it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use super::support::{Echo, Say, TestAgent, outcome, request, watch, with_options};
use crate::agent::request::NewRun;
use crate::store::layer::StoreLayer;
use crate::store::memory::MemoryStore;
use crate::store::{CommitError, Document, Partition, Scan, Store, Tx, Unavailable, Write};
use crate::tools::{Tool, builtin};
use crate::types::{Effect, Event, StopReason};

/// Counts operations, those of them that are commits, and the bytes that commits append to logs.
#[derive(Debug, Default)]
struct Counted {
    inner: MemoryStore,
    asked: AtomicU32,
    commits: AtomicU32,
    appended: AtomicUsize,
}

#[async_trait]
impl StoreLayer for Counted {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn pass(&self, _partition: Option<&Partition>) -> Result<(), Unavailable> {
        self.asked.fetch_add(1, Relaxed);
        Ok(())
    }

    async fn on_commit(&self, tx: Tx) -> Result<(), CommitError> {
        self.commits.fetch_add(1, Relaxed);
        for write in &tx.writes {
            if let Write::Append { entries, .. } = write {
                self.appended.fetch_add(entries.iter().map(bytes_without_times).sum(), Relaxed);
            }
        }
        self.inner.commit(tx).await
    }
}

/// The bytes of an entry but for the digits of times and durations, of which the machine decides how many there are.
fn bytes_without_times(entry: &Bytes) -> usize {
    let text = std::str::from_utf8(entry).unwrap();
    let digits = |rest: &str| rest.bytes().take_while(u8::is_ascii_digit).count();
    text.len() - text.split("ms\":").skip(1).map(digits).sum::<usize>()
}

/// What a run takes in which the model speaks like this, if its text is streamed or not: operations, those of them that
/// are commits, and bytes of its log, without times.
async fn cost_of(turns: Vec<Say>, streamed: bool) -> (u32, u32, usize) {
    let store = Arc::new(Counted::default());
    let tools: Vec<Arc<dyn Tool>> =
        builtin::all().into_iter().chain([Arc::new(Echo::new("echo", Effect::Read, 1_000)) as _]).collect();
    let agent = TestAgent::builder().store(store.clone()).tools(tools).turns(turns).build();
    let counted = || (store.asked.load(Relaxed), store.commits.load(Relaxed), store.appended.load(Relaxed));
    let mut before = counted();
    // The first joins the replica to the others, once.
    for _ in 0..2 {
        before = counted();
        let mut started = agent.start(request(), None).await.unwrap();
        if !streamed {
            started.follower = started.follower.waiting_for_the_end();
        }
        let records = watch(started).await;
        assert_eq!(outcome(&records).reason, StopReason::Done);
        agent.idle(Duration::from_secs(5)).await;
    }
    let after = counted();
    (after.0 - before.0, after.1 - before.1, after.2 - before.2)
}

#[tokio::test(start_paused = true)]
async fn a_run_asks_the_store_only_so_often_and_leaves_only_so_many_bytes_in_its_log() {
    let call = || Say::Calls("", vec![("echo", r#"{"n":1}"#)]);
    for (streamed, costs) in [(true, ((8, 7, 1_091), (11, 10, 4_600))), (false, ((7, 6, 1_091), (10, 9, 4_600)))] {
        let chat = cost_of(vec![Say::Text(&["hello"])], streamed).await;
        let looped = cost_of(vec![call(), call(), call(), Say::Text(&["hello"])], streamed).await;
        let what = "operations, commits and bytes of an answer, and of three calls and an answer";
        assert_eq!((chat, looped), costs, "{what}, streamed: {streamed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_only_computes_is_stored_with_its_answer() {
    let sum = |sum| Say::Calls("", vec![("calculator", sum)]);
    let sums = [r#"{"expression":"1+1"}"#, r#"{"expression":"1+2"}"#, r#"{"expression":"1+3"}"#].map(sum);
    let turns: Vec<_> = sums.into_iter().chain([Say::Text(&["hello"])]).collect();
    let (asked, commits, _) = cost_of(turns, true).await;
    assert_eq!((asked, commits), (11, 10), "operations and commits of three calls and an answer");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_ended_counts_as_queued_no_more() {
    let agent = TestAgent::builder().build();
    watch(agent.start(request(), None).await.unwrap()).await;
    while agent.active_runs() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(agent.replica().own_entries().await.unwrap().len(), 1, "it is not counted yet");
    agent.rooms.recovery.reconcile().await.unwrap();
    assert_eq!(agent.figures().queued_runs, 0);
    agent.idle(Duration::from_secs(5)).await;
    assert_eq!(agent.replica().own_entries().await.unwrap().len(), 0);
}

/// A store whose first scan after this is set takes three seconds.
#[derive(Debug, Default)]
struct ScansSlowly {
    inner: MemoryStore,
    is_slow: AtomicBool,
}

#[async_trait]
impl StoreLayer for ScansSlowly {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn on_scan(&self, partition: &Partition, scan: Scan) -> Result<Vec<(String, Document)>, Unavailable> {
        let found = self.inner.scan(partition, scan).await;
        if self.is_slow.swap(false, Relaxed) {
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        found
    }
}

/// A run may end and be counted while its replica looks at what is registered.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_unregistered_during_the_look_counts_as_queued_no_more() {
    let store = Arc::new(ScansSlowly::default());
    let agent = TestAgent::builder().store(store.clone()).build();
    watch(agent.start(request(), None).await.unwrap()).await;
    store.is_slow.store(true, Relaxed);
    agent.rooms.recovery.reconcile().await.unwrap();
    assert!(!store.is_slow.load(Relaxed), "it has looked");
    assert_eq!(agent.replica().own_entries().await.unwrap().len(), 0, "the run left meanwhile");
    assert_eq!(agent.figures().queued_runs, 0);
}

#[tokio::test(start_paused = true)]
async fn a_model_is_asked_for_one_piece_where_all_readers_wait_for_the_end() {
    for waits_for_the_end in [true, false] {
        let turns = vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["hello"])];
        let agent = TestAgent::builder().turns(turns).build();
        let started = agent.start(NewRun { waits_for_the_end, ..request() }, None).await.unwrap();
        assert_eq!(outcome(&watch(started).await).output_text, "hello");
        let asked: Vec<_> = agent.model.requests.lock().iter().map(|request| request.in_one_piece).collect();
        assert_eq!(asked, [waits_for_the_end; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn text_is_recorded_at_once_for_readers_that_stream_and_once_a_second_for_those_that_wait() {
    for (streams, waits) in [(true, Duration::ZERO), (false, Duration::from_secs(1))] {
        let turns = vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)]), Say::Stall(&["hello"])];
        let agent = TestAgent::builder().turns(turns).build();
        let follower = agent.start(request(), None).await.unwrap().follower;
        let mut follower = if streams { follower } else { follower.waiting_for_the_end() };
        let begun = Instant::now();
        let mut shown = String::new();
        while shown.is_empty() {
            for record in follower.next().await.unwrap().expect("the run goes on") {
                if let Event::TextDelta { text, .. } = &record.event {
                    shown.push_str(text);
                }
            }
        }
        assert_eq!((shown.as_str(), begun.elapsed().as_secs()), ("hello", waits.as_secs()), "it streams: {streams}");
        assert!(begun.elapsed() < waits + Duration::from_millis(50), "{:?}", begun.elapsed());
    }
}

/// A model that streams arguments faster than they are recorded: all that waits is recorded at once.
#[tokio::test(start_paused = true)]
async fn streamed_arguments_and_the_text_behind_them_are_shown_as_they_come() {
    const TOOK: Duration = Duration::from_millis(201 * 5);
    for calls in [1, 2] {
        let agent = TestAgent::builder().turns(vec![Say::Writes(calls, "behind")]).build();
        let pace = agent.rooms.ledger.store().pace();
        let new = with_options(|options| options.stream_tool_arguments = true);
        let begun = Instant::now();
        let mut follower = agent.start(new, None).await.unwrap().follower;
        let (mut shown, mut records, mut text) = (0, 0, String::new());
        while text.is_empty() {
            for record in follower.next().await.unwrap().expect("the run goes on") {
                if let Event::ToolArgumentsDelta { delta, .. } = &record.event {
                    (shown, records) = (shown + delta.len(), records + 1);
                }
                if let Event::TextDelta { text: more, .. } = &record.event {
                    text.push_str(more);
                }
            }
            let pieces = |time: Duration| usize::try_from(time.as_millis() / 5).unwrap().min(200);
            let (came, late) = (pieces(begun.elapsed()), pieces(2 * pace));
            assert!(shown + late >= came, "of {came} pieces {shown} were shown, with {calls} calls");
        }
        assert_eq!((shown, text.as_str()), (200, "behind"));
        assert!(begun.elapsed() <= TOOK + 2 * pace, "{:?}", begun.elapsed());
        let paces = usize::try_from(TOOK.as_millis() / pace.as_millis()).unwrap() + 1;
        assert!(calls > 1 || records <= paces, "{records} records in {paces} paces");
    }
}
