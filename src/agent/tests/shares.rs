//! Limits that runs share with others of their agent, and of their user.

use std::time::Duration;

use tokio::task::JoinSet;

use super::idempotency::by_key;
use super::quota::{count, keyed, memory, quotas_with, runs, two_steps};
use super::support::{Say, TestAgent, client_tool, outcome, request, watch};
use crate::agent::error::StartError;
use crate::agent::ledger::document::encode;
use crate::agent::ledger::keys;
use crate::agent::limits::shares::Counted;
use crate::agent::{NewRun, Quotas};
use crate::config::{QuotaConfig, ShareConfig};
use crate::store::faulty::{Fate, Faulty};
use crate::store::{Key, Order, Scan, Store, Tx, Write};
use crate::types::share::Sharing;
use crate::types::{Message, RunId, StopReason, Tenant};

fn at_once(most: u32) -> ShareConfig {
    ShareConfig { max_concurrent_runs: Some(most), ..ShareConfig::default() }
}

fn a_minute(most: u32) -> ShareConfig {
    ShareConfig { requests_per_minute: Some(most), ..ShareConfig::default() }
}

/// Quotas of a key whose users may each take this.
fn per_user(share: ShareConfig) -> Quotas {
    quotas_with(QuotaConfig::default(), share)
}

/// A request of this user with the key.
fn by(user: &str) -> NewRun {
    keyed().of_user(Some(user.to_owned()))
}

/// How many runs are counted here.
async fn counted(store: &std::sync::Arc<dyn Store>, share: &Key) -> i64 {
    store.counter(&keys::shares_partition(&Tenant::default_tenant()), share).await.unwrap()
}

/// How many documents the partition of shares has.
async fn slots(store: &std::sync::Arc<dyn Store>) -> usize {
    let scan = Scan { prefix: String::new(), after: None, limit: 100, order: Order::Ascending };
    store.scan(&keys::shares_partition(&Tenant::default_tenant()), scan).await.unwrap().len()
}

fn stalling() -> Vec<Say> {
    vec![Say::Stall(&["x"])]
}

