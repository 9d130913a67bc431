use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;

use super::*;
use crate::llm::Place;
use crate::llm::offered::OfferedModel;
use crate::llm::retry::{RetryPolicy, Retrying};
use crate::llm::testing::{self, always_asked};
use crate::telemetry::metrics::CallQueueMetrics;
use crate::types::{Role, Tenant};

/// A model whose answers end when the test says so.
#[derive(Debug, Default)]
struct Slow {
    /// The tenants that were answered, in order.
    asked: Mutex<Vec<Tenant>>,
}

impl Model for Slow {
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn stream(&self, request: ModelRequest) -> DeltaStream {
        self.asked.lock().push(request.tenant);
        stream::iter([Ok(Delta::Begun)]).chain(stream::pending()).boxed()
    }
}

fn request(tenant: &str, patience: Duration) -> ModelRequest {
    ModelRequest {
        tenant: Tenant::parse(tenant).unwrap(),
        deadline: Instant::now() + patience,
        ..testing::request("m", [])
    }
}

const LONG: Duration = Duration::from_secs(600);

fn queued(capacity: u32) -> (Arc<Slow>, Arc<Slots>, Queued) {
    let (slow, slots) = (Arc::new(Slow::default()), Arc::new(Slots::new(Some(capacity), CallQueueMetrics::default())));
    let model = Queued::new("u", slow.clone(), slots.clone());
    (slow, slots, model)
}

/// Everything that a stream has to say by now.
fn said(deltas: &mut DeltaStream) -> Vec<Result<Delta, ModelError>> {
    std::iter::from_fn(|| deltas.next().now_or_never().flatten()).collect()
}

