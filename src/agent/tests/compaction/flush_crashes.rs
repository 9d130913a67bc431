//! What a crash leaves of what a model writes into memory: it goes on where it was, all calls are charged, and nothing is written twice.

use super::super::link::Link;
use super::super::quota::memory;
use super::super::resume::{ended, leave};
use super::flushes::{LARGE, agent_of, compacting, flushes, flushing, notes};
use super::requested::{known, tenant};
use super::*;
use crate::agent::ledger::{document, keys, log};
use crate::store::{Store, Tx, Write};
use crate::types::RunSpec;
use crate::types::session::Session;

async fn agent(store: &Arc<dyn Store>) -> (TestAgent, Arc<Windowed>) {
    agent_of(store, flushing(), (LARGE, 20)).await
}

/// The whole log of a compaction that nothing disturbed, its specification, and the session's document meanwhile.
async fn undisturbed() -> (RunSpec, Session, Vec<Record>) {
    let store = memory();
    let (agent, _) = agent(&store).await;
    let started = agent.start(compacting(), None).await.unwrap();
    let (run, partition) = (started.head.id.clone(), keys::session_partition(&tenant(), &session()));
    let spec = store.get(&partition, &keys::spec(&run)).await.unwrap().unwrap();
    let held = known(&agent).await;
    watch(started).await;
    let page = store.read_log(&partition, &keys::events(&run), 0, 1_000).await.unwrap();
    let records = page.entries.iter().map(|entry| log::decode(entry).unwrap()).collect();
    (document::decode(&spec.value).unwrap(), held, records)
}

fn of_kind(records: &[Record], kind: fn(&ContextEvent) -> bool) -> usize {
    shortened(records).iter().filter(|event| kind(event)).count()
}

fn asked(records: &[Record]) -> usize {
    of_kind(records, |event| matches!(event, ContextEvent::FlushAsked(_)))
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_resumed_goes_on_and_writes_nothing_down_twice() {
    let (spec, held, whole) = undisturbed().await;
    assert_eq!((asked(&whole), methods(&whole)), (2, vec![Method::Llm]));
    for cut in 1..whole.len() {
        let before = &whole[..cut];
        let store = memory();
        let (heir, model) = agent(&store).await;
        let partition = keys::session_partition(&tenant(), &session());
        let mut now = known(&heir).await;
        (now.compacting, now.concurrent_runs) = (held.compacting.clone(), held.concurrent_runs.clone());
        if asked(before) > 0 {
            now.context.get_or_insert_default().flushed = 34;
        }
        let put = Write::Put { key: keys::session(), value: document::encode(&now), ttl: None };
        store.commit(Tx::new(partition).write(put)).await.unwrap();
        leave(&store, &spec, before).await;
        let records = ended(&heir, &spec.id).await;
        let end = outcome(&records);
        assert_eq!((end.reason, methods(&records)), (StopReason::Done, vec![Method::Llm]), "cut at {cut}");
        // Where the first note was written by the replica that died, it is not here: the memory is another one.
        let wrote = of_kind(before, |event| matches!(event, ContextEvent::FlushCalled(called) if called.wrote)) > 0;
        let expected = (!wrote).then_some(1);
        assert_eq!(notes(&heir, Some("ann")).await.map(|(_, version)| version), expected, "cut at {cut}");
        let [report] = &*flushes(&records) else { panic!("cut at {cut}: {:?}", end.report.compactions) };
        assert_eq!((report.messages, report.writes, &report.error), (34, 1, &None), "cut at {cut}");
        // What was heard is not asked again, and what was lost is charged.
        let heard = |records: &[Record]| {
            of_kind(records, |event| matches!(event, ContextEvent::FlushAnswered(answered) if !answered.lost))
        };
        let lost = u32::try_from(asked(before) - heard(before)).unwrap();
        assert_eq!((model.flushed.lock().len(), report.iterations), (2 - heard(before), 2 + lost), "cut at {cut}");
        // A call that was lost is charged by what was set aside for it.
        assert_eq!(report.usage.estimated, lost > 0, "cut at {cut}: {report:?}");
        assert_eq!(known(&heir).await.context.unwrap().flushed, 34, "cut at {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_dies_in_it_leaves_it_to_another() {
    let store = memory();
    let link: Arc<dyn Store> = Link::to(&store);
    let (dead, model) = agent(&link).await;
    *model.flushes.lock() = Flushes::Stalled;
    dead.begin();
    let started = dead.start(compacting(), None).await.unwrap();
    let run = started.head.id.clone();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(known(&dead).await.context.unwrap().flushed, 34, "nobody else writes that down");
    dead.leave().await;
    drop(started);
    let (heir, model) = agent(&store).await;
    let records = ended(&heir, &run).await;
    assert_eq!((methods(&records), model.flushed.lock().len()), (vec![Method::Llm], 2));
    assert_eq!(notes(&heir, Some("ann")).await, Some(("note 0".into(), 1)));
    let [report] = &*flushes(&records) else { panic!("it is reported once") };
    assert_eq!((report.iterations, report.writes, &report.error), (3, 1, &None));
}

/// The replica dies after the note was written and before the run says so.
#[tokio::test(start_paused = true)]
async fn a_note_that_was_written_before_the_crash_is_not_written_again() {
    use crate::store::faulty::{Fate, Faulty};
    let store = memory();
    let mortal = Faulty::new(Link::to(&store), {
        let is_told = super::super::fencing::records(
            |event| matches!(event, Event::Context(event) if matches!(**event, ContextEvent::FlushCalled(_))),
        );
        move |tx| if is_told(tx) { Fate::DiesBefore } else { Fate::Happens }
    });
    let dying: Arc<dyn Store> = mortal.clone();
    let (first, _) = agent(&dying).await;
    first.begin();
    let started = first.start(compacting(), None).await.unwrap();
    let run = started.head.id.clone();
    drop(started);
    mortal.reached().await;
    let there: Arc<dyn Store> = Link::to(&store);
    let (second, _) = agent(&there).await;
    assert_eq!(notes(&second, Some("ann")).await, Some(("note 0".into(), 1)), "it was written");
    let records = ended(&second, &run).await;
    assert_eq!((methods(&records), notes(&second, Some("ann")).await), (vec![Method::Llm], Some(("note 0".into(), 1))));
}
