//! A second model is asked beside one that says nothing; the first that speaks is kept, and both are paid for.

use std::sync::Arc;
use std::time::Duration;

use super::quota::{count, counter, keyed, memory, quotas, standing, tokens};
use super::resume::{ended, leave, log_of};
use super::support::{Say, TestAgent, TestAgentBuilder, outcome, request, request_with, shown, watch};
use crate::agent::LimitsPatch;
use crate::agent::ledger::keys;
use crate::agent::session::NewSession;
use crate::config::ModelConfig;
use crate::llm::{ModelErrorKind, Spent};
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::types::hedge::{HedgeEnded, HedgeStarted, KeptCall};
use crate::types::shortfall::BudgetKind;
use crate::types::{ErrorKind, Event, Micros, Price, Record, SessionId, StopReason, Tenant, Used};

/// How long the model may say nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// A turn that comes a second after a second call was made.
const LATE: u64 = 3_000;
/// The price of the spare's tokens, each.
const DEAR: u64 = 1_000;

fn agent(turns: Vec<Say>, spare: Vec<Say>) -> TestAgentBuilder {
    let price = Some(Price::from_usd(1_000.0, 1_000.0, 1_000.0));
    let config = ModelConfig { price, ..ModelConfig::default() };
    TestAgent::builder().hedge_after(PATIENCE).turns(turns).spare(spare, config)
}