#[tokio::test(start_paused = true)]
async fn an_agents_limit_on_runs_at_once_holds_over_all_replicas() {
    let store = memory();
    let replica = |_| TestAgent::builder().store(store.clone()).turns(stalling()).shared(at_once(4)).build();
    let replicas: Vec<TestAgent> = (0..3).map(replica).collect();
    let mut tasks = JoinSet::new();
    for number in 0..24 {
        let agent = replicas[number % 3].clone();
        tasks.spawn(async move { agent.start(request(), None).await.map(|started| (number % 3, started)) });
    }
    let (mut started, mut refused) = (Vec::new(), 0);
    for result in tasks.join_all().await {
        match result {
            Ok(run) => started.push(run),
            Err(StartError::TooManyRunsOf { sharing: Sharing::Agent(name), most: 4 }) if name == "default" => {
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((started.len(), refused, counted(&store, &keys::agent_share("default")).await), (4, 20, 4));
    let (replica, ended) = started.pop().unwrap();
    replicas[replica].runs().cancel(&Tenant::default_tenant(), &ended.head.id).await.unwrap();
    replicas[0].start(request(), None).await.unwrap();
    let refused = replicas[1].start(request(), None).await.map(drop).unwrap_err().to_string();
    assert_eq!(refused, "the agent \"default\" may have 4 runs at once; try again when one of them has ended");
}

#[tokio::test(start_paused = true)]
async fn each_user_of_a_key_has_runs_of_its_own_and_those_without_a_name_share() {
    let store = memory();
    let agent = TestAgent::builder().store(store.clone()).turns(stalling()).quotas(per_user(at_once(1))).build();
    let mut started = Vec::new();
    for new in [by("ann"), by("bob"), keyed()] {
        started.push(agent.start(new, None).await.unwrap().head.id);
    }
    let refused = async |new| agent.start(new, None).await.map(drop).unwrap_err().to_string();
    let told = refused(by("ann")).await;
    assert_eq!(told, "the user \"ann\" of this key may have 1 runs at once; try again when one of them has ended");
    let told = refused(keyed()).await;
    assert!(told.starts_with("all requests with this key that name no user, together, may have 1 runs"), "{told}");
    // Who has no key has no users that are told apart.
    for _ in 0..2 {
        agent.start(request().of_user(Some("ann".into())), None).await.unwrap();
    }
    agent.runs().cancel(&Tenant::default_tenant(), &started[0]).await.unwrap();
    agent.start(by("ann"), None).await.unwrap();
    assert_eq!(slots(&store).await, 3, "runs that are not counted have no slot");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_one_limit_refuses_is_counted_for_none() {
    let store = memory();
    let quotas = quotas_with(runs(9), at_once(1));
    let agent = TestAgent::builder().store(store.clone()).turns(stalling()).quotas(quotas).shared(at_once(2)).build();
    let first = agent.start(by("ann"), None).await.unwrap().head.id;
    assert!(matches!(
        agent.start(by("ann"), None).await,
        Err(StartError::TooManyRunsOf { sharing: Sharing::User(name), most: 1 }) if name == "ann"
    ));
    let share = keys::agent_share("default");
    assert_eq!((counted(&store, &share).await, count(&store, &keys::slots_taken()).await), (1, 1));
    let second = agent.start(by("bob"), None).await.unwrap().head.id;
    let refused = agent.start(by("cid"), None).await;
    assert!(matches!(refused, Err(StartError::TooManyRunsOf { sharing: Sharing::Agent(_), most: 2 })), "{refused:?}");
    assert_eq!((counted(&store, &share).await, count(&store, &keys::slots_taken()).await), (2, 2));
    for run in [first, second] {
        agent.runs().cancel(&Tenant::default_tenant(), &run).await.unwrap();
    }
    assert_eq!((counted(&store, &share).await, count(&store, &keys::slots_taken()).await), (0, 0));
    assert_eq!(slots(&store).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_is_not_counted_and_takes_its_slot_again_to_go_on() {
    let store = memory();
    let turns = vec![Say::Calls("", vec![("ask", "{}")]), Say::Stall(&["x"])];
    let agent = TestAgent::builder().store(store.clone()).turns(turns).quotas(per_user(at_once(1))).build();
    let new = NewRun { client_tools: vec![client_tool("ask")], ..by("ann") };
    let (tenant, run) = (new.tenant.clone(), new.id.clone());
    let call = outcome(&watch(agent.start(new.clone(), None).await.unwrap()).await).required_calls[0].call.id.clone();
    assert_eq!(slots(&store).await, 0);
    let other = NewRun { messages: vec![Message::assistant("", &[]), new.messages[0].clone()], ..by("ann") };
    let other = agent.start(other, None).await.unwrap().head.id;
    let answer = || NewRun {
        run: Some(run.clone()),
        answered: vec![call.clone()],
        messages: vec![Message::tool(&call, "yes")],
        ..by("ann")
    };
    let refused = agent.start(answer(), None).await;
    assert!(matches!(refused, Err(StartError::TooManyRunsOf { most: 1, .. })), "{refused:?}");
    agent.runs().cancel(&tenant, &other).await.unwrap();
    agent.start(answer(), None).await.unwrap();
    assert_eq!(slots(&store).await, 1);
    agent.runs().cancel(&tenant, &run).await.unwrap();
    assert_eq!(slots(&store).await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_runs_of_a_dead_replica_are_counted_until_they_end_elsewhere() {
    let store = memory();
    let mortal = Faulty::new(store.clone(), |_: &Tx| Fate::Happens);
    let first = TestAgent::builder().store(mortal.clone()).turns(stalling()).shared(at_once(2)).build();
    for _ in 0..2 {
        first.start(request(), None).await.unwrap();
    }
    mortal.die();
    // The agent may have any number by now: what a run was accepted with holds.
    let second = TestAgent::builder().store(store.clone()).turns(two_steps()).shared(at_once(2)).build();
    assert!(matches!(second.start(request(), None).await, Err(StartError::TooManyRunsOf { most: 2, .. })));
    second.begin();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((counted(&store, &keys::agent_share("default")).await, slots(&store).await), (0, 0));
    second.close().await;
}

/// Its run was never created, as its replica died: whoever is refused for it sees to it.
#[tokio::test(start_paused = true)]
async fn a_slot_without_a_run_is_released_for_those_whom_it_refuses() {
    let store = memory();
    let share = keys::agent_share("default");
    let partition = keys::shares_partition(&Tenant::default_tenant());
    let document = encode(&Counted { session: None, counters: vec![share.clone()] });
    let slot = Tx::new(partition).put_at(keys::slot(&RunId::mint()), 0, document, None);
    store.commit(slot.write(Write::Add { counter: share.clone(), delta: 1, ceiling: None })).await.unwrap();
    let agent = TestAgent::builder().store(store.clone()).shared(at_once(1)).begin();
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(counted(&store, &share).await, 1, "nobody looks where nobody is counted");
    assert!(matches!(agent.start(request(), None).await, Err(StartError::TooManyRunsOf { most: 1, .. })));
    tokio::time::sleep(Duration::from_secs(130)).await;
    assert_eq!(counted(&store, &share).await, 0);
    let ended = outcome(&watch(agent.start(request(), None).await.unwrap()).await);
    assert_eq!(ended.reason, StopReason::Done);
}

#[tokio::test(start_paused = true)]
async fn requests_that_begin_runs_are_counted_by_agent_and_by_user_over_all_replicas() {
    let store = memory();
    let replica =
        |_| TestAgent::builder().store(store.clone()).quotas(per_user(a_minute(2))).shared(a_minute(5)).build();
    let replicas: Vec<TestAgent> = (0..2).map(replica).collect();
    let start = async |number: usize, user: &str| replicas[number % 2].start(by(user), None).await.map(drop);
    for number in 0..2 {
        start(number, "ann").await.unwrap();
    }
    let Err(StartError::TooManyStarts { sharing: Sharing::User(_), per_minute: 2, wait }) = start(0, "ann").await
    else {
        panic!("the third is refused")
    };
    assert!(wait <= Duration::from_secs(30), "{wait:?}");
    for (number, user) in ["bob", "bob", "cid"].into_iter().enumerate() {
        start(number, user).await.unwrap();
    }
    let refused = start(1, "dan").await;
    let Err(StartError::TooManyStarts { sharing: Sharing::Agent(_), per_minute: 5, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(refused.unwrap_err().to_string(), "the agent \"default\" may begin 5 runs a minute");
    tokio::time::sleep(Duration::from_secs(60)).await;
    start(0, "ann").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_repeated_is_counted_once() {
    let agent = TestAgent::builder().shared(a_minute(1)).build();
    let new = request();
    for _ in 0..3 {
        watch(agent.start(new.clone(), Some(&by_key())).await.unwrap()).await;
    }
    assert!(matches!(agent.start(request(), None).await, Err(StartError::TooManyStarts { .. })));
}
