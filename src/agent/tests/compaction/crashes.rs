//! What a crash leaves of a conversation that is shortened: a summary that is stored is not paid for again, one that is lost is asked
//! for again, and all calls are charged.

use super::super::link::Link;
use super::super::quota::{count, counter, keyed, memory, quotas, standing, tokens};
use super::super::resume::{ended, leave};
use super::summaries::transcript;
use super::*;
use crate::agent::ledger::{document, keys, log};
use crate::store::Store;
use crate::types::RunSpec;
use crate::types::shortfall::BudgetKind;

fn agent(store: &Arc<dyn Store>, summaries: Summaries) -> (TestAgent, Arc<Windowed>) {
    let model = Windowed::new(WINDOW, true, 1, summaries);
    let builder = TestAgent::builder().windowed(&model, WINDOW).rules(rules(Compaction::Auto));
    (builder.store(store.clone()).quotas(quotas(tokens(100_000))).build(), model)
}

fn new() -> NewRun {
    NewRun { messages: transcript(), ..keyed() }
}

/// The whole log of a run that nothing disturbed, internal records too, and its specification.
async fn undisturbed() -> (RunSpec, Vec<Record>) {
    let store = memory();
    let (agent, _) = agent(&store, Summaries::Written);
    let started = agent.start(new(), None).await.unwrap();
    let run = started.head.id.clone();
    let partition = keys::run_partition(&request().tenant, None, &run);
    let spec = store.get(&partition, &keys::spec(&run)).await.unwrap().unwrap();
    watch(started).await;
    let page = store.read_log(&partition, &keys::events(&run), 0, 1_000).await.unwrap();
    let records = page.entries.iter().map(|entry| log::decode(entry).unwrap()).collect();
    (document::decode(&spec.value).unwrap(), records)
}

fn begun(records: &[Record]) -> usize {
    shortened(records).iter().filter(|event| matches!(event, ContextEvent::CompactionStarted(_))).count()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_resumed_pays_for_no_summary_that_is_stored() {
    let (spec, whole) = undisturbed().await;
    assert_eq!((outcome(&whole).reason, methods(&whole), begun(&whole)), (StopReason::Done, vec![Method::Llm], 1));
    for cut in 1..whole.len() {
        let before = &whole[..cut];
        let store = memory();
        let (agent, model) = agent(&store, Summaries::Written);
        leave(&store, &spec, before).await;
        let records = ended(&agent, &spec.id).await;
        assert_eq!(outcome(&records).reason, StopReason::Done, "cut at {cut}");
        let known = methods(before).len();
        assert_eq!(model.summarised.lock().len(), 1 - known, "cut at {cut}");
        assert_eq!(methods(&records), [Method::Llm], "cut at {cut}");
        let interrupted = shortened(&records);
        let interrupted = interrupted.iter().filter(|event| matches!(event, ContextEvent::CompactionFailed(_))).count();
        assert_eq!(interrupted, begun(before) - known, "cut at {cut}: a call that was lost is charged");
        assert!(standing(&store).await.is_empty(), "cut at {cut}");
        // Where the model had answered, it is not asked again.
        if let Some(asked) = model.requests.lock().last() {
            let shown = joined(asked);
            assert!(shown.contains("SUMMARY 0") && shown.contains("And now?"), "cut at {cut}: {shown}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_replica_charges_the_summary_whose_replica_died_and_asks_again() {
    let store = memory();
    let link: Arc<dyn Store> = Link::to(&store);
    let dead = agent(&link, Summaries::Stalled).0;
    dead.begin();
    let started = dead.start(new(), None).await.unwrap();
    let run = started.head.id.clone();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(count(&store, &counter(BudgetKind::Tokens)).await > 1_000, "it is reserved while the model writes");
    dead.leave().await;
    drop(started);
    let (heir, model) = agent(&store, Summaries::Written);
    let records = ended(&heir, &run).await;
    let end = outcome(&records);
    assert_eq!((end.reason, methods(&records), begun(&records)), (StopReason::Done, vec![Method::Llm], 2));
    assert_eq!(model.summarised.lock().len(), 1);
    heir.idle(Duration::from_secs(5)).await;
    let charged = count(&store, &counter(BudgetKind::Tokens)).await;
    assert_eq!(charged, end.usage.total() + end.budget.unconfirmed.tokens);
    assert!(standing(&store).await.is_empty());
}
