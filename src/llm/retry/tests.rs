use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::VecDeque;

use futures_util::stream;

use super::*;
use crate::llm::ModelTurn;
use crate::llm::testing::{self, always_asked};

type Item = Result<Delta, ModelError>;
type Attempt = Vec<Item>;

/// Plays one attempt after the other; panics when asked once too often.
#[derive(Debug)]
struct Scripted(Mutex<VecDeque<Attempt>>);

impl Model for Scripted {
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<String>, ModelError>> {
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
