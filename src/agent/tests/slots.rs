use std::time::Duration;

use tokio::task::JoinSet;

use super::quota::{count, keyed, memory, quotas, runs, two_steps};
use super::support::{Bench, Say, bench_within, client_tool, outcome, watch};
use crate::agent::NewRun;
use crate::agent::error::StartError;
use crate::agent::ledger::keys;
use crate::store::Tx;
use crate::store::faulty::{Fate, Faulty};
use crate::types::{CallId, Effect, Message, StopReason, Tenant};

#[tokio::test(start_paused = true)]
async fn a_keys_concurrency_limit_holds_over_all_replicas() {
    let store = memory();
    let replicas: Vec<Bench> =
        (0..3).map(|_| bench_within(store.clone(), vec![Say::Stall(&["x"])], Effect::Read, quotas(runs(4)))).collect();
    let mut tasks = JoinSet::new();
    for number in 0..24 {
        let agent = replicas[number % 3].agent.clone();
        tasks.spawn(async move { agent.start(keyed()).await.map(|started| (number % 3, started)) });
    }
    let (mut started, mut refused) = (Vec::new(), 0);
    for result in tasks.join_all().await {
        match result {
            Ok(run) => started.push(run),
            Err(StartError::TooManyRuns(4)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((started.len(), refused, count(&store, &keys::slots_taken()).await), (4, 20, 4));
    let (replica, ended) = started.pop().unwrap();
    replicas[replica].agent.cancel(&Tenant::default_tenant(), &ended.head.id).await.unwrap();
    replicas[0].agent.start(keyed()).await.unwrap();
    assert!(matches!(replicas[1].agent.start(keyed()).await, Err(StartError::TooManyRuns(4))));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_saw_a_run_end_can_start_the_next() {
    let bench = bench_within(memory(), two_steps(), Effect::Read, quotas(runs(1)));
    for _ in 0..10 {
        assert_eq!(outcome(&watch(bench.agent.start(keyed()).await.unwrap()).await).reason, StopReason::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_its_client_holds_no_slot_and_needs_one_to_resume() {
    let store = memory();
    let turns = vec![Say::Calls("", vec![("ask", "{}")]), Say::Stall(&["x"])];
    let bench = bench_within(store.clone(), turns, Effect::Read, quotas(runs(1)));
    let new = NewRun { client_tools: vec![client_tool("ask")], ..keyed() };
    let (tenant, run) = (new.tenant.clone(), new.id.clone());
    let call = outcome(&watch(bench.agent.start(new.clone()).await.unwrap()).await).required_calls[0].id.clone();
    assert_eq!(count(&store, &keys::slots_taken()).await, 0);
    // Another run takes the slot: its model stalls in its first turn.
    let other = NewRun { messages: vec![Message::assistant("", &[]), new.messages[0].clone()], ..keyed() };
    let other = bench.agent.start(other).await.unwrap().head.id;
    let answer = |call: &CallId| NewRun {
        run: Some(run.clone()),
        answered: vec![call.clone()],
        messages: vec![Message::tool(call, "yes")],
        ..keyed()
    };
    assert!(matches!(bench.agent.start(answer(&call)).await, Err(StartError::TooManyRuns(1))));
    bench.agent.cancel(&tenant, &other).await.unwrap();
    bench.agent.start(answer(&call)).await.unwrap();
    assert_eq!(count(&store, &keys::slots_taken()).await, 1);
    bench.agent.cancel(&tenant, &run).await.unwrap();
    assert_eq!(count(&store, &keys::slots_taken()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dead_replicas_runs_keep_their_slots_until_they_end_elsewhere() {
    let store = memory();
    let mortal = Faulty::new(store.clone(), |_: &Tx| Fate::Happens);
    let first = bench_within(mortal.clone(), vec![Say::Stall(&["x"])], Effect::Read, quotas(runs(2)));
    let mut started = Vec::new();
    for _ in 0..2 {
        started.push(first.agent.start(keyed()).await.unwrap().head.id);
    }
    mortal.die();
    let second = bench_within(store.clone(), two_steps(), Effect::Read, quotas(runs(2)));
    assert!(matches!(second.agent.start(keyed()).await, Err(StartError::TooManyRuns(2))));
    second.agent.begin();
    tokio::time::sleep(Duration::from_secs(30)).await;
    for run in &started {
        assert!(second.agent.run(&Tenant::default_tenant(), run).await.unwrap().head.status.is_final());
    }
    assert_eq!(count(&store, &keys::slots_taken()).await, 0);
    second.agent.close().await;
}