fn begins(deltas: &mut DeltaStream) -> bool {
    said(deltas).contains(&Ok(Delta::Begun))
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_slot_and_holds_it_until_its_stream_is_dropped() {
    let (slow, slots, model) = queued(2);
    let mut streams: Vec<_> = (0..3).map(|_| model.stream(request("a", LONG))).collect();
    assert_eq!(streams.iter_mut().map(begins).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!((slots.used(), slow.asked.lock().len()), ((2, 1), 2));
    tokio::time::advance(Duration::from_secs(3)).await;
    drop(streams.remove(0));
    assert_eq!(said(&mut streams[1]), [Ok(Delta::Dequeued { waited: Duration::from_secs(3) }), Ok(Delta::Begun)]);
    drop(streams);
    assert_eq!(slots.used(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_waits_for_one_call_of_each_other_tenant_at_most() {
    let (slow, slots, model) = queued(1);
    let mut first = model.stream(request("a", LONG));
    let mut waiting: Vec<_> = (0..100).map(|_| model.stream(request("a", LONG))).collect();
    waiting.extend(["b", "c"].map(|tenant| model.stream(request(tenant, LONG))));
    assert!(begins(&mut first) && !waiting.iter_mut().any(begins));
    drop(first);
    while slow.asked.lock().len() < 6 {
        let place = waiting.iter_mut().position(begins).expect("one of them has its turn");
        drop(waiting.remove(place));
    }
    let asked: Vec<_> = slow.asked.lock().iter().map(ToString::to_string).collect();
    assert_eq!(asked, ["a", "a", "b", "c", "a", "a"]);
    assert_eq!(slots.used(), (1, 96));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gives_up_leaves_the_queue_or_passes_its_turn_on() {
    let (_, slots, model) = queued(1);
    let first = model.stream(request("a", LONG));
    let [second, third] = ["a", "b"].map(|tenant| model.stream(request(tenant, LONG)));
    drop(second);
    assert_eq!(slots.used(), (1, 1));
    let mut fourth = model.stream(request("c", LONG));
    // The third has its turn, and never learns of it.
    drop(first);
    assert_eq!(slots.used(), (1, 1));
    drop(third);
    assert!(begins(&mut fourth));
    drop(fourth);
    assert_eq!(slots.used(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_until_the_deadline_of_its_request() {
    let (_, slots, model) = queued(1);
    let _first = model.stream(request("a", LONG));
    let late: Vec<_> = model.stream(request("a", Duration::from_secs(5))).collect().await;
    let [Ok(Delta::Queued), Err(error)] = &late[..] else { panic!("{late:?}") };
    assert_eq!((error.kind, error.spent), (ModelErrorKind::Timeout, crate::llm::Spent::Nothing));
    assert_eq!(error.message, "upstream u had no room for another call until the time for it was up");
    assert_eq!(slots.used(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_slots_can_change_while_calls_are_under_way() {
    let (_, slots, model) = queued(1);
    let mut streams: Vec<_> = (0..5).map(|_| model.stream(request("a", LONG))).collect();
    assert_eq!(slots.used(), (1, 4));
    slots.resize(Some(3));
    assert_eq!(slots.used(), (3, 2));
    slots.resize(Some(1));
    drop(streams.remove(0));
    assert_eq!(slots.used(), (2, 2), "none begins before two more have ended");
    slots.resize(None);
    assert_eq!(slots.used(), (4, 0));
    assert!(streams.iter_mut().all(begins));
}

/// While it waits for its turn a call makes no attempt, so a long queue takes no attempts from it.
#[tokio::test(start_paused = true)]
async fn the_time_for_attempts_begins_with_the_first_one() {
    /// Fails once, and then answers.
    #[derive(Debug, Default)]
    struct Limited(Mutex<u32>);
    impl Model for Limited {
        fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
            Box::pin(std::future::ready(Ok(Vec::new())))
        }

        fn stream(&self, _: ModelRequest) -> DeltaStream {
            *self.0.lock() += 1;
            let is_first = *self.0.lock() == 1;
            let answer = Ok(Delta::Finished(Box::default()));
            let limited = Err(ModelError::new(ModelErrorKind::Transient, "slow down"));
            stream::iter([if is_first { limited } else { answer }]).boxed()
        }
    }
    let slots = Arc::new(Slots::new(Some(1), CallQueueMetrics::default()));
    let queued = Queued::new("u", Arc::new(Limited::default()), slots.clone());
    let Entry::Slot(slot) = slots.enter(&Tenant::default_tenant()) else { panic!("a slot is free") };
    let policy = RetryPolicy { budget: Duration::from_secs(45), ..RetryPolicy::default() };
    let deltas = Retrying::new(Arc::new(queued), policy, always_asked()).stream(request("a", LONG));
    let frees = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(slot);
    };
    let (deltas, ()) = tokio::join!(deltas.collect::<Vec<_>>(), frees);
    assert!(matches!(deltas.last(), Some(Ok(Delta::Finished(_)))), "{deltas:?}");
}

/// Whatever stands around a model, a request is refused for the same before anything is spent.
#[test]
fn what_a_model_cannot_take_is_known_of_it_behind_a_queue_too() {
    #[derive(Debug)]
    struct Choosy;
    impl Model for Choosy {
        fn list_models(&self) -> BoxFuture<'_, Result<Vec<OfferedModel>, ModelError>> {
            Box::pin(std::future::ready(Ok(Vec::new())))
        }

        fn stream(&self, _: ModelRequest) -> DeltaStream {
            stream::pending().boxed()
        }

        fn refuses_part(&self, _: &Message) -> Option<(usize, String)> {
            Some((1, "no".to_owned()))
        }

        fn refuses(&self, _: &Sampling, _: &[Message]) -> Option<Unsupported> {
            Some(Unsupported { place: Place::Member("n"), message: "no".to_owned() })
        }

        fn unsent<'s>(&self, _: &str, _: &'s Sampling) -> Vec<&'s str> {
            vec!["top_k"]
        }

        fn may_answer_in_one_piece(&self) -> bool {
            true
        }

        fn has_elsewhere(&self) -> bool {
            true
        }

        fn written_calls(&self) -> WrittenCalls {
            WrittenCalls::All
        }
    }
    let slots = Arc::new(Slots::new(Some(1), CallQueueMetrics::default()));
    let queued: Arc<dyn Model> = Arc::new(Queued::new("u", Arc::new(Choosy), slots));
    let retrying: Arc<dyn Model> = Arc::new(Retrying::new(queued.clone(), RetryPolicy::default(), always_asked()));
    let (message, sampling) = (Message::text(Role::User, "hi"), Sampling::default());
    for model in [Arc::new(Choosy) as Arc<dyn Model>, queued, retrying] {
        assert_eq!(model.refuses_part(&message), Some((1, "no".to_owned())), "{model:?}");
        assert!(model.refuses(&sampling, &[]).is_some(), "{model:?}");
        assert_eq!(model.unsent("m", &sampling), ["top_k"], "{model:?}");
        assert!(model.may_answer_in_one_piece() && model.has_elsewhere(), "{model:?}");
        assert_eq!(model.written_calls(), WrittenCalls::All, "{model:?}");
    }
}
