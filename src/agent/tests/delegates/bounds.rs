//! What bounds the runs that others begin: policies, keys, slots, and that they may be wanted no more.

use super::*;
use crate::agent::delegating::{Begun, Child, Task};
use crate::agent::machine::tests::spec;
use crate::agent::tests::quota::{keyed, quotas, runs as at_once};
use crate::types::Used;
use crate::types::policy::{Layer, Mode, Rule};

fn rule(tool: &str) -> Rule {
    Rule { tool: tool.to_owned(), ..Rule::default() }
}

/// What a worker is told that calls `save`, of a boss with these rules; the worker itself may do all.
async fn saves(of_boss: Layer, of_worker: Layer) -> String {
    let model = Team::new(|name, messages| match name {
        "boss" => boss(messages, vec![hands("worker", "save it")]),
        _ => boss(messages, vec![("save".to_owned(), "{}".to_owned())]),
    });
    let boss = delegating("boss", &["worker"], |_| {});
    let boss = Member::new("boss", move |config| {
        (boss.change)(config);
        config.policy = Arc::new(of_boss);
    });
    let worker = Member::new("worker", move |config| config.policy = Arc::new(of_worker));
    let agent = team(&memory(), &model, vec![boss, worker], Quotas::default());
    run(&agent, "boss").await.0.output_text
}

#[tokio::test(start_paused = true)]
async fn a_run_calls_no_more_than_the_one_above_it_may_and_asks_nobody() {
    assert_eq!(saves(Layer::default(), Layer::default()).await, "{}");
    let denied = saves(Layer { deny: vec![rule("save")], ..Layer::default() }, Layer::default()).await;
    assert!(denied.contains("no tool named \"save\""), "{denied}");
    for (of_boss, of_worker) in [(Mode::AskWrites, Mode::Allow), (Mode::Allow, Mode::AskWrites)] {
        let layer = |mode| Layer { mode, ..Layer::default() };
        let asked = saves(layer(of_boss), layer(of_worker)).await;
        assert!(asked.contains("Nobody approves calls of a run that was delegated to"), "{asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_delegates_to_no_agent_that_it_may_not_use() {
    let model = Team::new(|name, messages| match name {
        "boss" => boss(messages, vec![hands("worker", "a"), hands("other", "b")]),
        _ => Does::Says("done".to_owned()),
    });
    let members = vec![delegating("boss", &["worker", "other"], |_| {}), plain("worker"), plain("other")];
    let agent = team(&memory(), &model, members, Quotas::default());
    let new = NewRun { allowed_agents: Some(vec!["boss".to_owned(), "worker".to_owned()]), ..asks("boss") };
    let records = watch(agent.admission().start(new, None).await.unwrap()).await;
    let told = outcome(&records).output_text;
    assert!(told.starts_with("done; ") && told.contains("agent"), "{told}");
    assert_eq!(begun(&records).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tree_does_not_wait_for_its_own_slots() {
    let model = Team::new(|name, messages| match name {
        "boss" => boss(messages, vec![hands("middle", "a"), hands("middle", "b")]),
        "middle" => boss(messages, vec![hands("worker", "c")]),
        _ => Does::Says("done".to_owned()),
    });
    let members =
        vec![delegating("boss", &["middle"], |_| {}), delegating("middle", &["worker"], |_| {}), plain("worker")];
    let store = memory();
    let agent = team(&store, &model, members, quotas(at_once(1)));
    let new = NewRun { model: Some("boss".to_owned()), ..keyed() };
    let end = outcome(&watch(agent.admission().start(new, None).await.unwrap()).await);
    assert_eq!(end.output_text, "done; done");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let slots = crate::agent::ledger::keys::slots_taken();
    assert_eq!(crate::agent::tests::quota::count(&store, &slots).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_wanted_no_more_never_begins() {
    let model = Team::new(|_, _| Does::Says("done".to_owned()));
    let agent = team(&memory(), &model, vec![plain("worker")], Quotas::default());
    let (parent, delegating) = (spec(), agent.generation().delegating.clone().unwrap());
    let call = parent.id.call(1);
    let run = call.child().unwrap();
    let started = StartedChild { step: 1, call_id: call, run: run.clone(), agent: "worker".to_owned(), depth: 1 };
    let child = Child { started, task: Task::Alone("x".to_owned()), timeout_ms: 1_000, kept: Used::default() };
    delegating.stop(&tenant(), &parent.id, &run).await.unwrap();
    let begun = delegating.begin(&parent, &child).await;
    assert!(!matches!(begun, Ok(Begun::Live | Begun::Ended(_))), "{begun:?}");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(agent.runs().get(&tenant(), &run).await.is_err());
    assert!(model.asked.lock().is_empty());
}
