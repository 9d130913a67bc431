//! Steps that began, and whose model was never called: they cost nothing, whichever replica ends them.

use std::time::Duration;

use tokio::time::Instant;

use super::fencing::records;
use super::link::Link;
use super::replicas::{shared, tenant};
use super::support::{Say, TestAgent, request};
use crate::agent::error::StartError;
use crate::agent::ledger::{keys, log};
use crate::agent::{LimitsPatch, NewRun};
use crate::store::Store as _;
use crate::store::faulty::{Fate, Faulty};
use crate::types::{Event, Message, Outcome, Role, RunId, SessionId, StopReason};

/// A driver that heard of nothing for so long calls nothing any more.
const TOO_LONG: Duration = Duration::from_millis(8_500);

/// A request whose budget has room for its call once: 3,600 bytes are 900 tokens and a margin.
fn tight() -> NewRun {
    let limits = LimitsPatch { token_budget: Some(2_000), ..LimitsPatch::default() };
    NewRun { limits, messages: vec![Message::text(Role::User, &"x".repeat(3_600))], ..request() }
}

/// How a run ended that replicas had half a minute for.
async fn outcome_at(agent: &TestAgent, run: &RunId) -> Outcome {
    tokio::time::sleep(Duration::from_secs(30)).await;
    agent.runs().get(&tenant(), run).await.unwrap().outcome.expect("it has ended")
}

/// What the run is charged is what its one call took.
fn assert_charged_once(outcome: &Outcome) {
    assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::Done, "hi"), "{outcome:?}");
    let charged = (outcome.usage.total(), outcome.usage.estimated, outcome.budget.unconfirmed.tokens);
    assert_eq!(charged, (15, false, 0));
}

fn begins_a_run(event: &Event) -> bool {
    matches!(event, Event::StepStarted { step: 1, .. })
}

fn begins_the_second_step(event: &Event) -> bool {
    matches!(event, Event::StepStarted { step: 2, .. })
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_stored_without_an_answer_is_charged_what_it_took_once_it_is_driven() {
    for session in [None, Some(SessionId::parse("s").unwrap())] {
        let faulty = Faulty::memory();
        let agent = TestAgent::builder().store(faulty.clone()).turns(vec![Say::Text(&["hi"])]).begin();
        faulty.next(records(begins_a_run), Fate::FailsAfterwards);
        let new = NewRun { session: session.clone(), ..tight() };
        let run = new.id.clone();
        let refused = agent.start(new, None).await;
        assert!(matches!(refused, Err(StartError::Store(_))), "{refused:?}");
        assert_charged_once(&outcome_at(&agent, &run).await);
        assert_eq!(agent.model.requests.lock().len(), 1);
        let partition = keys::run_partition(&tenant(), session.as_ref(), &run);
        let of_session = faulty.counter(&partition, &keys::session_tokens()).await.unwrap();
        assert_eq!(of_session, if session.is_some() { 15 } else { 0 });
    }
}

/// As when a primary of the store dies just after it stored the run, and another takes its place later.
#[tokio::test(start_paused = true)]
async fn the_same_holds_if_the_store_answers_only_much_later() {
    let faulty = Faulty::memory();
    let agent = TestAgent::builder().store(faulty.clone()).turns(vec![Say::Text(&["hi"])]).begin();
    let new = tight();
    let run = new.id.clone();
    faulty.next(records(begins_a_run), Fate::FailsAfterwards);
    assert!(agent.start(new, None).await.is_err());
    let since = Instant::now();
    faulty.follow(move |_| if since.elapsed() < Duration::from_secs(12) { Fate::Fails } else { Fate::Happens });
    assert_charged_once(&outcome_at(&agent, &run).await);
}

/// It takes new runs until requests go elsewhere, and drives none of them.
#[tokio::test(start_paused = true)]
async fn a_replica_that_is_about_to_end_begins_no_step() {
    let store = shared();
    let ending = TestAgent::builder().store(Link::to(&store)).begin();
    ending.rooms.lifecycle.announce_end();
    let new = request();
    let run = new.id.clone();
    ending.start(new, None).await.unwrap();
    let second = TestAgent::builder().store(Link::to(&store)).turns(vec![Say::Text(&["hi"])]).begin();
    assert_charged_once(&outcome_at(&second, &run).await);
    let page = store.read_log(&keys::run_partition(&tenant(), None, &run), &keys::events(&run), 0, 100).await.unwrap();
    let events: Vec<Event> = page.entries.iter().map(|entry| log::decode(entry).unwrap().event).collect();
    let begun = events.iter().filter(|event| matches!(event, Event::StepStarted { .. })).count();
    let void = events.iter().filter(|event| matches!(event, Event::StepDiscarded { .. })).count();
    assert_eq!((begun, void), (1, 0), "{events:?}");
}

/// Another attempt at the same request may have called the model.
#[tokio::test(start_paused = true)]
async fn the_step_of_a_run_that_another_replica_created_is_charged() {
    let store = shared();
    let mortal = Faulty::new(store.clone(), |_| Fate::Happens);
    let first = TestAgent::builder().store(mortal.clone()).turns(vec![Say::Stall(&[])]).build();
    let new = request();
    let run = new.id.clone();
    first.start(new.clone(), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(first.model.requests.lock().len(), 1);
    mortal.die();
    tokio::time::sleep(Duration::from_secs(11)).await;
    let second = TestAgent::builder().store(store).turns(vec![Say::Text(&["hi"])]).build();
    assert!(second.start(new, None).await.is_err(), "the run exists");
    second.begin();
    let outcome = outcome_at(&second, &run).await;
    assert!(outcome.usage.total() > 15 && outcome.usage.estimated, "{:?}", outcome.usage);
}

/// The driver learns that its step began when it may call nothing any more: another replica goes on.
#[tokio::test(start_paused = true)]
async fn a_step_whose_begin_is_answered_too_late_costs_nothing() {
    let calls = Say::Calls("", vec![("echo", "{}")]);
    for (turns, took) in [(vec![Say::Text(&["hi"])], 15), (vec![calls, Say::Text(&["hi"])], 30)] {
        let is_it = if turns.len() == 1 { begins_a_run } else { begins_the_second_step };
        let store = shared();
        let faulty = Faulty::new(store.clone(), |_| Fate::Happens);
        faulty.next(records(is_it), Fate::HangsAfterwards);
        let first = TestAgent::builder().store(faulty.clone()).turns(turns.clone()).build();
        let new = request();
        let run = new.id.clone();
        let answer_late = async {
            faulty.reached().await;
            tokio::time::sleep(TOO_LONG).await;
            faulty.go_on();
        };
        let (started, ()) = tokio::join!(first.start(new, None), answer_late);
        started.unwrap();
        let second = TestAgent::builder().store(store).turns(turns).begin();
        let outcome = outcome_at(&second, &run).await;
        assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::Done, "hi"));
        assert_eq!((outcome.usage.total(), outcome.usage.estimated), (took, false), "{:?}", outcome.usage);
    }
}
