//! On which day a run is counted: that of the store's clock at its end.

use std::sync::Arc;
use std::time::Duration;

use super::support::{Say, TestAgent, outcome, request, watch};
use crate::agent::Requester;
use crate::agent::usage::report::{GroupBy, UsageQuery};
use crate::agent::usage::row::{Day, Totals};
use crate::store::Store;
use crate::store::faulty::{Fate, Faulty};
use crate::store::measured::Measured;
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::store::redis::tests::servers::RedisServer;
use crate::store::{Tx, Write};
use crate::telemetry::metrics::Metrics;
use crate::types::Tenant;
use crate::types::clock::{now_ms, shift};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// The runs and output tokens of each day, from two days before to two days after this moment.
async fn by_day(agent: &TestAgent, at_ms: u64) -> Vec<(String, u64)> {
    let (tenant, two_days) = (Tenant::default_tenant(), 2 * DAY_MS.unsigned_abs());
    let (from, to) = (Day::of(at_ms - two_days), Day::of(at_ms + two_days));
    let query = UsageQuery { from, to, group_by: vec![GroupBy::Day], only: Vec::new(), after: None, limit: 100 };
    let groups = agent.usage().report(Requester::from(&tenant), &query).await.unwrap().groups;
    groups.into_iter().map(|(group, Totals { runs, .. })| (group[0].clone().unwrap(), runs)).collect()
}

/// Sets this host's clock, which is that of a store in memory, so long after the next midnight of UTC.
fn shift_past_midnight(ms: i64) {
    shift(0);
    shift(DAY_MS - now_ms().cast_signed() % DAY_MS + ms);
}

#[tokio::test]
async fn a_run_is_counted_on_the_day_of_redis_whatever_the_host_says() {
    let server = RedisServer::start().await;
    // Midnight must not pass meanwhile.
    let began = now_ms();
    let mut agents = Vec::new();
    for days in [0, 1, -1] {
        shift(days * DAY_MS);
        let store = Arc::new(RedisStore::open(&server.url().parse().unwrap()).await.unwrap());
        let store = Arc::new(Measured::new(store, Metrics::new(false).store().unwrap()));
        let agent = TestAgent::builder().store(store).build();
        watch(agent.start(request(), None).await.unwrap()).await;
        agent.idle(Duration::from_secs(10)).await;
        agents.push(agent);
    }
    shift(0);
    let days = by_day(&agents[0], began).await;
    assert_eq!(days.iter().map(|(_, runs)| runs).sum::<u64>(), 3);
    let allowed = [Day::of(began).to_string(), Day::of(now_ms()).to_string()];
    assert!(days.iter().all(|(day, _)| allowed.contains(day)), "{days:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_is_counted_on_the_day_on_which_it_ends() {
    let agent = TestAgent::builder().turns(vec![Say::Stall(&["x"])]).begin();
    shift_past_midnight(-HOUR_MS);
    let before = now_ms();
    let stopped = agent.start(request(), None).await.unwrap();
    agent.runs().tell_to_stop(&Tenant::default_tenant(), &stopped.head.id).await.unwrap();
    outcome(&watch(stopped).await);
    let over_midnight = agent.start(request(), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    shift_past_midnight(HOUR_MS);
    let after = now_ms();
    agent.runs().tell_to_stop(&Tenant::default_tenant(), &over_midnight.head.id).await.unwrap();
    outcome(&watch(over_midnight).await);
    agent.idle(Duration::from_secs(10)).await;
    assert_eq!(by_day(&agent, before).await, [before, after].map(|at| (Day::of(at).to_string(), 1)));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_another_replica_counts_after_midnight_is_counted_on_the_day_on_which_it_ended() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let link = Faulty::new(store.clone(), |_| Fate::Happens);
    let agent = TestAgent::builder().store(link.clone()).turns(vec![Say::Text(&["hello"])]).begin();
    shift_past_midnight(-HOUR_MS);
    let before = now_ms();
    let counts =
        |tx: &Tx| tx.writes.iter().any(|write| matches!(write, Write::Put { key, .. } if key.starts_with("counted/")));
    link.next(counts, Fate::DiesBefore);
    watch(agent.start(request(), None).await.unwrap()).await;
    link.reached().await;
    shift_past_midnight(HOUR_MS);
    let other = TestAgent::builder().store(store).begin();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(by_day(&other, before).await, [(Day::of(before).to_string(), 1)]);
}
