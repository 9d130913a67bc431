use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::idempotency::by_key;
use super::quota::{count, keyed, memory, quotas, runs, two_steps};
use super::support::{Say, TestAgent, client_tool, outcome, watch};
use crate::agent::NewRun;
use crate::agent::error::{ClaimError, StartError};
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::store::faulty::{Fate, Faulty};
use crate::store::layer::StoreLayer;
use crate::store::{Partition, Store, Tx, Unavailable, Write};
use crate::types::{CallId, Message, RunId, RunSpec, SessionId, StopReason, Tenant};

#[tokio::test(start_paused = true)]
async fn a_keys_concurrency_limit_holds_over_all_replicas() {
    let store = memory();
    let replicas: Vec<TestAgent> = (0..3)
        .map(|_| {
            TestAgent::builder().store(store.clone()).turns(vec![Say::Stall(&["x"])]).quotas(quotas(runs(4))).build()
        })
        .collect();
    let mut tasks = JoinSet::new();
    for number in 0..24 {
        let agent = replicas[number % 3].clone();
        tasks.spawn(async move { agent.start(keyed(), None).await.map(|started| (number % 3, started)) });
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
    replicas[replica].runs().cancel(&Tenant::default_tenant(), &ended.head.id).await.unwrap();
    replicas[0].start(keyed(), None).await.unwrap();
    assert!(matches!(replicas[1].start(keyed(), None).await, Err(StartError::TooManyRuns(4))));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_saw_a_run_end_can_start_the_next() {
    let agent = TestAgent::builder().store(memory()).turns(two_steps()).quotas(quotas(runs(1))).build();
    for _ in 0..10 {
        assert_eq!(outcome(&watch(agent.start(keyed(), None).await.unwrap()).await).reason, StopReason::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_its_client_holds_no_slot_and_needs_one_to_resume() {
    let store = memory();
    let turns = vec![Say::Calls("", vec![("ask", "{}")]), Say::Stall(&["x"])];
    let agent = TestAgent::builder().store(store.clone()).turns(turns).quotas(quotas(runs(1))).build();
    let new = NewRun { client_tools: vec![client_tool("ask")], ..keyed() };
    let (tenant, run) = (new.tenant.clone(), new.id.clone());
    let call = outcome(&watch(agent.start(new.clone(), None).await.unwrap()).await).required_calls[0].call.id.clone();
    assert_eq!(count(&store, &keys::slots_taken()).await, 0);
    // Another run takes the slot: its model stalls in its first turn.
    let other = NewRun { messages: vec![Message::assistant("", &[]), new.messages[0].clone()], ..keyed() };
    let other = agent.start(other, None).await.unwrap().head.id;
    let answer = |call: &CallId| NewRun {
        run: Some(run.clone()),
        answered: vec![call.clone()],
        messages: vec![Message::tool(call, "yes")],
        ..keyed()
    };
    assert!(matches!(agent.start(answer(&call), None).await, Err(StartError::TooManyRuns(1))));
    agent.runs().cancel(&tenant, &other).await.unwrap();
    agent.start(answer(&call), None).await.unwrap();
    assert_eq!(count(&store, &keys::slots_taken()).await, 1);
    agent.runs().cancel(&tenant, &run).await.unwrap();
    assert_eq!(count(&store, &keys::slots_taken()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dead_replicas_runs_keep_their_slots_until_they_end_elsewhere() {
    let store = memory();
    let mortal = Faulty::new(store.clone(), |_: &Tx| Fate::Happens);
    let first =
        TestAgent::builder().store(mortal.clone()).turns(vec![Say::Stall(&["x"])]).quotas(quotas(runs(2))).build();
    let mut started = Vec::new();
    for _ in 0..2 {
        started.push(first.start(keyed(), None).await.unwrap().head.id);
    }
    mortal.die();
    let second = TestAgent::builder().store(store.clone()).turns(two_steps()).quotas(quotas(runs(2))).build();
    assert!(matches!(second.start(keyed(), None).await, Err(StartError::TooManyRuns(2))));
    second.begin();
    tokio::time::sleep(Duration::from_secs(30)).await;
    for run in &started {
        assert!(second.runs().get(&Tenant::default_tenant(), run).await.unwrap().head.status.is_final());
    }
    assert_eq!(count(&store, &keys::slots_taken()).await, 0);
    second.close().await;
}

/// A store that does not answer for this partition once a slot was acquired.
#[derive(Debug)]
struct Unreachable {
    store: Arc<dyn Store>,
    partition: Partition,
}

#[async_trait::async_trait]
impl StoreLayer for Unreachable {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn pass(&self, partition: Option<&Partition>) -> Result<(), Unavailable> {
        if partition == Some(&self.partition) && count(&self.store, &keys::slots_taken()).await > 0 {
            return Err(Unavailable("it is away".to_owned()));
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_lease_cannot_be_acquired_gives_its_slot_back() {
    let (store, new) = (memory(), keyed());
    let partition = keys::run_partition(&new.tenant, None, &new.id);
    let layer = Arc::new(Unreachable { store: store.clone(), partition });
    let agent = TestAgent::builder().store(layer).turns(two_steps()).quotas(quotas(runs(1))).build();
    let refused = agent.start(new, None).await.map(|started| started.head.id);
    assert!(matches!(refused, Err(StartError::Store(_))), "{refused:?}");
    assert_eq!(count(&store, &keys::slots_taken()).await, 0);
    assert_eq!(outcome(&watch(agent.start(keyed(), None).await.unwrap()).await).reason, StopReason::Done);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_lease_is_anothers_gives_its_slot_back() {
    let store = memory();
    let agent = TestAgent::builder().store(store.clone()).turns(two_steps()).quotas(quotas(runs(1))).build();
    let new = keyed();
    let spec = RunSpec { id: new.id.clone(), ..crate::agent::machine::tests::spec() };
    let _lease = agent.rooms.ownership.leases.acquire(&spec).await.unwrap().unwrap();
    let refused = agent.start(new, None).await.map(|started| started.head.id);
    assert!(matches!(refused, Err(StartError::Claim(ClaimError::Busy))), "{refused:?}");
    assert_eq!(count(&store, &keys::slots_taken()).await, 0);
    assert_eq!(outcome(&watch(agent.start(keyed(), None).await.unwrap()).await).reason, StopReason::Done);
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_claim_cannot_be_stored_gives_the_slot_back() {
    let store = Faulty::new(memory(), |_: &Tx| Fate::Happens);
    let shared: Arc<dyn Store> = store.clone();
    let turns = vec![Say::Calls("", vec![("ask", "{}")]), Say::Text(&["done"])];
    let agent = TestAgent::builder().store(shared.clone()).turns(turns).quotas(quotas(runs(1))).build();
    let new = NewRun { client_tools: vec![client_tool("ask")], ..keyed() };
    let run = new.id.clone();
    let call = outcome(&watch(agent.start(new, None).await.unwrap()).await).required_calls[0].call.id.clone();
    let answer = || NewRun {
        run: Some(run.clone()),
        answered: vec![call.clone()],
        messages: vec![Message::tool(&call, "yes")],
        ..keyed()
    };
    // The claim is stored twice: as it is made, and with the run that the request continues.
    let mut claims = 0;
    store.follow(move |tx| {
        claims += usize::from(puts(tx, &keys::claim()));
        if claims == 2 && puts(tx, &keys::claim()) { Fate::Fails } else { Fate::Happens }
    });
    let refused = agent.start(answer(), Some(&by_key())).await;
    assert!(store.has_struck() && matches!(refused, Err(StartError::Store(_))), "{refused:?}");
    assert_eq!(count(&shared, &keys::slots_taken()).await, 0);
    assert_eq!(outcome(&watch(agent.start(answer(), None).await.unwrap()).await).reason, StopReason::Done);
}

fn puts(tx: &Tx, prefix: &str) -> bool {
    tx.writes.iter().any(|write| matches!(write, Write::Put { key, .. } if key.starts_with(prefix)))
}

/// A slot is taken before its run is created.
#[tokio::test(start_paused = true)]
async fn a_slot_without_a_run_is_released_at_the_second_look_and_not_at_the_first() {
    let store = memory();
    let partition = keys::budget_partition(&Tenant::default_tenant(), "web");
    let slot = Tx::new(partition).put_at(keys::slot(&RunId::mint()), 0, encode(&None::<SessionId>), None);
    store.commit(slot.write(Write::Add { counter: keys::slots_taken(), delta: 1, ceiling: None })).await.unwrap();
    let _agent = TestAgent::builder().store(store.clone()).quotas(quotas(runs(4))).begin();
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(count(&store, &keys::slots_taken()).await, 1, "its run may be about to be created");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(count(&store, &keys::slots_taken()).await, 0);
}
