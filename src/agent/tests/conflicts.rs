use std::sync::Arc;
use std::time::Duration;

use super::link::Link;
use super::replicas::{Replica, over, replica, shared, status, tenant};
use super::support::{Say, client_tool, outcome, request, watch};
use crate::agent::NewRun;
use crate::agent::error::StartError;
use crate::agent::launch::queued;
use crate::agent::ledger::document;
use crate::agent::ledger::keys;
use crate::agent::session::{NewSession, SessionPatch};
use crate::llm::openai::messages::{joined, json};
use crate::store::{Order, Scan, Store, Tx, Write};
use crate::telemetry::metrics::Figures;
use crate::types::run::{OnConflict, OnDisconnect};
use crate::types::session::Session;
use crate::types::{Event, Message, Role, RunId, RunStatus, SessionId, StopReason};

fn session() -> SessionId {
    SessionId::parse("s").unwrap()
}

/// A request in the session that says `text`.
fn says(text: &str, on_conflict: OnConflict) -> NewRun {
    let messages = vec![Message::text(Role::User, text)];
    NewRun { session: Some(session()), messages, on_conflict, ..request() }
}

/// What the session holds, in short.
async fn history(replica: &Replica) -> Vec<String> {
    let (messages, _) =
        replica.agent.sessions().messages(&tenant(), &session(), 0, 100, Order::Ascending).await.unwrap();
    let content = |message: &Message| {
        let value: serde_json::Value = serde_json::from_str(json(message)).unwrap();
        value["content"].as_str().unwrap_or("-").to_owned()
    };
    messages.iter().map(content).collect()
}

/// Two replicas over one store: the first one's runs take five seconds, the second one's none.
fn pair(store: &Arc<dyn Store>) -> (Replica, Replica) {
    let slow = vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["slow"])];
    (replica(Link::to(store), slow), replica(Link::to(store), vec![]))
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_begins_after_the_one_before_it_and_sees_its_messages() {
    let store = shared();
    let (a, b) = pair(&store);
    let first = a.agent.start(says("one", OnConflict::Reject), None).await.unwrap();
    let second = b.agent.start(says("two", OnConflict::Enqueue), None).await.unwrap();
    let third = b.agent.start(says("three", OnConflict::Enqueue), None).await.unwrap();
    let (first_id, second_id) = (first.head.id.clone(), second.head.id.clone());
    assert_eq!((second.head.status, status(&a, &second_id).await), (RunStatus::Queued, RunStatus::Queued));
    let refused = b.agent.start(says("four", OnConflict::Reject), None).await;
    assert!(matches!(refused, Err(StartError::SessionBusy { run, .. }) if run == first_id));
    let records = watch(second).await;
    assert!(matches!(records[0].event, Event::RunQueued));
    assert!(matches!(records[1].event, Event::RunStarted));
    assert!(status(&a, &first_id).await.is_final());
    assert_eq!(outcome(&watch(third).await).reason.status(), RunStatus::Completed);
    let history = history(&a).await;
    let place = |text: &str| history.iter().position(|message| message == text).unwrap();
    assert!(
        place("one") < place("slow") && place("slow") < place("two") && place("two") < place("three"),
        "{history:?}"
    );
    let asked: Vec<String> = [&a, &b]
        .iter()
        .flat_map(|replica| {
            replica.agent.model.requests.lock().iter().map(|r| joined(&r.conversation)).collect::<Vec<_>>()
        })
        .collect();
    let of_second = asked.iter().find(|messages| messages.contains("two") && !messages.contains("three")).unwrap();
    assert!(of_second.contains("slow"), "it was asked with what came before it: {of_second}");
}

