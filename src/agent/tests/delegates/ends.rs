//! How trees of runs end whose runs are stopped, refused or deleted at awkward times.

use tokio::task::JoinSet;

use super::*;
use crate::agent::delegating::{Begun, Child, Task};
use crate::agent::error::LookupError;
use crate::agent::ledger::keys;
use crate::agent::limits::places::{MOST_LIVE, taken};
use crate::agent::machine::tests::spec;
use crate::agent::ownership::registry::Registration;
use crate::agent::tests::link::Link;
use crate::types::clock::now_ms;
use crate::types::run::OnConflict;
use crate::types::{RunSpec, SessionId, Used};

/// A boss, one in the middle, and a worker that never answers.
fn hanging() -> (Arc<Team>, Vec<Member>) {
    let model = Team::new(|name, messages| match name {
        "boss" => boss(messages, vec![hands("middle", "a")]),
        "middle" => boss(messages, vec![hands("worker", "b")]),
        _ => Does::Hangs,
    });
    let members =
        vec![delegating("boss", &["middle"], |_| {}), delegating("middle", &["worker"], |_| {}), plain("worker")];
    (model, members)
}

/// A tree of these, all of whose runs have begun.
async fn begun_tree(store: &Arc<dyn Store>) -> (Agent, RunId, Vec<Head>) {
    let (model, members) = hanging();
    let agent = team(store, &model, members, Quotas::default());
    let root = agent.admission().start(asks("boss"), None).await.unwrap().head.id;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let all = runs(&agent).await;
    assert_eq!(all.len(), 3);
    (agent, root, all)
}

