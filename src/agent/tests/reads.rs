//! Calls that only read are recorded beside them, where no other replica can take the run over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::fencing::records;
use super::link::Link;
use super::support::{Say, TestAgent, outcome, request, watch};
use crate::store::Store;
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::types::{Effect, Event, StopReason};

fn calls(names: &[&'static str]) -> Vec<Say> {
    vec![Say::Calls("", names.iter().map(|name| (*name, r#"{"n":1}"#)).collect()), Say::Text(&["done"])]
}

fn is_call(event: &Event) -> bool {
    matches!(event, Event::ToolStarted { .. })
}

#[tokio::test(start_paused = true)]
async fn a_call_is_made_before_it_is_recorded_only_if_it_reads_and_no_other_replica_can_resume_the_run() {
    for (is_shared, effect, made) in
        [(false, Effect::Read, 1), (false, Effect::Idempotent, 0), (false, Effect::Write, 0), (true, Effect::Read, 0)]
    {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let store = Faulty::new(if is_shared { Link::to(&memory) } else { memory }, |_| Fate::Happens);
        store.next(records(is_call), Fate::Hangs);
        let agent = TestAgent::builder().store(store.clone()).echo(effect).turns(calls(&["echo"])).build();
        let started = agent.start(request(), None).await.unwrap();
        store.reached().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(agent.journal.lock().len(), made, "shared: {is_shared}, {effect:?}");
        store.go_on();
        assert_eq!(outcome(&watch(started).await).output_text, "done");
        assert_eq!(agent.journal.lock().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_slow_calls_is_shown_once_the_pace_is_up() {
    let agent = TestAgent::builder().turns(calls(&["echo", "hang"])).build();
    let pace = agent.rooms.ledger.store().pace();
    let begun = Instant::now();
    let mut follower = agent.start(request(), None).await.unwrap().follower;
    let mut shown = Vec::new();
    while shown.len() < 3 {
        for record in follower.next().await.unwrap().expect("a call hangs") {
            match &record.event {
                Event::ToolStarted { call, .. } => shown.push((call.name.clone(), "call", begun.elapsed())),
                Event::ToolFinished { name, .. } => shown.push((name.clone(), "result", begun.elapsed())),
                _ => {}
            }
        }
    }
    let what: Vec<_> = shown.iter().map(|(name, what, _)| (name.as_str(), *what)).collect();
    assert_eq!(what, [("echo", "call"), ("hang", "call"), ("echo", "result")]);
    assert!(shown.iter().all(|(_, _, after)| (pace..2 * pace).contains(after)), "{shown:?}");
}

/// A driver that dies before it has recorded such a call has recorded nothing of the turn, either.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_lost_with_its_calls_is_charged_and_asked_for_again() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let link = Faulty::new(store.clone(), |_| Fate::Happens);
    link.next(records(is_call), Fate::DiesBefore);
    let first = TestAgent::builder().store(link.clone()).turns(calls(&["echo"])).begin();
    let started = first.start(request(), None).await.unwrap();
    let run = started.head.id.clone();
    link.reached().await;
    assert_eq!(first.journal.lock().len(), 1);
    let next = TestAgent::builder().store(store).turns(calls(&["echo"])).begin();
    let mut follower = next.runs().follow(&request().tenant, &run, 0).await.unwrap().follower.unwrap();
    let mut records = Vec::new();
    while let Some(page) = follower.next().await.unwrap() {
        records.extend(page.iter().map(|record| (**record).clone()));
    }
    let ended = outcome(&records);
    assert_eq!((ended.reason, ended.output_text.as_str()), (StopReason::Done, "done"));
    assert_eq!((next.journal.lock().len(), next.model.requests.lock().len()), (1, 2));
    let void = records.iter().filter(|record| matches!(record.event, Event::StepDiscarded { .. })).count();
    assert_eq!(void, 1);
    let alone = TestAgent::builder().turns(calls(&["echo"])).build();
    let undisturbed = outcome(&watch(alone.start(request(), None).await.unwrap()).await);
    assert!(ended.usage.total() > undisturbed.usage.total(), "the turn that was lost is charged");
}
