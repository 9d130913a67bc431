//! Replicas whose hosts' clocks are wrong: what they share goes by the clock of the store.

use std::sync::Arc;
use std::time::Duration;

use super::quota::{keyed, partition, quotas};
use super::support::{RETENTION, Say, TestAgent, client_tool, outcome, request, watch};
use crate::agent::NewRun;
use crate::agent::ledger::keys;
use crate::agent::limits::charge::period_name;
use crate::config::{Allotment, Period, QuotaConfig};
use crate::store::Store;
use crate::store::measured::Measured;
use crate::store::redis::RedisStore;
use crate::store::redis::tests::servers::RedisServer;
use crate::telemetry::metrics::Metrics;
use crate::types::clock::{now_ms, shift};
use crate::types::shortfall::BudgetKind;
use crate::types::{RunStatus, Tenant};

const DAY_MS: u64 = 24 * 3_600_000;

fn ahead(days: i64) -> i64 {
    days * DAY_MS.cast_signed()
}

/// The store of a replica as the server opens it, which counts what the store does.
async fn open(server: &RedisServer) -> Arc<dyn Store> {
    let store = Arc::new(RedisStore::open(&server.url().parse().unwrap()).await.unwrap());
    Arc::new(Measured::new(store, Metrics::new(false).store().unwrap()))
}

/// What is counted of the budget of the day of `at_ms`.
async fn counted(store: &dyn Store, at_ms: u64) -> i64 {
    let day = keys::budget_counter(BudgetKind::Tokens, &period_name(Some(Period::Day), at_ms));
    store.counter(&partition(), &day).await.unwrap()
}

/// Runs a request under a budget of tokens per day, and returns how many it used.
async fn spend(agent: &TestAgent) -> i64 {
    let used = outcome(&watch(agent.start(keyed(), None).await.unwrap()).await).usage.total();
    agent.idle(Duration::from_secs(5)).await;
    used.cast_signed()
}

#[tokio::test]
async fn a_budget_of_a_day_goes_by_the_clock_of_redis_whatever_the_host_says() {
    let server = RedisServer::start().await;
    let budget = Allotment { limit: 50_000, per: Some(Period::Day) };
    let quotas = || quotas(QuotaConfig { token_budget: Some(budget), ..QuotaConfig::default() });
    let began = now_ms();
    let (mut used, mut agents) = (0, Vec::new());
    // A replica whose host is right, one that starts a day early, and one that starts a day late.
    for days in [0, 1, -1] {
        shift(ahead(days));
        let agent = TestAgent::builder().store(open(&server).await).quotas(quotas()).build();
        used += spend(&agent).await;
        agents.push(agent);
    }
    // Then the clock of a host is set while its replica runs: the next lease tells the difference.
    shift(ahead(2));
    used += spend(&agents[0]).await;
    shift(0);
    let store = agents[0].rooms.ledger.store();
    // Midnight may pass meanwhile.
    let ended = now_ms();
    let next_day = if began / DAY_MS == ended / DAY_MS { 0 } else { counted(&**store, ended).await };
    assert_eq!(counted(&**store, began).await + next_day, used);
}

#[tokio::test]
async fn a_wait_ends_by_the_clock_of_redis() {
    let server = RedisServer::start().await;
    shift(ahead(1));
    let agent =
        TestAgent::builder().store(open(&server).await).turns(vec![Say::Calls("", vec![("ask", "{}")])]).build();
    let asked = NewRun { client_tools: vec![client_tool("ask")], ..request() };
    let started = agent.start(asked, None).await.unwrap();
    let run = started.head.id.clone();
    watch(started).await;
    agent.idle(Duration::from_secs(5)).await;
    shift(0);
    let head = agent.runs().get(&Tenant::default_tenant(), &run).await.unwrap().head;
    assert_eq!(head.status, RunStatus::RequiresAction);
    let waits_ms = head.waits_until_ms.unwrap().saturating_sub(now_ms());
    assert!(Duration::from_millis(waits_ms).abs_diff(RETENTION.wait) < Duration::from_secs(60), "{waits_ms} ms");
}
