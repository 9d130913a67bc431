//! What models that judge take: reserved before, settled after, whoever's budget it is and however the call ends.

use super::super::super::quota::{count, counter, keyed, memory, quotas, standing, tokens};
use super::*;
use crate::agent::LimitsPatch;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::agent::usage::row::StoredRow;
use crate::store::{Order, Scan};
use crate::types::Micros;
use crate::types::shortfall::BudgetKind;

const POINTS: [GuardPoint; 4] =
    [GuardPoint::Input, GuardPoint::Output, GuardPoint::ToolArguments, GuardPoint::ToolResult];

fn limited(token_budget: u64) -> NewRun {
    let limits = LimitsPatch { token_budget: Some(token_budget), ..LimitsPatch::default() };
    NewRun { limits, max_output_tokens: Some(300), ..request() }
}

/// One that takes more than a thousand tokens to ask.
fn long_winded(point: GuardPoint) -> Guardrail {
    rail(point, GuardrailRule::Model(Box::new(ModelJudge { prompt: "Fail. ".repeat(700), ..judge() })))
}

fn calling() -> Vec<Say> {
    vec![Say::Calls("look", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["hello"])]
}

#[tokio::test(start_paused = true)]
async fn the_key_is_charged_what_judges_took_and_nothing_stays_reserved() {
    for point in POINTS {
        for judged in [Say::Text(&["PASS"]), Say::Text(&["FAIL"]), Say::Text(&["?"])] {
            let store: Arc<dyn Store> = memory();
            let agent = asking(calling(), judged.clone(), vec![by_model(point)])
                .store(store.clone())
                .quotas(quotas(tokens(100_000)))
                .begin();
            let records = watch(agent.start(keyed(), None).await.unwrap()).await;
            let end = outcome(&records);
            agent.idle(Duration::from_secs(5)).await;
            let taken = count(&store, &counter(BudgetKind::Tokens)).await;
            assert_eq!(taken, end.usage.total(), "{point:?} {judged:?}");
            let calls = agent.model.requests.lock().len() + agent.spares[0].requests.lock().len();
            assert_eq!(taken, 15 * calls as u64, "{point:?} {judged:?}");
            assert!(standing(&store).await.is_empty(), "{:?}", standing(&store).await);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_without_room_for_its_judge_stops_as_at_any_limit() {
    for point in POINTS {
        let agent = asking(calling(), Say::Text(&["PASS"]), vec![long_winded(point)]).begin();
        let records = watch(agent.start(limited(900), None).await.unwrap()).await;
        let end = outcome(&records);
        assert_eq!((end.reason, verdicts(&records)), (StopReason::TokenBudget, vec![]), "{point:?}");
        assert!(agent.spares[0].requests.lock().is_empty() && end.usage.total() <= 30, "{point:?}: {end:?}");
        if point == GuardPoint::Output {
            assert!(!shown(&records).contains("look"), "an answer that nobody could judge is not shown");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_without_room_for_its_judge_stops_its_run() {
    for point in POINTS {
        let store: Arc<dyn Store> = memory();
        let agent = asking(calling(), Say::Text(&["PASS"]), vec![long_winded(point)])
            .store(store.clone())
            .quotas(quotas(tokens(900)))
            .begin();
        let records = watch(agent.start(keyed(), None).await.unwrap()).await;
        let end = outcome(&records);
        assert_eq!((end.reason, verdicts(&records)), (StopReason::TokenBudget, vec![]), "{point:?}");
        agent.idle(Duration::from_secs(5)).await;
        assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, end.usage.total(), "{point:?}");
        assert!(standing(&store).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_judge_whose_run_is_cancelled_is_charged_and_asked_no_more() {
    for point in POINTS {
        let store: Arc<dyn Store> = memory();
        let agent = asking(calling(), Say::Silent, vec![by_model(point)])
            .store(store.clone())
            .quotas(quotas(tokens(100_000)))
            .begin();
        let started = agent.start(keyed(), None).await.unwrap();
        let (tenant, run) = (request().tenant, started.head.id.clone());
        tokio::time::sleep(Duration::from_secs(1)).await;
        agent.runs().cancel(&tenant, &run).await.unwrap();
        let records = watch(started).await;
        let end = outcome(&records);
        assert_eq!((end.reason, verdicts(&records)), (StopReason::Cancelled, vec![Verdict::Dropped]), "{point:?}");
        let call = judged(&records).remove(0).call.unwrap();
        assert!(call.usage.prompt_tokens > 100 && call.unconfirmed.tokens == 300, "{call:?}");
        assert_eq!(agent.spares[0].requests.lock().len(), 1);
        agent.idle(Duration::from_secs(5)).await;
        let taken = count(&store, &counter(BudgetKind::Tokens)).await;
        assert_eq!(taken, end.usage.total() + end.budget.unconfirmed.tokens, "{point:?}");
        assert!(standing(&store).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn usage_is_counted_by_the_model_that_judged() {
    let store: Arc<dyn Store> = memory();
    let agent = asking(vec![Say::Text(&["ok"])], Say::Text(&["PASS"]), vec![by_model(GuardPoint::Input)])
        .store(store.clone())
        .begin();
    let end = outcome(&run_of(&agent, "Hello").await);
    assert_eq!(end.cost, Micros(10 * 3 + 5 * 15 + 20));
    agent.idle(Duration::from_secs(5)).await;
    let scan = Scan { prefix: keys::USAGE.to_owned(), after: None, limit: 100, order: Order::Ascending };
    let partition = keys::tenant_partition(&request().tenant);
    let rows = store.scan(&partition, scan).await.unwrap();
    let mut models: Vec<String> = rows
        .iter()
        .map(|(_, row)| decode::<StoredRow>(&row.value).unwrap())
        .map(|row| format!("{} {} {}", row.dimensions.model, row.totals.runs, row.totals.prompt_tokens))
        .collect();
    models.sort();
    assert_eq!(models, ["scripted/m 1 10", "spare0/s 0 10"]);
}
