use std::sync::Arc;
use std::time::Duration;

use super::idempotency::answers::{handed_over, handing_over};
use super::support::{Say, TestAgent, client_tool, outcome, request, watch};
use crate::agent::error::{Field, StartError};
use crate::agent::ledger::document;
use crate::agent::ledger::head::Head;
use crate::agent::ledger::keys;
use crate::agent::ledger::log;
use crate::agent::ownership::registry::{Registration, Replica};
use crate::agent::{LimitsPatch, NewRun};
use crate::store::memory::MemoryStore;
use crate::store::{Store, Tx, Write};
use crate::types::tool::CallEnding;
use crate::types::{Effect, Event, Record, RunId, RunSpec, RunStatus, StopReason};

pub(super) fn turns() -> Vec<Say> {
    let calls = vec![("echo", r#"{"n":1}"#), ("echo", r#"{"n":2}"#)];
    vec![Say::Calls("look", calls), Say::Text(&["he", "llo"])]
}

/// The whole log of a run that nothing disturbed, and its specification.
pub(super) async fn undisturbed() -> (RunSpec, Vec<Record>) {
    undisturbed_with(Effect::Read).await
}

/// The same of one whose tool has this effect.
async fn undisturbed_with(effect: Effect) -> (RunSpec, Vec<Record>) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).turns(turns()).echo(effect).build();
    log_of(&agent, &store).await
}

/// The whole log of a run of this agent over this store, and its specification.
pub(super) async fn log_of(agent: &TestAgent, store: &Arc<dyn Store>) -> (RunSpec, Vec<Record>) {
    let started = agent.start(request(), None).await.unwrap();
    let run = started.head.id.clone();
    // The specification goes when the run ends.
    let partition = keys::run_partition(&request().tenant, None, &run);
    let spec = store.get(&partition, &keys::spec(&run)).await.unwrap().unwrap();
    watch(started).await;
    let page = store.read_log(&partition, &keys::events(&run), 0, 1_000).await.unwrap();
    let records = page.entries.iter().map(|entry| log::decode(entry).unwrap()).collect();
    (document::decode(&spec.value).unwrap(), records)
}

/// A replica that finds an orphaned run with these records in its log.
pub(super) async fn found(spec: &RunSpec, records: &[Record], effect: Effect) -> (TestAgent, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store.clone()).turns(turns()).echo(effect).build();
    leave(&store, spec, records).await;
    (agent, store)
}

/// Puts a run into the store as a process that was killed leaves it.
pub(super) async fn leave(store: &Arc<dyn Store>, spec: &RunSpec, records: &[Record]) {
    let entries = records.iter().map(|record| serde_json::to_vec(record).unwrap().into()).collect();
    let tx = Tx::new(keys::partition_of(spec))
        .put_at(keys::spec(&spec.id), 0, document::encode(spec), None)
        .put_at(keys::head(&spec.id), 0, document::encode(&Head::new(spec)), None)
        .write(Write::Append { log: keys::events(&spec.id), after: 0, entries });
    store.commit(tx).await.unwrap();
    let index = Tx::new(keys::tenant_partition(&spec.tenant)).write(Write::Put {
        key: keys::run_entry(&spec.id),
        value: document::encode(&spec.session),
        ttl: None,
    });
    store.commit(index).await.unwrap();
    // A replica that is no more left it under its name.
    let replica = Replica::new(store.clone());
    store.commit(replica.register_new(&spec.id, &Registration::of(spec))).await.unwrap();
    let registration = Write::Put { key: keys::replica(replica.id()), value: "".into(), ttl: None };
    store.commit(Tx::new(keys::live_partition()).write(registration)).await.unwrap();
}