#[tokio::test(start_paused = true)]
async fn runs_that_wait_for_their_turn_are_counted_where_they_are_registered() {
    let store = shared();
    let (a, b) = pair(&store);
    let first = a.agent.start(says("one", OnConflict::Reject), None).await.unwrap();
    let second = b.agent.start(says("two", OnConflict::Enqueue), None).await.unwrap();
    let third = b.agent.start(says("three", OnConflict::Enqueue), None).await.unwrap();
    let figures = async || {
        let mut figures = Vec::new();
        for replica in [&a, &b] {
            replica.agent.rooms.recovery.reconcile().await.unwrap();
            let Figures { live_runs, queued_runs, .. } = replica.agent.figures();
            figures.push((live_runs, queued_runs));
        }
        figures
    };
    assert_eq!(figures().await, [(1, 0), (0, 2)]);
    for run in [first, second, third] {
        watch(run).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(figures().await, [(0, 0), (0, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_found_after_the_replica_that_should_wake_it_died() {
    let store = shared();
    let (a, b) = pair(&store);
    let first = a.agent.start(says("one", OnConflict::Reject), None).await.unwrap().head.id;
    let second = b.agent.start(says("two", OnConflict::Enqueue), None).await.unwrap().head.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // It ends its run, and dies before it calls the next.
    a.link.cut_off(keys::live_partition());
    over(&b, &first).await;
    assert_eq!(status(&b, &second).await, RunStatus::Queued);
    a.link.cut(true);
    let took = over(&b, &second).await;
    assert!(took <= Duration::from_secs(13), "{took:?}");
    assert_eq!(status(&b, &second).await, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_can_be_cancelled_and_leaves_nothing() {
    let store = shared();
    let (a, b) = pair(&store);
    let first = a.agent.start(says("one", OnConflict::Reject), None).await.unwrap();
    let second = b.agent.start(says("two", OnConflict::Enqueue), None).await.unwrap();
    let third = b.agent.start(says("three", OnConflict::Enqueue), None).await.unwrap();
    let cancelled = a.agent.runs().cancel(&tenant(), &second.head.id).await.unwrap();
    assert_eq!(cancelled.head.status, RunStatus::Cancelled);
    assert_eq!(outcome(&watch(second).await).reason.status(), RunStatus::Cancelled);
    watch(first).await;
    assert_eq!(outcome(&watch(third).await).reason.status(), RunStatus::Completed);
    assert!(!history(&a).await.contains(&"two".to_owned()));
    nothing_is_registered(&store).await;
}

/// Waits a moment, after which no run is registered at any replica.
async fn nothing_is_registered(store: &Arc<dyn Store>) {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let scan = Scan { prefix: "run/".to_owned(), after: None, limit: 100, order: Order::Ascending };
    let left = store.scan(&keys::live_partition(), scan).await.unwrap();
    assert_eq!(left, []);
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_that_begins_elsewhere_leaves_nothing_where_it_was_accepted() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["slow"])]);
    // It accepts runs, and no nudge tells it of their turns.
    let b = replica(Link::deaf(&store), vec![]);
    let first = a.agent.start(says("one", OnConflict::Reject), None).await.unwrap();
    let second = b.agent.start(says("two", OnConflict::Enqueue), None).await.unwrap();
    watch(first).await;
    watch(second).await;
    nothing_is_registered(&store).await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_whose_client_has_gone_asks_no_model() {
    let store = shared();
    let (a, b) = pair(&store);
    let queued = |text: &str| {
        let mut new = says(text, OnConflict::Enqueue);
        (new.options.on_disconnect, new.options.reconnect_grace_ms) = (OnDisconnect::Cancel, 0);
        new
    };
    let first = a.agent.start(says("one", OnConflict::Reject), None).await.unwrap();
    let gone = b.agent.start(queued("two"), None).await.unwrap();
    let third = b.agent.start(queued("three"), None).await.unwrap();
    let left = gone.head.id.clone();
    drop(gone);
    let (_, read) = tokio::join!(watch(first), watch(third));
    assert_eq!(status(&a, &left).await, RunStatus::Cancelled);
    assert_eq!(outcome(&read).reason, StopReason::Done, "its client is there");
    let asked = [&a, &b].map(|replica| {
        let requests = replica.agent.model.requests.lock();
        requests.iter().filter(|request| joined(&request.conversation).contains("two")).count()
    });
    assert_eq!(asked, [0, 0]);
    nothing_is_registered(&store).await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupting_run_ends_the_other_and_begins() {
    let store = shared();
    let (a, b) = pair(&store);
    let first = a.agent.start(says("one", OnConflict::Reject), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = b.agent.start(says("two", OnConflict::Interrupt), None).await.unwrap();
    assert_eq!(outcome(&watch(first).await).reason.status(), RunStatus::Cancelled);
    assert_eq!(outcome(&watch(second).await).reason.status(), RunStatus::Completed);
    let history = history(&a).await;
    assert!(history.iter().position(|text| text == "one") < history.iter().position(|text| text == "two"));
}

#[tokio::test(start_paused = true)]
async fn concurrent_runs_add_their_messages_without_mixing_them() {
    let store = shared();
    let (a, b) = pair(&store);
    let first = a.agent.start(says("one", OnConflict::Reject), None).await.unwrap();
    let beside = b.agent.start(says("two", OnConflict::Concurrent), None).await.unwrap();
    assert_eq!(outcome(&watch(beside).await).reason.status(), RunStatus::Completed);
    let refused = b.agent.start(says("three", OnConflict::Reject), None).await;
    assert!(refused.is_err(), "the first still holds the session");
    watch(first).await;
    let history = history(&a).await;
    assert_eq!(history[0], "two");
    let one = history.iter().position(|text| text == "one").unwrap();
    assert_eq!(one, 2, "{history:?}");
    assert_eq!(history.last().unwrap(), "slow");
}

/// Puts the session into the store with so many runs beside its own.
async fn with_beside(store: &Arc<dyn Store>, concurrent_runs: Vec<RunId>) {
    let session = Session { concurrent_runs, ..Session::new(session()) };
    let tx = Tx::new(keys::session_partition(&tenant(), &session.id));
    store.commit(tx.put_at(keys::session(), 0, document::encode(&session), None)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ended_runs_free_their_places_beside_a_session() {
    let store = shared();
    let (a, b) = pair(&store);
    with_beside(&store, (0..queued::MOST).map(|_| RunId::mint()).collect()).await;
    let slow = a.agent.start(says("slow", OnConflict::Concurrent), None).await.unwrap();
    let beside = async || b.agent.sessions().get(&tenant(), &session()).await.unwrap().session.concurrent_runs;
    assert_eq!(beside().await, std::slice::from_ref(&slow.head.id));
    watch(slow).await;
    assert_eq!(beside().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_lost_messages_detaches_its_runs() {
    let store = shared();
    let (a, b) = pair(&store);
    watch(b.agent.start(says("one", OnConflict::Reject), None).await.unwrap()).await;
    let holder = a.agent.start(says("two", OnConflict::Reject), None).await.unwrap();
    let beside = a.agent.start(says("three", OnConflict::Concurrent), None).await.unwrap();
    let lose = Write::DeleteLog { log: keys::messages() };
    store.commit(Tx::new(keys::session_partition(&tenant(), &session())).write(lose)).await.unwrap();
    for started in [holder, beside] {
        assert_eq!(outcome(&watch(started).await).reason.status(), RunStatus::Completed);
    }
    let left = b.agent.sessions().get(&tenant(), &session()).await.unwrap().session;
    assert_eq!((left.active_run, left.concurrent_runs, left.runs), (None, vec![], 3));
}

#[tokio::test(start_paused = true)]
async fn an_interrupting_run_precedes_all_queued_runs() {
    let store = shared();
    let (a, b) = pair(&store);
    let first = a.agent.start(says("one", OnConflict::Reject), None).await.unwrap();
    let second = b.agent.start(says("two", OnConflict::Enqueue), None).await.unwrap();
    let third = b.agent.start(says("three", OnConflict::Enqueue), None).await.unwrap();
    let urgent = b.agent.start(says("urgent", OnConflict::Interrupt), None).await.unwrap();
    for started in [first, urgent, second, third] {
        watch(started).await;
    }
    let history = history(&a).await;
    let place = |text: &str| history.iter().position(|message| message == text).unwrap();
    let places = ["one", "urgent", "two", "three"].map(place);
    assert!(places.is_sorted(), "{history:?}");
}

#[tokio::test(start_paused = true)]
async fn concurrent_runs_are_limited_and_an_ended_one_makes_room() {
    let store = shared();
    let a = replica(Link::to(&store), vec![Say::Stall(&["x"])]);
    let start =
        async || a.agent.start(says("beside", OnConflict::Concurrent), None).await.map(|started| started.head.id);
    let mut beside = Vec::new();
    for _ in 0..queued::MOST {
        beside.push(start().await.unwrap());
    }
    for _ in 0..2 {
        let refused = start().await;
        assert!(matches!(&refused, Err(StartError::SessionBusy { run, .. }) if *run == beside[0]), "{refused:?}");
        let ended = beside.pop().unwrap();
        assert_eq!(a.agent.runs().cancel(&tenant(), &ended).await.unwrap().head.status, RunStatus::Cancelled);
        beside.push(start().await.unwrap());
    }
}

/// A session that expires a second after its last change lives as long as the runs in it.
#[tokio::test(start_paused = true)]
async fn a_session_outlives_all_its_concurrent_runs() {
    let brief = NewSession { id: Some(session()), ttl_s: Some(1), ..NewSession::default() };
    for (meanwhile, messages) in [("nothing", 4), ("a change", 4), ("a run", 6)] {
        let store = shared();
        let (a, b) = pair(&store);
        b.agent.sessions().create(&tenant(), brief.clone()).await.unwrap();
        let slow = a.agent.start(says("slow one", OnConflict::Concurrent), None).await.unwrap();
        match meanwhile {
            "a change" => {
                b.agent.sessions().patch(&tenant(), &session(), SessionPatch::default()).await.unwrap();
            }
            // It ends long before the other.
            "a run" => drop(watch(b.agent.start(says("quick one", OnConflict::Reject), None).await.unwrap()).await),
            _ => {}
        }
        assert_eq!(outcome(&watch(slow).await).reason.status(), RunStatus::Completed);
        assert_eq!(history(&a).await.len(), messages, "{meanwhile} happened meanwhile");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_would_wait_ends_for_those_that_are_queued_behind_it() {
    let store = shared();
    let calls = vec![Say::Calls("", vec![("hang", "{}"), ("ask", "{}")]), Say::Text(&["never"])];
    let (a, b) = (replica(Link::to(&store), calls), replica(Link::to(&store), vec![]));
    let asking = NewRun { client_tools: vec![client_tool("ask")], ..says("one", OnConflict::Reject) };
    let first = a.agent.start(asking, None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = b.agent.start(says("two", OnConflict::Enqueue), None).await.unwrap();
    assert_eq!(outcome(&watch(first).await).reason, StopReason::Cancelled);
    assert_eq!(outcome(&watch(second).await).reason, StopReason::Done);
    let third = b.agent.start(says("three", OnConflict::Reject), None).await.unwrap();
    assert_eq!(outcome(&watch(third).await).reason, StopReason::Done);
}
