//! Models that fail are left alone by all replicas that share a store, and one call of all of them together finds out whether
//! they are well again.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::support::{Say, TestAgent, outcome, request, request_with, watch};
use crate::agent::LimitsPatch;
use crate::agent::ledger::keys;
use crate::config::ModelConfig;
use crate::llm::error_class::ErrorClass;
use crate::llm::health::breaker::{Known, Opening, Standing};
use crate::llm::health::shared::Target;
use crate::llm::{ModelErrorKind, Spent};
use crate::store::layer::StoreLayer;
use crate::store::memory::MemoryStore;
use crate::store::{Partition, Store, Unavailable};
use crate::types::{Event, Message, Record, Role, StopReason};

/// A store that replicas share, and how often it was asked for the health of upstreams.
#[derive(Debug, Default)]
struct Shared {
    inner: MemoryStore,
    asked: AtomicU32,
}

#[async_trait]
impl StoreLayer for Shared {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn has_others(&self) -> bool {
        true
    }

    async fn pass(&self, partition: Option<&Partition>) -> Result<(), Unavailable> {
        self.asked.fetch_add(u32::from(partition == Some(&keys::health_partition())), Relaxed);
        Ok(())
    }
}

/// A replica whose model fails so often, and whose spare answers.
fn replica(store: &Arc<Shared>, failures: &'static [(ModelErrorKind, Spent)]) -> TestAgent {
    let agent = TestAgent::builder().store(store.clone()).guarded().turns(vec![Say::Fails(failures)]);
    agent.spare(vec![Say::Text(&["spare"])], ModelConfig::default()).begin()
}

const DOWN: &[(ModelErrorKind, Spent)] = &[(ModelErrorKind::Transient, Spent::Nothing); 1_000];

async fn run(agent: &TestAgent) -> Vec<Record> {
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!(outcome(&records).reason, StopReason::Done);
    records
}

/// How often its own model was asked since the last time.
fn asked(agent: &TestAgent) -> usize {
    std::mem::take(&mut *agent.model.requests.lock()).len()
}

fn standing(agent: &TestAgent) -> Vec<Standing> {
    agent.generation().health.standings().into_iter().map(|model| model.standing).collect()
}

/// Lets so much time pass, on the wall clock too, from which a store in memory tells the time.
async fn pass(time: Duration) {
    const BIT_MS: u64 = 50;
    for _ in 0..u64::try_from(time.as_millis()).unwrap() / BIT_MS {
        tokio::time::sleep(Duration::from_millis(BIT_MS)).await;
        SHIFTED.set(SHIFTED.get() + BIT_MS.cast_signed());
        crate::types::clock::shift(SHIFTED.get());
    }
}

thread_local! {
    static SHIFTED: Cell<i64> = const { Cell::new(0) };
}