/// Lets the process take the run up, and returns its log once it ended.
pub(super) async fn ended(agent: &TestAgent, run: &RunId) -> Vec<Record> {
    agent.begin();
    let tenant = request().tenant;
    for _ in 0..10_000 {
        if agent.runs().get(&tenant, run).await.unwrap().head.status.is_final() {
            let following = agent.runs().follow(&tenant, run, 0).await.unwrap();
            let mut follower = following.follower.unwrap();
            let records = follower.available().await.unwrap();
            return records.into_iter().map(|record| (*record).clone()).collect();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the run did not end");
}

#[tokio::test(start_paused = true)]
async fn every_prefix_of_a_log_resumes_to_the_same_end() {
    let (spec, whole) = undisturbed().await;
    let end = outcome(&whole);
    assert_eq!(end.output_text, "hello");
    for cut in 1..whole.len() {
        let (agent, _) = found(&spec, &whole[..cut], Effect::Read).await;
        let records = ended(&agent, &spec.id).await;
        let resumed = outcome(&records);
        assert_eq!((resumed.reason, resumed.output_text), (StopReason::Done, "hello".to_owned()), "cut at {cut}");
        assert_eq!((resumed.iterations, resumed.tool_calls), (end.iterations, end.tool_calls), "cut at {cut}");
        let numbers: Vec<u64> = records.iter().map(|record| record.seq).collect();
        assert_eq!(numbers, (1..=records.len() as u64).collect::<Vec<_>>(), "cut at {cut}");
        let before = whole[..cut].iter().filter(|record| record.event.is_public()).count();
        let kept: Vec<_> = whole[..cut].iter().filter(|record| record.event.is_public()).cloned().collect();
        assert_eq!(records[..before], kept, "what was said stays said, cut at {cut}");
        // Text of an interrupted step is void, and says so before any other is written.
        let mut open_text = false;
        for record in &records {
            match &record.event {
                Event::TextDelta { .. } => open_text = true,
                Event::StepDiscarded { .. } | Event::StepCompleted { .. } => open_text = false,
                Event::StepStarted { .. } => assert!(!open_text, "cut at {cut}"),
                _ => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_interrupted_is_not_run_again() {
    let (spec, whole) = undisturbed_with(Effect::Write).await;
    let started = whole.iter().position(|record| matches!(record.event, Event::ToolStarted { .. })).unwrap();
    let (agent, _) = found(&spec, &whole[..=started], Effect::Write).await;
    let records = ended(&agent, &spec.id).await;
    let outcome = outcome(&records);
    assert_eq!((outcome.reason, outcome.status()), (StopReason::OutcomeUnknown, RunStatus::Failed));
    assert!(agent.journal.lock().is_empty(), "neither the interrupted call nor the one behind it ran");
}

/// A replica that takes up a run only to end it tells calls that had begun from those that never were made.
#[tokio::test(start_paused = true)]
async fn a_call_that_had_begun_is_not_said_not_to_have_been_made_when_its_run_is_cancelled() {
    for (effect, ending, told) in [
        (Effect::Read, CallEnding::Stopped, "The call was interrupted, and is not made again"),
        (Effect::Idempotent, CallEnding::Lost, "Whether it took effect is unknown"),
        (Effect::Write, CallEnding::Lost, "Whether it took effect is unknown"),
    ] {
        let (spec, whole) = undisturbed_with(effect).await;
        let began = whole.iter().position(|record| matches!(record.event, Event::ToolStarted { .. })).unwrap();
        let (agent, _) = found(&spec, &whole[..=began], effect).await;
        agent.runs().cancel(&spec.tenant, &spec.id).await.unwrap();
        let records = ended(&agent, &spec.id).await;
        assert_eq!(outcome(&records).reason, StopReason::Cancelled);
        let (mut begun, mut ended) = (Vec::new(), Vec::new());
        for record in &records {
            match &record.event {
                Event::ToolStarted { effect, .. } => begun.push(*effect),
                Event::ToolFinished { outcome, .. } => ended.push((outcome.ending, outcome.text())),
                _ => {}
            }
        }
        assert_eq!(begun, [effect, Effect::Read], "each begins once");
        assert!(ended[0].0 == ending && ended[0].1.contains(told), "{effect:?}: {ended:?}");
        assert_eq!(ended[1].0, CallEnding::Skipped, "the one behind it was never dispatched");
        assert!(agent.journal.lock().is_empty(), "neither is made");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_another_process_drives_is_left_alone() {
    let (spec, whole) = undisturbed().await;
    let (agent, store) = found(&spec, &whole[..3], Effect::Read).await;
    let partition = keys::partition_of(&spec);
    let lease = keys::lease(&spec.id);
    let fence = store.acquire(&partition, &lease, Duration::from_secs(60)).await.unwrap().unwrap();
    agent.begin();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(agent.model.requests.lock().is_empty());
    store.release(&partition, &lease, fence).await.unwrap();
    assert_eq!(outcome(&ended(&agent, &spec.id).await).output_text, "hello");
}

#[tokio::test(start_paused = true)]
async fn readers_see_every_event_once_wherever_they_join() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = TestAgent::builder().store(store).turns(turns()).build();
    let started = agent.start(request(), None).await.unwrap();
    let (tenant, run) = (request().tenant, started.head.id.clone());
    let mut readers = Vec::new();
    let mut after = 0;
    let mut first = started.follower;
    let mut all = Vec::new();
    while let Some(page) = first.next().await.unwrap() {
        all.extend(page.iter().map(|record| record.seq));
        readers.push((after, agent.runs().follow(&tenant, &run, after).await.unwrap().follower));
        after = *all.last().unwrap();
    }
    assert_eq!(all, (1..=all.len() as u64).collect::<Vec<_>>());
    assert!(readers.len() > 3);
    for (after, follower) in readers {
        let mut follower = follower.unwrap();
        let mut seen = Vec::new();
        while let Some(page) = follower.next().await.unwrap() {
            seen.extend(page.iter().map(|record| record.seq));
        }
        assert_eq!(seen, all[usize::try_from(after).unwrap()..], "joined after {after}");
    }
    let late = agent.runs().follow(&tenant, &run, all.len() as u64).await.unwrap();
    assert!(late.follower.is_none(), "a log that was read to its end has nothing more");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_came_before_the_run_was_resumed_counts_as_its_reader() {
    let (mut spec, whole) = undisturbed().await;
    spec.options.on_disconnect = crate::types::run::OnDisconnect::Cancel;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    leave(&store, &spec, &whole[..3]).await;
    let agent = TestAgent::builder().store(store).turns(vec![Say::Calls("", vec![("hang", "{}")])]).build();
    let tenant = request().tenant;
    let mut follower = agent.runs().follow(&tenant, &spec.id, 0).await.unwrap().follower.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { while let Ok(Some(_)) = follower.next().await {} });
    agent.begin();
    tokio::time::sleep(Duration::from_secs(40)).await;
    let status = agent.runs().get(&tenant, &spec.id).await.unwrap().head.status;
    assert_eq!(status, RunStatus::InProgress, "someone reads it");
    drop(tasks);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let status = agent.runs().get(&tenant, &spec.id).await.unwrap().head.status;
    assert_eq!(status, RunStatus::Cancelled, "nobody does any more");
}

#[tokio::test(start_paused = true)]
async fn a_log_with_an_end_is_not_resumed_whatever_the_head_says() {
    let (spec, whole) = undisturbed().await;
    let (agent, store) = found(&spec, &whole, Effect::Read).await;
    agent.begin();
    tokio::time::sleep(Duration::from_secs(20)).await;
    agent.runs().cancel(&spec.tenant, &spec.id).await.unwrap();
    let log = store.read_log(&keys::partition_of(&spec), &keys::events(&spec.id), 0, 1_000).await.unwrap();
    assert_eq!(log.entries.len(), whole.len());
    assert!(agent.model.requests.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_specification_is_lost_fails_instead_of_waiting_for_ever() {
    let (spec, whole) = undisturbed().await;
    let (agent, store) = found(&spec, &whole[..3], Effect::Read).await;
    let lose = Tx::new(keys::partition_of(&spec)).write(Write::Delete { key: keys::spec(&spec.id) });
    store.commit(lose).await.unwrap();
    agent.begin();
    tokio::time::sleep(Duration::from_secs(6)).await;
    let head = agent.runs().get(&spec.tenant, &spec.id).await.unwrap().head;
    assert_eq!((head.status, head.reason), (RunStatus::Failed, Some(StopReason::StoreLostState)));
    // Who reads it is told as well.
    let mut follower = agent.runs().follow(&spec.tenant, &spec.id, 0).await.unwrap().follower.unwrap();
    let records = follower.available().await.unwrap();
    assert!(
        matches!(&records.last().unwrap().event, Event::RunFinished(end) if end.reason == StopReason::StoreLostState)
    );
    assert_eq!(records.len() as u64, records.last().unwrap().seq, "numbered without gaps");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_log_is_lost_ends_for_its_waiting_clients() {
    let (spec, whole) = undisturbed().await;
    let (agent, store) = found(&spec, &whole[..3], Effect::Read).await;
    let lose = Tx::new(keys::partition_of(&spec)).write(Write::DeleteLog { log: keys::events(&spec.id) });
    store.commit(lose).await.unwrap();
    let records = ended(&agent, &spec.id).await;
    assert_eq!(outcome(&records).reason, StopReason::StoreLostState);
    assert!(agent.model.requests.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_head_lacks_the_end_has_the_end_in_its_log() {
    let (spec, whole) = undisturbed().await;
    let (agent, store) = found(&spec, &whole, Effect::Read).await;
    let lose = Tx::new(keys::partition_of(&spec)).write(Write::Delete { key: keys::spec(&spec.id) });
    store.commit(lose).await.unwrap();
    assert_eq!(ended(&agent, &spec.id).await.len(), whole.iter().filter(|record| record.event.is_public()).count());
    let head = agent.runs().get(&spec.tenant, &spec.id).await.unwrap().head;
    assert_eq!((head.status, head.reason), (RunStatus::Completed, Some(StopReason::Done)));
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_clock_is_an_hour_off_leaves_a_run_its_time() {
    const HOUR_MS: u64 = 3_600_000;
    let (spec, whole) = undisturbed().await;
    for ahead in [true, false] {
        let shifted = |at_ms: u64| if ahead { at_ms + HOUR_MS } else { at_ms - HOUR_MS };
        let mut spec = spec.clone();
        spec.created_ms = shifted(spec.created_ms);
        let records: Vec<Record> =
            whole[..3].iter().cloned().map(|record| Record { at_ms: shifted(record.at_ms), ..record }).collect();
        let (agent, _) = found(&spec, &records, Effect::Read).await;
        let outcome = outcome(&ended(&agent, &spec.id).await);
        assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::Done, "hello"), "ahead: {ahead}");
        assert!(outcome.report.total_ms < 60_000, "{} ms", outcome.report.total_ms);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_another_host_ends_is_counted_at_most_a_takeover_longer() {
    let (mut spec, whole) = undisturbed().await;
    let earlier = |at_ms: u64| at_ms - 3_600_000;
    spec.created_ms = earlier(spec.created_ms);
    let records: Vec<Record> =
        whole[..3].iter().cloned().map(|record| Record { at_ms: earlier(record.at_ms), ..record }).collect();
    let (agent, _) = found(&spec, &records, Effect::Read).await;
    agent.runs().cancel(&spec.tenant, &spec.id).await.unwrap();
    let outcome = outcome(&ended(&agent, &spec.id).await);
    assert_eq!(outcome.reason, StopReason::Cancelled);
    assert!(outcome.report.total_ms < 60_000, "{} ms", outcome.report.total_ms);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_an_interrupted_call_counts() {
    let (mut spec, whole) = undisturbed().await;
    let began = whole.iter().position(|record| matches!(record.event, Event::ToolStarted { .. })).unwrap();
    let earlier = |at_ms: u64| at_ms - 100_000;
    (spec.limits.timeout_ms, spec.limits.tool_timeout_ms) = (300_000, 120_000);
    for (records, expected) in [(&whole[..=began], 100_000..110_000), (&whole[..1], 15_000..25_000)] {
        let records: Vec<Record> =
            records.iter().cloned().map(|record| Record { at_ms: earlier(record.at_ms), ..record }).collect();
        let (agent, _) = found(&spec, &records, Effect::Read).await;
        let took = outcome(&ended(&agent, &spec.id).await).report.total_ms;
        assert!(expected.contains(&took), "{took} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn time_on_another_host_is_counted_once_whatever_its_clock() {
    const SPENT_MS: u64 = 10_000;
    let (spec, whole) = undisturbed().await;
    // The clock there is an hour ahead or behind; a takeover during a model call counts for 45 s at most.
    for (shift_ms, left) in [(3_600_000, 50), (-3_600_000, 5)] {
        let begun = whole[0].at_ms.saturating_add_signed(shift_ms);
        let mut records: Vec<Record> =
            whole[..3].iter().cloned().map(|record| Record { at_ms: begun, ..record }).collect();
        records[2].at_ms += SPENT_MS;
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let agent = TestAgent::builder().store(store.clone()).turns(vec![Say::Stall(&["x"])]).build();
        leave(&store, &spec, &records).await;
        let since = tokio::time::Instant::now();
        let records = ended(&agent, &spec.id).await;
        assert_eq!(outcome(&records).reason, StopReason::Timeout);
        assert!(since.elapsed().abs_diff(Duration::from_secs(left)) < Duration::from_secs(2), "{:?}", since.elapsed());
        let resumed = records.iter().find(|record| matches!(record.event, Event::RunResumed { .. }));
        assert!(resumed.is_none_or(|record| record.at_ms.abs_diff(begun) > 3_000_000));
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_on_is_asked_for_nothing_that_it_was_not_begun_with() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = handing_over(&store);
    let (_, _, answer) = handed_over(&agent, None).await;
    let limits = LimitsPatch { max_iterations: Some(2), ..LimitsPatch::default() };
    for (other, named) in [
        (NewRun { model: Some("scripted/m".into()), ..answer.clone() }, Field::Model),
        (NewRun { client_tools: vec![client_tool("another")], ..answer.clone() }, Field::ClientTools),
        (NewRun { tools: Some(vec!["save".into()]), ..answer.clone() }, Field::Tools),
        (NewRun { limits, ..answer.clone() }, Field::MaxIterations),
    ] {
        let refused = agent.start(other, None).await;
        assert!(matches!(&refused, Err(StartError::Invalid { field, .. }) if *field == named), "{refused:?}");
    }
    watch(agent.start(answer, None).await.unwrap()).await;
}
