use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::VecDeque;

use futures_util::stream;

use super::*;
use crate::llm::health::Health;
use crate::llm::health::breaker::BreakerPolicy;
use crate::llm::offered::OfferedModel;
use crate::llm::queue::{Queued, Slots};
use crate::llm::testing::{self, always_asked};
use crate::llm::{Extent, ModelTurn};
use crate::telemetry::metrics::CallQueueMetrics;

type Item = Result<Delta, ModelError>;
type Attempt = Vec<Item>;

/// Plays one attempt after the other; panics when asked once too often.
#[derive(Debug)]
struct Scripted(Mutex<VecDeque<Attempt>>);

impl Model for Scripted {
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn stream(&self, _: ModelRequest) -> DeltaStream {
        let attempt = self.0.lock().pop_front();
        Box::pin(stream::iter(attempt.expect("no further attempt was scripted")))
    }
}

fn retrying(scripted: &Arc<Scripted>) -> Retrying {
    Retrying::new(Arc::clone(scripted) as Arc<dyn Model>, RetryPolicy::default(), always_asked())
}

/// All that a caller sees of these attempts, with a deadline so long from now, and the time it took.
async fn play(attempts: Vec<Attempt>, deadline: Duration) -> (Attempt, Duration) {
    let began = Instant::now();
    let scripted = Arc::new(Scripted(Mutex::new(attempts.into())));
    let request = ModelRequest { max_tokens: Some(1), deadline: began + deadline, ..testing::request("m", []) };
    let seen = retrying(&scripted).stream(request);
    let seen = seen.collect().await;
    assert!(scripted.0.lock().is_empty(), "not every attempt was made");
    (seen, began.elapsed())
}

fn failure(kind: ModelErrorKind) -> Item {
    Err(ModelError::new(kind, "no luck"))
}

fn asking_for(seconds: u64) -> Item {
    let retry_after = Some(Duration::from_secs(seconds));
    failure(ModelErrorKind::Transient).map_err(|error| ModelError { retry_after, ..error })
}

fn text() -> Delta {
    Delta::Text("hi".to_owned())
}

fn finished() -> Delta {
    Delta::Finished(Box::new(ModelTurn::of("", "hi", Vec::new())))
}

/// The waits among what was seen, in whole attempts' order.
fn delays(seen: &Attempt) -> Vec<Duration> {
    let delays = seen.iter().enumerate().filter_map(|(at, item)| match item {
        Ok(Delta::Retry { attempt, delay, kind: _, cause }) => {
            assert_eq!((*attempt as usize, cause.as_str()), (at + 1, "no luck"));
            Some(*delay)
        }
        _ => None,
    });
    delays.collect()
}

const LONG: Duration = Duration::from_mins(5);

#[tokio::test(start_paused = true)]
async fn transient_failures_are_retried_three_times() {
    for kind in [ModelErrorKind::Transient, ModelErrorKind::Timeout] {
        let failed = || vec![failure(kind)];
        let (seen, took) = play(vec![failed(), failed(), failed(), vec![Ok(text()), Ok(finished())]], LONG).await;
        assert_eq!(seen[3..], [Ok(text()), Ok(finished())]);
        let waits = delays(&seen);
        for (wait, step) in waits.iter().zip([1, 2, 4]) {
            assert!((Duration::from_millis(step * 500)..=Duration::from_secs(step)).contains(wait), "{waits:?}");
        }
        assert!(took >= waits.iter().sum() && took < Duration::from_secs(8), "{took:?}");

        let (seen, _) = play(vec![failed(), failed(), failed(), failed()], LONG).await;
        assert_eq!((delays(&seen).len(), seen.last()), (3, Some(&failure(kind))));
    }
}

