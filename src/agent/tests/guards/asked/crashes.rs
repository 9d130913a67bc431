//! What a crash leaves: a verdict that is stored is not asked for again, one that is lost is, and all calls are charged.

use super::super::super::link::Link;
use super::super::super::quota::{count, counter, keyed, memory, quotas, standing, tokens};
use super::super::super::resume::{ended, leave};
use super::*;
use crate::agent::ledger::{document, keys, log};
use crate::types::RunSpec;
use crate::types::shortfall::BudgetKind;

const ALL: [GuardPoint; 4] = [GuardPoint::Input, GuardPoint::Output, GuardPoint::ToolArguments, GuardPoint::ToolResult];

fn agent(store: &Arc<dyn Store>, rails: Vec<Guardrail>) -> TestAgent {
    let turns =
        vec![Say::Calls("look", vec![("echo", r#"{"n":1}"#), ("save", r#"{"n":2}"#)]), Say::Text(&["he", "llo"])];
    asking(turns, Say::Text(&["PASS"]), rails).store(store.clone()).quotas(quotas(tokens(100_000))).build()
}

fn rails() -> Vec<Guardrail> {
    ALL.map(|point| Guardrail { name: format!("on-{}", point.as_str()), ..by_model(point) }).to_vec()
}

/// The whole log of a run that nothing disturbed, internal records too, and its specification.
async fn undisturbed() -> (RunSpec, Vec<Record>) {
    let store = memory();
    let agent = agent(&store, rails());
    let started = agent.start(keyed(), None).await.unwrap();
    let run = started.head.id.clone();
    let partition = keys::run_partition(&request().tenant, None, &run);
    let spec = store.get(&partition, &keys::spec(&run)).await.unwrap().unwrap();
    watch(started).await;
    let page = store.read_log(&partition, &keys::events(&run), 0, 1_000).await.unwrap();
    let records = page.entries.iter().map(|entry| log::decode(entry).unwrap()).collect();
    (document::decode(&spec.value).unwrap(), records)
}

/// How many verdicts of what is not lost with its step a log has.
fn stored(records: &[Record]) -> usize {
    judged(records).iter().filter(|judged| judged.asked.on != GuardPoint::Output).count()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_resumed_asks_for_no_verdict_that_is_stored_and_again_for_one_that_is_lost() {
    let (spec, whole) = undisturbed().await;
    assert_eq!((outcome(&whole).output_text.as_str(), verdicts(&whole).len()), ("hello", 7));
    let all = 5;
    assert_eq!(stored(&whole), all);
    for cut in 1..whole.len() {
        let before = &whole[..cut];
        if matches!(before.last().map(|record| &record.event), Some(Event::ToolStarted { call, .. }) if call.name == "save")
        {
            continue;
        }
        let store = memory();
        let agent = agent(&store, rails());
        leave(&store, &spec, before).await;
        let records = ended(&agent, &spec.id).await;
        let end = outcome(&records);
        assert_eq!((end.reason, end.output_text.as_str()), (StopReason::Done, "hello"), "cut at {cut}");
        let known = stored(before);
        let asked_again = agent.spares[0]
            .requests
            .lock()
            .iter()
            .filter(|asked| !joined(&asked.conversation).contains("the answer of a model"))
            .count();
        let lost_answers = before.iter().filter(|record| matches!(record.event, Event::ToolStarted { .. })).count();
        assert!(asked_again <= all - known + lost_answers && asked_again >= all - known, "cut at {cut}: {asked_again}");
        let opened = before.iter().filter(|record| is_judging(record)).count();
        let closed = verdicts(before).len();
        let dropped = verdicts(&records).iter().filter(|verdict| **verdict == Verdict::Dropped).count();
        assert_eq!(dropped, opened - closed, "cut at {cut}: a call that was lost is charged");
        assert!(standing(&store).await.is_empty(), "cut at {cut}");
    }
}

fn is_judging(record: &Record) -> bool {
    matches!(&record.event, Event::Guarded(guarded) if matches!(**guarded, Guarded::Judging(_)))
}

#[tokio::test(start_paused = true)]
async fn another_replica_charges_the_judge_whose_replica_died_and_asks_again() {
    for point in ALL {
        let store = memory();
        let dead = {
            let stalls = asking(
                vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["ok"])],
                Say::Silent,
                vec![by_model(point)],
            );
            stalls.store(Link::to(&store)).quotas(quotas(tokens(100_000))).begin()
        };
        let started = dead.start(keyed(), None).await.unwrap();
        let run = started.head.id.clone();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let reserved = count(&store, &counter(BudgetKind::Tokens)).await;
        assert!(reserved > 300, "{point:?}: it is reserved while it judges");
        dead.leave().await;
        drop(started);
        let heir = asking(
            vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["ok"])],
            Say::Text(&["PASS"]),
            vec![by_model(point)],
        );
        let heir = heir.store(store.clone()).quotas(quotas(tokens(100_000))).build();
        let records = ended(&heir, &run).await;
        let end = outcome(&records);
        assert_eq!((end.reason, end.output_text.as_str()), (StopReason::Done, "ok"), "{point:?}");
        let verdicts = verdicts(&records);
        assert_eq!(verdicts[0], Verdict::Dropped, "{point:?}: {verdicts:?}");
        assert!(verdicts[1..].iter().all(|verdict| *verdict == Verdict::Pass), "{point:?}: {verdicts:?}");
        heir.idle(Duration::from_secs(5)).await;
        let charged = count(&store, &counter(BudgetKind::Tokens)).await;
        assert_eq!(charged, end.usage.total() + end.budget.unconfirmed.tokens, "{point:?}");
        assert!(standing(&store).await.is_empty());
    }
}
