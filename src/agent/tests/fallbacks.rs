//! Runs whose model fails go on with another one, at its price and within their budgets, whichever replica drives them.

use std::sync::Arc;

use parking_lot::Mutex;

use super::quota::{keyed, quotas};
use super::resume::{ended, leave, log_of};
use super::support::{Say, TestAgent, TestAgentBuilder, outcome, request, request_with, shown, watch};
use crate::agent::LimitsPatch;
use crate::agent::ledger::log::decode;
use crate::config::{Allotment, ModelConfig, QuotaConfig};
use crate::llm::{ModelErrorKind, Spent};
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::store::{Store, Write};
use crate::types::event::DiscardReason;
use crate::types::fallback::FellBack;
use crate::types::{ErrorKind, Event, Micros, Price, Record, StopReason};

/// A model that never answers, though it is asked at no cost.
const DEAD: Say = Say::Fails(&[(ModelErrorKind::Rejected, Spent::Nothing); 9]);

fn call() -> Say {
    Say::Calls("", vec![("echo", r#"{"n":1}"#)])
}

/// A model with this price for a million tokens.
fn at(usd: f64) -> ModelConfig {
    ModelConfig { price: Some(Price::from_usd(usd, usd, usd)), ..ModelConfig::default() }
}

fn fell_back(records: &[Record]) -> Vec<FellBack> {
    let all = records.iter().filter_map(|record| match &record.event {
        Event::ProviderFallback(fell_back) => Some((**fell_back).clone()),
        _ => None,
    });
    all.collect()
}

async fn run(agent: TestAgentBuilder) -> (TestAgent, Vec<Record>) {
    run_with(agent, LimitsPatch::default()).await
}

async fn run_with(agent: TestAgentBuilder, limits: LimitsPatch) -> (TestAgent, Vec<Record>) {
    let agent = agent.begin();
    let records = watch(agent.start(request_with(limits), None).await.unwrap()).await;
    (agent, records)
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_with_the_next_model_and_stays_with_it() {
    let agent = TestAgent::builder().turns(vec![DEAD]).spare(vec![call(), Say::Text(&["hello"])], at(1_000.0));
    let (agent, records) = run(agent).await;
    let (end, fell_back) = (outcome(&records), fell_back(&records));
    assert_eq!((end.reason, shown(&records).as_str()), (StopReason::Done, "hello"));
    let [FellBack { step: 1, to, from_upstream, from_model, attempt: 1, kind, .. }] = &fell_back[..] else {
        panic!("{fell_back:?}")
    };
    assert_eq!((to.full_name().as_str(), from_upstream.as_str(), from_model.as_str()), ("spare0/s", "scripted", "m"));
    assert_eq!(*kind, ErrorKind::UpstreamRejected);
    assert_eq!((agent.model.requests.lock().len(), agent.spares[0].requests.lock().len()), (1, 2));
    let asked: Vec<_> =
        agent.spares[0].requests.lock().iter().map(|request| (request.model.clone(), request.has_fallback)).collect();
    assert_eq!(
        asked,
        [("s".to_owned(), false), ("s".to_owned(), true)],
        "once it answered, the first may be asked again"
    );
    let steps: Vec<_> = end.report.steps.iter().map(|step| (step.index, step.fallback.as_deref())).collect();
    assert_eq!(steps, [(2, Some("spare0/s")), (3, Some("spare0/s"))]);
    assert_eq!(end.cost, Micros(end.usage.total() * 1_000), "the model's price counts that answered");
    assert_eq!(end.of_fallbacks.len(), 1);
    assert_eq!((end.of_fallbacks[0].usage, end.of_fallbacks[0].cost), (end.usage, end.cost));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_broke_off_is_void_and_is_asked_of_the_same_model_once_more_before_another_is() {
    let agent = TestAgent::builder().turns(vec![Say::Break(&["he"])]).spare(vec![Say::Text(&["hello"])], at(1.0));
    let (agent, records) = run(agent).await;
    let told = records.iter().filter_map(|record| match &record.event {
        Event::StepStarted { step, .. } => Some(format!("step {step}")),
        Event::StepDiscarded { step, reason: DiscardReason::StreamBroke, .. } => Some(format!("void {step}")),
        Event::ProviderFallback(fell_back) => Some(fell_back.to.full_name()),
        _ => None,
    });
    let told: Vec<_> = told.collect();
    assert_eq!(told, ["step 1", "void 1", "step 2", "void 2", "spare0/s", "step 3"]);
    assert_eq!((outcome(&records).output_text.as_str(), agent.model.requests.lock().len()), ("hello", 2));
}

#[tokio::test(start_paused = true)]
async fn every_model_is_left_once_until_one_answers() {
    let dead = TestAgent::builder().turns(vec![DEAD]).spare(vec![DEAD], at(1.0)).spare(vec![DEAD], at(1.0));
    let (_, records) = run(dead).await;
    let to: Vec<_> = fell_back(&records).iter().map(|fell_back| fell_back.to.full_name()).collect();
    assert_eq!(to, ["spare0/s", "spare1/s"]);
    assert_eq!(outcome(&records).reason, StopReason::ProviderError);
    // The spare answers once, then fails; the run's own model is asked again, which has come back.
    let own = vec![Say::Fails(&[(ModelErrorKind::Rejected, Spent::Nothing)]), Say::Text(&["hello"])];
    let agent = TestAgent::builder().turns(own).spare(vec![call(), DEAD], at(1.0));
    let (_, records) = run(agent).await;
    let to: Vec<_> =
        fell_back(&records).iter().map(|fell_back| (fell_back.to.full_name(), fell_back.attempt)).collect();
    assert_eq!(to, [("spare0/s".to_owned(), 1), ("scripted/m".to_owned(), 1)]);
    assert_eq!(outcome(&records).output_text, "hello");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_too_dear_or_too_small_is_passed_over_with_the_reason() {
    let small = ModelConfig { context_window: Some(1), ..at(1.0) };
    let agent = TestAgent::builder()
        .turns(vec![DEAD])
        .spare(vec![], at(100_000.0))
        .spare(vec![], small)
        .spare(vec![Say::Text(&["hello"])], at(1.0));
    let limits = LimitsPatch { cost_budget: Some(Micros(1_000_000)), ..LimitsPatch::default() };
    let (agent, records) = run_with(agent, limits).await;
    let fell_back = fell_back(&records);
    assert_eq!((fell_back.len(), fell_back[0].to.full_name().as_str()), (1, "spare2/s"));
    assert_eq!(fell_back[0].skipped.len(), 2, "{fell_back:?}");
    assert!(fell_back[0].skipped[0].contains("spare0/s: the run's cost budget"), "{fell_back:?}");
    assert!(fell_back[0].skipped[1].contains("spare1/s: the conversation has about"), "{fell_back:?}");
    assert!(agent.spares[..2].iter().all(|spare| spare.requests.lock().is_empty()));
    assert_eq!(outcome(&records).output_text, "hello");
    let agent = TestAgent::builder().turns(vec![DEAD]).spare(vec![], at(100_000.0));
    let (_, records) = run_with(agent, limits).await;
    let end = outcome(&records);
    assert_eq!(end.reason, StopReason::ProviderError);
    let message = end.error.unwrap().message;
    assert!(message.contains("it failed") && message.contains("spare0/s: the run's cost budget"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_outgrows_its_model_goes_on_with_a_larger_one() {
    let wide = ModelConfig { context_window: Some(1_000_000), ..at(1.0) };
    let agent = TestAgent::builder().turns(vec![Say::Text(&["no"])]).spare(vec![Say::Text(&["hello"])], wide).begin();
    let mut new = request();
    new.messages = vec![crate::types::Message::text(crate::types::Role::User, &"long ".repeat(200_000))];
    let records = watch(agent.start(new, None).await.unwrap()).await;
    assert_eq!(outcome(&records).output_text, "hello");
    assert!(agent.model.requests.lock().is_empty());
    assert_eq!(fell_back(&records)[0].kind, ErrorKind::ContextLength);
}

#[tokio::test(start_paused = true)]
async fn every_prefix_of_a_log_with_a_fallback_resumes_to_the_same_end() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let agent = || {
        let spoken = vec![call(), Say::Text(&["he", "llo"])];
        TestAgent::builder().turns(vec![DEAD]).spare(spoken, at(1_000.0))
    };
    let (spec, whole) = log_of(&agent().store(store.clone()).build(), &store).await;
    let at = whole.iter().position(|record| matches!(record.event, Event::ProviderFallback(_))).unwrap();
    assert!(matches!(whole[at - 1].event, Event::StepDiscarded { .. }));
    for cut in 1..whole.len() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let other = agent().store(store.clone()).build();
        leave(&store, &spec, &whole[..cut]).await;
        let records = ended(&other, &spec.id).await;
        let end = outcome(&records);
        assert_eq!((end.reason, end.output_text.as_str()), (StopReason::Done, "hello"), "cut at {cut}");
        assert_eq!(fell_back(&records).len(), 1, "cut at {cut}");
        let asked_again = usize::from(cut <= at);
        assert_eq!(other.model.requests.lock().len(), asked_again, "cut at {cut}");
        assert!(end.report.steps.iter().all(|step| step.fallback.as_deref() == Some("spare0/s")), "cut at {cut}");
        let of_spare = &end.of_fallbacks[0];
        assert_eq!(of_spare.cost, Micros(of_spare.usage.total() * 1_000), "cut at {cut}");
        assert_eq!(end.cost.0 - of_spare.cost.0, (end.usage.total() - of_spare.usage.total()) * 3, "cut at {cut}");
    }
}

/// What the key has left need not be enough for the dearest of the models.
#[tokio::test(start_paused = true)]
async fn a_model_that_the_budget_of_the_key_has_no_room_for_is_left_for_one_that_it_has_room_for() {
    let cents = Allotment { limit: Micros(50_000), per: None };
    let quota = QuotaConfig { cost_budget: Some(cents), ..QuotaConfig::default() };
    let agent = TestAgent::builder().turns(vec![DEAD]).quotas(quotas(quota));
    let agent = agent.spare(vec![], at(1_000.0)).spare(vec![], at(500.0)).spare(vec![Say::Text(&["hello"])], at(1.0));
    let agent = agent.begin();
    let records = watch(agent.start(keyed(), None).await.unwrap()).await;
    let fell_back = fell_back(&records);
    let to: Vec<_> = fell_back.iter().map(|fell_back| fell_back.to.full_name()).collect();
    assert_eq!((to, outcome(&records).output_text.as_str()), (vec!["spare0/s".into(), "spare2/s".into()], "hello"));
    assert_eq!(fell_back[1].cause, "a budget of the key has no room for s");
    assert_eq!(fell_back[1].skipped, ["spare1/s: the key's cost budget has no room for it"]);
    assert!(agent.spares[..2].iter().all(|spare| spare.requests.lock().is_empty()));
}

/// The call that failed is charged as well.
#[tokio::test(start_paused = true)]
async fn a_model_is_passed_over_that_no_budget_has_room_for_once_the_call_that_failed_is_charged() {
    const SENT: Say = Say::Fails(&[(ModelErrorKind::Rejected, Spent::Input); 9]);
    let mut passed_over = 0;
    for budget in (10_000..60_000).step_by(100) {
        let agent = TestAgent::builder().turns(vec![SENT]).spare(vec![Say::Text(&["dear"])], at(100.0));
        let limits = LimitsPatch { cost_budget: Some(Micros(budget)), ..LimitsPatch::default() };
        let (_, records) = run_with(agent.spare(vec![Say::Text(&["hello"])], at(1.0)), limits).await;
        let end = outcome(&records);
        assert_eq!((end.reason, fell_back(&records).len()), (StopReason::Done, 1), "{budget}: {end:?}");
        passed_over += usize::from(end.output_text == "hello");
    }
    assert!((1..500).contains(&passed_over), "{passed_over}");
}

#[tokio::test(start_paused = true)]
async fn a_step_is_void_and_its_model_is_left_in_one_commit() {
    let store = Faulty::memory();
    let (commits, seen) = (Arc::new(Mutex::new(Vec::new())), store.clone());
    let told = commits.clone();
    seen.follow(move |tx| {
        let entries = tx.writes.iter().flat_map(|write| match write {
            Write::Append { entries, .. } => entries.as_slice(),
            _ => &[],
        });
        told.lock().push(entries.filter_map(|entry| decode(entry).ok()).map(|record| record.event).collect::<Vec<_>>());
        Fate::Happens
    });
    let agent = TestAgent::builder().store(store).turns(vec![DEAD]).spare(vec![Say::Text(&["hello"])], at(1.0));
    run(agent).await;
    let voided = |events: &&Vec<Event>| events.iter().any(|event| matches!(event, Event::StepDiscarded { .. }));
    let commits = commits.lock();
    let commit = commits.iter().find(voided).expect("it is recorded");
    assert!(commit.iter().any(|event| matches!(event, Event::ProviderFallback(_))), "{commit:?}");
}