#[tokio::test(start_paused = true)]
async fn permanent_failures_are_not_retried() {
    for kind in [ModelErrorKind::Rejected, ModelErrorKind::ContextLength] {
        assert_eq!(play(vec![vec![failure(kind)]], LONG).await, (vec![failure(kind)], Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_may_have_cost_something_is_not_repeated() {
    for spent in [Spent::Input, Spent::Unknown] {
        for kind in [ModelErrorKind::Transient, ModelErrorKind::Timeout] {
            let attempt = vec![failure(kind).map_err(|error| error.having(spent))];
            assert_eq!(play(vec![attempt.clone()], LONG).await, (attempt, Duration::ZERO));
        }
    }
}

/// Whatever the failure is said to have cost.
#[tokio::test(start_paused = true)]
async fn an_attempt_whose_answer_began_is_not_repeated() {
    for begun in [Delta::Begun, text(), Delta::CallArguments { index: 0, delta: "{}".to_owned() }] {
        let failed = failure(ModelErrorKind::Transient);
        let (seen, took) = play(vec![vec![Ok(begun.clone()), failed.clone()]], LONG).await;
        let charged = failed.map_err(|error| error.having(Spent::Unknown));
        assert_eq!((seen, took), (vec![Ok(begun), charged], Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_just_ends_has_failed() {
    for said in [vec![], vec![Ok(text())]] {
        let (seen, _) = play(vec![said.clone()], LONG).await;
        assert_eq!(seen, said.into_iter().chain([Err(ended_early())]).collect::<Attempt>());
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_obeyed_if_the_deadline_allows() {
    let seconds = Duration::from_secs;
    let (seen, took) = play(vec![vec![asking_for(40)], vec![Ok(finished())]], LONG).await;
    assert_eq!(delays(&seen), [seconds(40)]);
    assert!(took >= seconds(40));

    let (seen, _) = play(vec![vec![asking_for(20)], vec![asking_for(20)], vec![asking_for(20)]], LONG).await;
    assert_eq!(delays(&seen), [seconds(20), seconds(20)], "the third would begin after the 45 s of the budget");

    assert_eq!(play(vec![vec![asking_for(46)]], LONG).await, (vec![asking_for(46)], Duration::ZERO));
    assert_eq!(play(vec![vec![asking_for(10)]], seconds(10)).await, (vec![asking_for(10)], Duration::ZERO));

    let (seen, _) = play(vec![vec![asking_for(0)], vec![Ok(finished())]], LONG).await;
    assert!(delays(&seen)[0] >= Duration::from_millis(500), "no wait at all is not a wait");
}

#[test]
fn waits_are_capped_and_never_overflow() {
    let policy = RetryPolicy { retries: u32::MAX, ..RetryPolicy::default() };
    let error = failure(ModelErrorKind::Transient).unwrap_err();
    for retry in [6, 32, u32::MAX] {
        assert_eq!(policy.delay(retry, &error, LONG, 1.0), Some(policy.cap));
        assert_eq!(policy.delay(retry, &error, LONG, 0.0), Some(policy.cap / 2));
    }
}

/// The health of an upstream whose breakers open at the first failure, for five seconds.
fn strict() -> Arc<UpstreamHealth> {
    let policy = BreakerPolicy {
        failures: 1,
        window_ms: 30_000,
        cooldown_ms: 5_000,
        most_cooldown_ms: 5_000,
        retry_percent: 10,
    };
    Health::default().of_upstream("u", "", policy)
}

/// All that a caller sees of a call of this model, with a deadline so long from now.
async fn call(inner: Arc<dyn Model>, health: &Arc<UpstreamHealth>, deadline: Duration) -> Attempt {
    let model = Retrying::new(inner, RetryPolicy { retries: 1, ..RetryPolicy::default() }, health.clone());
    model.stream(ModelRequest { deadline: Instant::now() + deadline, ..testing::request("m", []) }).collect().await
}

fn scripted(attempts: Vec<Attempt>) -> Arc<Scripted> {
    Arc::new(Scripted(Mutex::new(attempts.into())))
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_model_waits_for_its_turn_and_is_no_retry() {
    let health = strict();
    let attempts = vec![vec![failure(ModelErrorKind::Transient)], vec![Ok(finished())]];
    let seen = call(scripted(attempts), &health, LONG).await;
    let [
        Ok(Delta::Retry { attempt: 1, .. }),
        Ok(Delta::Queued),
        Ok(Delta::Dequeued { waited }),
        Ok(Delta::Finished(_)),
    ] = &seen[..]
    else {
        panic!("{seen:?}")
    };
    assert!((Duration::from_secs(4)..Duration::from_secs(6)).contains(waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_model_whose_rate_is_limited_fails_as_the_upstream_said_and_says_how_long() {
    let health = strict();
    let limited = asking_for(60).map_err(|error| ModelError { status: Some(429), ..error });
    call(scripted(vec![vec![limited]]), &health, LONG).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let seen = call(scripted(Vec::new()), &health, LONG).await;
    let [Err(error)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((error.status, error.class()), (Some(429), ErrorClass::RateLimited));
    assert_eq!(error.retry_after, Some(Duration::from_secs(59)));
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_the_same_model_do_not_come_back_together() {
    let (refusal, until) = (
        Refusal { class: ErrorClass::Overloaded, for_now: Duration::from_secs(5) },
        Until::new(RetryPolicy::default(), Instant::now() + LONG),
    );
    let waits: Vec<_> = (0..50).map(|_| until.wait(&refusal).unwrap()).collect();
    assert!(waits.iter().all(|wait| (refusal.for_now..=refusal.for_now + MOST_SPREAD).contains(wait)), "{waits:?}");
    let spread = waits.iter().max().unwrap().abs_diff(*waits.iter().min().unwrap());
    assert!(spread > Duration::from_millis(300), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_fault_of_the_model_says_nothing_of_it() {
    for (extent, counts) in
        [(Extent::Model, true), (Extent::Answer, true), (Extent::Address, false), (Extent::Connection, false)]
    {
        let health = strict();
        let failed = failure(ModelErrorKind::Transient).map_err(|error| ModelError { extent, ..error });
        call(scripted(vec![vec![failed.map_err(|error| error.having(Spent::Input))]]), &health, LONG).await;
        assert_eq!(health.refusal("m").is_some(), counts, "{extent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_no_room_until_its_time_is_up_says_nothing_of_its_model() {
    let (health, slots) = (strict(), Arc::new(Slots::new(Some(0), CallQueueMetrics::default())));
    let queued = Arc::new(Queued::new("u", scripted(Vec::new()), slots));
    let seen = call(queued, &health, Duration::from_secs(1)).await;
    assert!(matches!(&seen[..], [Ok(Delta::Queued), Err(error)] if error.kind == ModelErrorKind::Timeout), "{seen:?}");
    assert_eq!(health.refusal("m"), None);
}