/// Until nudges have reached everyone.
async fn nudged() {
    pass(Duration::from_millis(100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_is_left_alone_by_all_replicas_and_probed_by_one() {
    let store = Arc::new(Shared::default());
    let replicas = [replica(&store, DOWN), replica(&store, DOWN), replica(&store, DOWN)];
    for _ in 0..3 {
        run(&replicas[0]).await;
    }
    assert_eq!(asked(&replicas[0]), 5, "each failure was repeated once until five had opened the breaker");
    nudged().await;
    for replica in &replicas {
        assert_eq!(standing(replica), [Standing::Open]);
        let records = run(replica).await;
        let told = records.iter().find_map(|record| match &record.event {
            Event::ProviderFallback(fell_back) => Some(fell_back.clone()),
            _ => None,
        });
        let told = told.expect("it tells why its model is not asked");
        assert_eq!((told.step, told.to.full_name().as_str()), (0, "spare0/s"));
        assert!(told.cause.starts_with("upstream scripted is left alone: it is not asked for "), "{told:?}");
        assert!(told.cause.ends_with(" s, because it cannot be reached"), "{told:?}");
        assert!(!records.iter().any(|record| matches!(record.event, Event::StepDiscarded { .. })));
        assert_eq!(asked(replica), 0);
    }
    for cooldown in [5, 10, 20] {
        pass(Duration::from_secs(cooldown)).await;
        join_all(replicas.iter().flat_map(|replica| (0..5).map(move |_| run(replica)))).await;
        nudged().await;
        let probes: usize = replicas.iter().map(asked).sum();
        assert_eq!(probes, 1, "after {cooldown} s one call probes it");
        join_all(replicas.iter().map(run)).await;
        assert_eq!(replicas.iter().map(asked).sum::<usize>(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_answered_lets_all_replicas_ask_again() {
    const FOUR: &[(ModelErrorKind, Spent)] = &[(ModelErrorKind::Transient, Spent::Nothing); 5];
    let store = Arc::new(Shared::default());
    let (one, other) = (replica(&store, FOUR), replica(&store, &[]));
    for _ in 0..3 {
        run(&one).await;
    }
    nudged().await;
    run(&other).await;
    assert_eq!((asked(&one), asked(&other)), (5, 0));
    pass(Duration::from_secs(5)).await;
    assert_eq!(outcome(&run(&one).await).output_text, "at last");
    nudged().await;
    assert_eq!((standing(&one), standing(&other)), (vec![Standing::Closed], vec![Standing::Closed]));
    assert_eq!(outcome(&run(&other).await).output_text, "at last");
    assert_eq!((asked(&one), asked(&other)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn models_that_are_well_cost_the_store_nothing_but_a_look_now_and_then() {
    let store = Arc::new(Shared::default());
    let agent = replica(&store, &[]);
    run(&agent).await;
    let before = store.asked.load(Relaxed);
    let since = tokio::time::Instant::now();
    for _ in 0..100 {
        run(&agent).await;
    }
    tokio::time::sleep(Duration::from_secs(50)).await;
    let looks = since.elapsed().as_secs() / 30 + 1;
    assert!(u64::from(store.asked.load(Relaxed) - before) <= looks, "{looks}");
    assert_eq!(standing(&agent), []);
}

/// Without another model a run waits for the breaker, as long as for any retry, and then fails with the time to wait.
#[tokio::test(start_paused = true)]
async fn a_run_without_another_model_waits_for_its_own_and_then_fails() {
    let store = Arc::new(Shared::default());
    let agent = || TestAgent::builder().store(store.clone()).guarded();
    let down = agent().turns(vec![Say::Fails(DOWN)]).begin();
    let failed = async || outcome(&watch(down.start(request(), None).await.unwrap()).await);
    let first = failed().await;
    assert_eq!((first.reason, asked(&down)), (StopReason::ProviderError, 4), "an attempt and three retries");
    let second = failed().await;
    assert_eq!(second.reason, StopReason::ProviderError);
    assert!(asked(&down) <= 3, "one that opens the breaker, and probes");
    let left_alone = failed().await;
    let error = left_alone.error.unwrap();
    assert!(error.message.contains("upstream scripted is left alone") && error.retry_after_ms > Some(0), "{error:?}");
    assert_eq!(asked(&down), 0);
}

/// It neither fails before it has waited nor keeps a processor busy until then.
#[tokio::test(start_paused = true)]
async fn a_run_that_outgrew_its_model_waits_for_a_larger_one_that_is_left_alone() {
    let wide = ModelConfig { context_window: Some(1_000_000), ..ModelConfig::default() };
    for (seconds, expected) in [(5, StopReason::Done), (60, StopReason::ProviderError)] {
        let agent = TestAgent::builder().guarded().spare(vec![Say::Text(&["hello"])], wide.clone()).begin();
        let target = Target { upstream: "spare0".into(), fingerprint: "".into(), model: "s".into() };
        let opening = Opening { class: ErrorClass::Overloaded, streak: 1, until_ms: seconds * 1_000 };
        let health = &agent.generation().health;
        health.learn(health.tick(), &HashMap::from([(target, Known { opening, probed_until_ms: None })]), true);
        let mut new = request();
        new.messages = vec![Message::text(Role::User, &"long ".repeat(200_000))];
        let since = tokio::time::Instant::now();
        let end = outcome(&watch(agent.start(new, None).await.unwrap()).await);
        assert_eq!(end.reason, expected);
        assert_eq!(agent.spares[0].requests.lock().len(), usize::from(expected == StopReason::Done));
        assert_eq!(asked(&agent), 0);
        match end.error {
            None => assert!(since.elapsed() >= Duration::from_secs(seconds)),
            Some(error) => assert!(error.message.contains("upstream spare0 is left alone"), "{error:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_with_another_model_where_its_own_has_earned_no_retry() {
    const BREAKS: &[(ModelErrorKind, Spent)] = &[(ModelErrorKind::Transient, Spent::Input)];
    let agent = TestAgent::builder().guarded().turns(vec![Say::Fails(BREAKS)]);
    let agent = agent.spare(vec![Say::Text(&["spare"])], ModelConfig::default()).begin();
    let generation = agent.generation();
    while generation.catalog.model("scripted").take_retry() {}
    assert_eq!(outcome(&run(&agent).await).output_text, "spare");
    assert_eq!(asked(&agent), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_its_caller_gave_too_little_time_says_nothing_of_its_model() {
    let agent = TestAgent::builder().guarded().turns(vec![Say::Deadline(&[])]).begin();
    let short = LimitsPatch { timeout_ms: Some(50), ..LimitsPatch::default() };
    for _ in 0..10 {
        let end = outcome(&watch(agent.start(request_with(short), None).await.unwrap()).await);
        assert_eq!(end.reason, StopReason::Timeout);
    }
    assert_eq!(asked(&agent), 10);
    assert!(!standing(&agent).contains(&Standing::Open));
}

/// More than there are retries at first.
#[tokio::test(start_paused = true)]
async fn runs_whose_answers_break_off_at_once_all_go_on_as_those_before_them_are_answered() {
    const BREAK: &[(ModelErrorKind, Spent)] = &[(ModelErrorKind::Transient, Spent::Input); 40];
    let agent = TestAgent::builder().guarded().turns(vec![Say::Fails(BREAK)]).begin();
    let ended = join_all((0..40).map(|_| async { outcome(&watch(agent.start(request(), None).await.unwrap()).await) }));
    assert!(ended.await.iter().all(|end| end.reason == StopReason::Done));
    assert_eq!(asked(&agent), 80);
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_for_its_retry_until_calls_have_earned_one_and_not_for_ever() {
    const BREAKS: &[(ModelErrorKind, Spent)] = &[(ModelErrorKind::Transient, Spent::Input)];
    for (others, expected) in [(10, StopReason::Done), (0, StopReason::ProviderError)] {
        let agent = TestAgent::builder().guarded().turns(vec![Say::Fails(BREAKS)]).begin();
        while agent.generation().catalog.model("scripted").take_retry() {}
        let since = tokio::time::Instant::now();
        let waits = agent.start(request(), None).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..others {
            run(&agent).await;
        }
        assert_eq!(outcome(&watch(waits).await).reason, expected);
        let took = since.elapsed();
        assert!((expected == StopReason::Done) == (took < Duration::from_secs(3)), "{took:?}");
        assert!(took < Duration::from_secs(47), "{took:?}");
        assert_eq!(asked(&agent), 1 + others + usize::from(expected == StopReason::Done));
    }
}