fn call() -> Say {
    Say::Calls("", vec![("echo", r#"{"n":1}"#)])
}

async fn run(agent: TestAgentBuilder) -> (TestAgent, Vec<Record>) {
    let agent = agent.begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    (agent, records)
}

fn started(records: &[Record]) -> Vec<HedgeStarted> {
    let all = records.iter().filter_map(|record| match &record.event {
        Event::HedgeStarted(started) => Some((**started).clone()),
        _ => None,
    });
    all.collect()
}

fn dropped(records: &[Record]) -> Vec<HedgeEnded> {
    let all = records.iter().filter_map(|record| match &record.event {
        Event::HedgeEnded(ended) => Some((**ended).clone()),
        _ => None,
    });
    all.collect()
}

fn asked(agent: &TestAgent) -> (usize, usize) {
    (agent.model.requests.lock().len(), agent.spares[0].requests.lock().len())
}

#[tokio::test(start_paused = true)]
async fn a_second_model_that_speaks_first_is_kept_and_the_other_is_charged_its_input() {
    let (agent, records) = run(agent(vec![Say::Stall(&[])], vec![call(), Say::Text(&["hello"])])).await;
    let end = outcome(&records);
    assert_eq!((end.reason, shown(&records).as_str()), (StopReason::Done, "hello"));
    let ([began], [ended]) = (&started(&records)[..], &dropped(&records)[..]) else { panic!("{records:?}") };
    assert_eq!((began.to.full_name().as_str(), began.after_ms), ("spare0/s", 2_000));
    assert_eq!((began.from_upstream.as_str(), began.from_model.as_str()), ("scripted", "m"));
    assert_eq!((ended.kept, ended.dropped.full_name().as_str()), (KeptCall::Second, "scripted/m"));
    assert_eq!(ended.to.as_ref().map(|to| to.full_name()).as_deref(), Some("spare0/s"));
    assert!(ended.usage.estimated && ended.usage.prompt_tokens > 0 && ended.usage.completion_tokens == 0, "{ended:?}");
    assert_eq!((ended.unconfirmed, &ended.failed), (Used::default(), &None));
    assert_eq!(asked(&agent), (1, 2), "the run stays with the model that spoke");
    let steps: Vec<_> = end.report.steps.iter().map(|step| (step.index, step.fallback.as_deref())).collect();
    assert_eq!(steps, [(1, Some("spare0/s")), (2, Some("spare0/s"))]);
    let of_spare = &end.of_fallbacks[0];
    assert_eq!((of_spare.usage.total(), of_spare.cost), (30, Micros(30 * DEAR)));
    assert_eq!(end.usage.total(), 30 + ended.usage.total());
    assert_eq!(end.cost, Micros(30 * DEAR + ended.usage.total() * 3), "each at the price of its model");
}

#[tokio::test(start_paused = true)]
async fn the_first_model_is_kept_if_it_speaks_first_after_all() {
    let (agent, records) = run(agent(vec![Say::Late(LATE, Box::new(Say::Text(&["hello"])))], vec![Say::Silent])).await;
    let end = outcome(&records);
    assert_eq!((end.reason, shown(&records).as_str(), asked(&agent)), (StopReason::Done, "hello", (1, 1)));
    let [ended] = &dropped(&records)[..] else { panic!("{records:?}") };
    assert_eq!((ended.kept, &ended.to, ended.dropped.full_name().as_str()), (KeptCall::First, &None, "spare0/s"));
    assert!(ended.unconfirmed.tokens > 0, "the upstream had begun: {ended:?}");
    assert_eq!(end.of_fallbacks.len(), 1);
    assert_eq!(end.of_fallbacks[0].usage, ended.usage);
    assert_eq!(end.cost.0, end.of_fallbacks[0].cost.0 + 10 * 3 + 5 * 15);
    assert_eq!(end.budget.unconfirmed, ended.unconfirmed);
}

#[tokio::test(start_paused = true)]
async fn no_second_call_is_made_of_a_model_that_speaks_in_time_nor_if_nothing_says_so_nor_for_a_closing_answer() {
    let soon = Say::Late(1_900, Box::new(Say::Text(&["hello"])));
    let (agent, records) = run(agent(vec![soon], vec![])).await;
    assert_eq!((shown(&records).as_str(), asked(&agent)), ("hello", (1, 0)));
    let slow = vec![Say::Late(LATE, Box::new(Say::Text(&["hello"])))];
    let (agent, _) = run(TestAgent::builder().turns(slow.clone()).spare(vec![], ModelConfig::default())).await;
    assert_eq!(asked(&agent), (1, 0));
    let (agent, records) = run(TestAgent::builder().hedge_after(PATIENCE).turns(slow)).await;
    assert_eq!((started(&records).len(), agent.model.requests.lock().len()), (0, 1), "there is no other model");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_leaves_the_step_to_the_other() {
    let fails = || Say::Late(LATE, Box::new(Say::Fails(&[(ModelErrorKind::Timeout, Spent::Input); 9])));
    let late = |text| Say::Late(LATE, Box::new(Say::Text(text)));
    let (_, records) = run(agent(vec![fails()], vec![late(&["hello"])])).await;
    let [ended] = &dropped(&records)[..] else { panic!("{records:?}") };
    assert_eq!((outcome(&records).output_text.as_str(), ended.kept), ("hello", KeptCall::Second));
    assert_eq!(ended.failed, Some((ErrorKind::UpstreamTimeout, "it failed".to_owned())));
    assert!(ended.usage.prompt_tokens > 0);
    let quick = Say::Fails(&[(ModelErrorKind::Transient, Spent::Nothing); 9]);
    let (agent, records) = run(agent(vec![late(&["hello"])], vec![quick])).await;
    let [ended] = &dropped(&records)[..] else { panic!("{records:?}") };
    assert_eq!(
        (outcome(&records).output_text.as_str(), ended.kept, ended.usage.total()),
        ("hello", KeptCall::First, 0)
    );
    assert_eq!(asked(&agent), (1, 1));
    // Both fail: what follows is what follows the failure of the last.
    let dead = Say::Late(LATE + 2_000, Box::new(Say::Fails(&[(ModelErrorKind::Rejected, Spent::Nothing); 9])));
    let (agent, records) = run(self::agent(vec![fails()], vec![dead])).await;
    assert_eq!((outcome(&records).reason, asked(&agent)), (StopReason::ProviderError, (1, 1)));
}

#[tokio::test(start_paused = true)]
async fn what_arrived_before_the_second_call_was_made_is_no_race() {
    // It pauses for ten seconds before its next attempt: an attempt that costs nothing.
    let (_, records) = run(agent(vec![Say::Pauses], vec![Say::Text(&["hello"])])).await;
    let [ended] = &dropped(&records)[..] else { panic!("{records:?}") };
    assert_eq!((ended.kept, ended.usage.total(), ended.unconfirmed.tokens), (KeptCall::Second, 0, 0));
    assert!(records.iter().any(|record| matches!(record.event, Event::ProviderRetry { .. })), "{records:?}");
    assert_eq!(outcome(&records).output_text, "hello");
}

#[tokio::test(start_paused = true)]
async fn a_budget_without_room_for_both_calls_gets_one() {
    let slow = || vec![Say::Late(LATE, Box::new(Say::Text(&["hello"])))];
    // Of the run: each call reserves 300 tokens of output and a little input.
    for (budget, hedges) in [(500, 0), (1_000, 1)] {
        let agent = agent(slow(), vec![Say::Silent]).begin();
        let limits = LimitsPatch { token_budget: Some(budget), ..LimitsPatch::default() };
        let mut new = request_with(limits);
        new.max_output_tokens = Some(300);
        let records = watch(agent.start(new, None).await.unwrap()).await;
        assert_eq!((started(&records).len(), outcome(&records).reason), (hedges, StopReason::Done), "{budget}");
    }
    // Of the key, and what stays charged to it.
    for (budget, hedges) in [(500, 0), (1_000, 1)] {
        let store = memory();
        let agent = agent(slow(), vec![Say::Silent]).store(store.clone()).quotas(quotas(tokens(budget))).begin();
        let records = watch(agent.start(keyed(), None).await.unwrap()).await;
        let end = outcome(&records);
        assert_eq!((started(&records).len(), end.reason), (hedges, StopReason::Done), "{budget}");
        assert_eq!(standing(&store).await, Vec::<String>::new(), "nothing stays reserved");
        let charged = count(&store, &counter(BudgetKind::Tokens)).await;
        assert_eq!(charged, end.usage.total() + end.budget.unconfirmed.tokens, "{budget}");
    }
    // Of the session.
    for (budget, hedges) in [(500, 0), (1_000, 1)] {
        let store = memory();
        let agent = agent(slow(), vec![Say::Silent]).store(store.clone()).begin();
        let (tenant, id) = (Tenant::default_tenant(), SessionId::mint());
        let new = NewSession { id: Some(id.clone()), token_budget: Some(budget), ..NewSession::default() };
        agent.sessions().create(&tenant, new).await.unwrap();
        let mut new = request();
        (new.session, new.max_output_tokens) = (Some(id.clone()), Some(300));
        let records = watch(agent.start(new, None).await.unwrap()).await;
        let end = outcome(&records);
        assert_eq!((started(&records).len(), end.reason), (hedges, StopReason::Done), "{budget}");
        let taken = store.counter(&keys::session_partition(&tenant, &id), &keys::session_tokens()).await.unwrap();
        assert_eq!(u64::try_from(taken).unwrap(), end.usage.total(), "{budget}");
    }
}

/// Each earns a tenth of a second call, and ten are there at first.
#[tokio::test(start_paused = true)]
async fn second_calls_are_bounded_as_retries_are_and_no_breaker_counts_the_call_that_is_dropped() {
    let agent = agent(vec![Say::Late(LATE, Box::new(Say::Text(&["hello"])))], vec![Say::Text(&["spare"])]);
    let agent = agent.guarded().begin();
    let (mut hedged, mut breakers) = (0, 0);
    for _ in 0..200 {
        let records = watch(agent.start(request(), None).await.unwrap()).await;
        assert_eq!(outcome(&records).reason, StopReason::Done);
        hedged += started(&records).len();
        breakers += records.iter().filter(|record| matches!(record.event, Event::ProviderFallback(_))).count();
    }
    assert!((20..=31).contains(&hedged), "{hedged} second calls of 200");
    assert_eq!((breakers, asked(&agent)), (0, (200, hedged)), "the first is asked again and again");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_while_two_calls_are_under_way_is_charged_for_both() {
    let agent = agent(vec![Say::Silent], vec![Say::Stall(&[])]).begin();
    let mut started = agent.start(request(), None).await.unwrap();
    let (tenant, run) = (request().tenant, started.head.id.clone());
    let begins = |record: &Arc<Record>| matches!(record.event, Event::HedgeStarted(_));
    while !started.follower.next().await.unwrap().unwrap().iter().any(begins) {}
    tokio::time::sleep(Duration::from_millis(100)).await;
    agent.runs().cancel(&tenant, &run).await.unwrap();
    let records = watch(started).await;
    let ([ended], end) = (&dropped(&records)[..], outcome(&records)) else { panic!("{records:?}") };
    assert_eq!((end.reason, ended.kept), (StopReason::Cancelled, KeptCall::First));
    assert_eq!(end.of_fallbacks[0].usage, ended.usage);
    assert!(end.usage.completion_tokens > 0 && ended.usage.completion_tokens == 0, "{end:?}");
}

/// Both calls may have been sent, so both are charged by what is known of them.
#[tokio::test(start_paused = true)]
async fn every_prefix_of_a_log_with_a_second_call_resumes_to_the_same_end() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = || agent(vec![Say::Stall(&[])], vec![call(), Say::Text(&["he", "llo"])]);
    let (spec, whole) = log_of(&agent().store(store.clone()).build(), &store).await;
    let at = |wanted: fn(&Event) -> bool| whole.iter().position(|record| wanted(&record.event)).unwrap();
    let begins = at(|event| matches!(event, Event::HedgeStarted(_)));
    let ends = at(|event| matches!(event, Event::HedgeEnded(_)));
    let input = dropped(&whole)[0].usage.prompt_tokens;
    for cut in 1..whole.len() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let other = agent().store(store.clone()).build();
        leave(&store, &spec, &whole[..cut]).await;
        let records = ended(&other, &spec.id).await;
        let end = outcome(&records);
        assert_eq!((end.reason, end.output_text.as_str()), (StopReason::Done, "hello"), "cut at {cut}");
        let hedges = dropped(&records);
        assert_eq!(hedges.len(), started(&records).len(), "cut at {cut}: {hedges:?}");
        let is_interrupted = cut > begins && cut <= ends;
        assert_eq!(hedges[0].kept == KeptCall::First, is_interrupted, "cut at {cut}");
        if is_interrupted {
            assert_eq!(hedges[0].usage.prompt_tokens, input, "cut at {cut}");
            assert!(hedges[0].unconfirmed.tokens > 0, "cut at {cut}");
        }
        let of_spare = &end.of_fallbacks[0];
        assert_eq!(of_spare.cost, Micros(of_spare.usage.total() * DEAR), "cut at {cut}");
        assert!(end.cost.0 - of_spare.cost.0 >= input * 3, "cut at {cut}: the first was asked too");
    }
}