async fn all_are_cancelled(agent: &Agent, all: &[Head]) {
    for head in all {
        assert_eq!(status(agent, &head.id).await, RunStatus::Cancelled, "{}", head.agent);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_is_told_to_stop_while_another_replica_holds_it() {
    let store = memory();
    let (agent, root, all) = begun_tree(&store).await;
    let (model, members) = hanging();
    let other = team(&store, &model, members, Quotas::default());
    let middle = &all.iter().find(|head| head.agent == "middle").unwrap().id;
    let partition = keys::run_partition(&tenant(), None, middle);
    let lease = other.rooms.ownership.acquire_run(&partition, middle).await.unwrap().expect("nobody drives it");
    agent.runs().cancel(&tenant(), &root).await.unwrap();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(status(&agent, &root).await, RunStatus::Cancelled, "it has told those below it");
    assert_eq!(status(&agent, middle).await, RunStatus::RequiresAction);
    lease.release().await.unwrap();
    agent.rooms.recovery.do_what_is_due(now_ms() + 10_000).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    all_are_cancelled(&agent, &all).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_ended_without_a_driver_takes_those_below_it_along() {
    let (agent, root, all) = begun_tree(&memory()).await;
    let outcome = Outcome::unknown(StopReason::StoreLostState);
    agent.rooms.launcher.fail(&root, &Registration::new(tenant(), None), outcome, None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(status(&agent, &root).await, RunStatus::Failed);
    let below: Vec<Head> = all.into_iter().filter(|head| head.id != root).collect();
    all_are_cancelled(&agent, &below).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_is_not_deleted_while_a_run_of_it_waits_for_others() {
    let (model, members) = hanging();
    let agent = team(&memory(), &model, members, Quotas::default());
    let session = SessionId::parse("s").unwrap();
    let new = NewRun { session: Some(session.clone()), on_conflict: OnConflict::Concurrent, ..asks("boss") };
    let root = agent.admission().start(new, None).await.unwrap().head.id;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(status(&agent, &root).await, RunStatus::RequiresAction);
    let refused = agent.sessions().delete(&tenant(), &session).await;
    assert!(matches!(&refused, Err(LookupError::SessionBusy { run, .. }) if *run == root), "{refused:?}");
    agent.runs().cancel(&tenant(), &root).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    agent.sessions().delete(&tenant(), &session).await.unwrap();
}

/// What becomes of a run of this agent that `parent` begins for its first call, and the run.
async fn begins(agent: &Agent, parent: RunId, named: &str) -> (Begun, RunId) {
    let (parent, delegating) = (RunSpec { id: parent, ..spec() }, agent.generation().delegating.clone().unwrap());
    let call = parent.id.call(1);
    let run = call.child().unwrap();
    let started = StartedChild { step: 1, call_id: call, run: run.clone(), agent: named.to_owned(), depth: 1 };
    let child = Child { started, task: Task::Alone("x".to_owned()), timeout_ms: 1_000, kept: Used::default() };
    (delegating.begin(&parent, &child).await.unwrap(), run)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_refused_never_begins_and_a_model_is_no_agent() {
    let model = Team::new(|_, _| Does::Says("done".to_owned()));
    let store = memory();
    let agent = team(&store, &model, vec![plain("worker")], Quotas::default());
    // The model is called "m".
    let (begun, run) = begins(&agent, RunId::mint(), "m").await;
    assert!(matches!(begun, Begun::Refused(_)), "{begun:?}");
    let barred = store.get(&keys::run_partition(&tenant(), None, &run), &keys::barred(&run)).await.unwrap();
    assert!(barred.is_some(), "a replica that stood still does not begin it later");
    assert!(model.asked.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_a_run_that_had_ended_is_recorded_with_its_end() {
    let model = Team::new(|name, messages| match name {
        "boss" => boss(messages, vec![hands("worker", "a")]),
        _ => Does::Says("done".to_owned()),
    });
    let members = vec![delegating("boss", &["worker"], |_| {}), plain("worker")];
    let agent = team(&memory(), &model, members, Quotas::default());
    let new = asks("boss");
    let root = new.id.clone();
    assert!(matches!(begins(&agent, root.clone(), "worker").await.0, Begun::Live));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let end = outcome(&watch(agent.admission().start(new, None).await.unwrap()).await);
    assert_eq!(end.output_text, "done");
    let mut events = Vec::new();
    let partition = keys::run_partition(&tenant(), None, &root);
    agent.rooms.ledger.read_log(&partition, &root, |record, _| events.push(record.event)).await.unwrap();
    let is_end = |event: &Event| matches!(event, Event::Delegated(told) if matches!(**told, Delegated::Completed(_)));
    let at = events.iter().position(is_end).unwrap();
    assert!(matches!(&events[at + 1], Event::ToolAnswered { .. }), "whoever goes on needs not ask again: {events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tree_has_so_many_runs_under_way_and_no_more() {
    let model = Team::new(|name, messages| match name {
        "boss" => boss(messages, (0..12).map(|number| hands("middle", &number.to_string())).collect()),
        "middle" => boss(messages, (0..8).map(|number| hands("worker", &number.to_string())).collect()),
        _ => Does::SaysAfter(Duration::from_secs(5), "done".to_owned()),
    });
    let wide = |delegation: &mut Delegation| delegation.max_concurrent = 32;
    let members = vec![delegating("boss", &["middle"], wide), delegating("middle", &["worker"], wide), plain("worker")];
    let store = memory();
    let agent = team(&store, &model, members, Quotas::default());
    let started = agent.admission().start(asks("boss"), None).await.unwrap();
    let partition = keys::tree_partition(&tenant(), &started.head.id);
    let (mut watching, mut most) = (JoinSet::new(), 0);
    watching.spawn(watch(started));
    let records = loop {
        if let Some(records) = watching.try_join_next() {
            break records.unwrap();
        }
        most = most.max(store.counter(&partition, &taken()).await.unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let end = outcome(&records);
    assert_eq!(most, MOST_LIVE);
    assert!(end.output_text.contains("No more runs can begin"), "the models are told: {}", end.output_text);
    assert!(runs(&agent).await.len() <= 1 + 12 + 64);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(store.counter(&partition, &taken()).await.unwrap(), 0, "each gave its place back");
}

#[tokio::test(start_paused = true)]
async fn a_request_may_name_the_tool_that_delegates() {
    let (model, members) = hanging();
    let agent = team(&memory(), &model, members, Quotas::default());
    let naming = |agent: &str, tools: &[&str]| {
        let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        NewRun { tools: Some(tools), ..asks(agent) }
    };
    agent.admission().start(naming("boss", &["save", DELEGATE]), None).await.unwrap();
    agent.admission().start(naming("worker", &[DELEGATE]), None).await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut first = model.offered.lock()[0].1.clone();
    first.sort();
    assert_eq!(first, [DELEGATE, "save"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_another_waits_for_is_begun_once_there_is_memory() {
    let model = Team::new(|_, _| Does::Says("done".to_owned()));
    let agent = team(&memory(), &model, vec![plain("worker")], Quotas::default());
    let (parent, mut others) = (RunId::mint(), agent.rooms.launcher.memory.begin());
    others.count(1 << 60);
    let (begun, _) = begins(&agent, parent.clone(), "worker").await;
    assert!(matches!(begun, Begun::Later(_)), "it is no failure of the store, nor the end of it: {begun:?}");
    others.count(0);
    let (begun, _) = begins(&agent, parent, "worker").await;
    assert!(matches!(begun, Begun::Live), "{begun:?}");
}

/// The store does not let the replica settle what the tree took: the replica gives the lease back, and the next try takes it.
#[tokio::test(start_paused = true)]
async fn a_run_of_a_tree_that_the_store_did_not_let_end_is_ended_at_the_next_try() {
    let store = memory();
    let link = Link::to(&store);
    let (model, mut members) = hanging();
    let boss = members.remove(0);
    members.push(Member::new("boss", move |config| {
        (boss.change)(config);
        config.limits.token_budget = Some(100_000);
    }));
    let agent = team(&(link.clone() as Arc<dyn Store>), &model, members, Quotas::default());
    let root = agent.admission().start(asks("boss"), None).await.unwrap().head.id;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let head = runs(&agent).await.into_iter().find(|head| head.id == root).unwrap();
    assert_eq!(head.status, RunStatus::RequiresAction);
    link.cut_off(keys::tree_partition(&tenant(), &root));
    let refused = agent.rooms.launcher.stop(&tenant(), &head).await;
    assert!(refused.is_err(), "{refused:?}");
    link.cut(false);
    assert!(agent.rooms.launcher.stop(&tenant(), &head).await.unwrap(), "nobody holds its lease");
    assert_eq!(status(&agent, &root).await, RunStatus::Cancelled);
}
