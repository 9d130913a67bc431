//! What replicas count agrees with what happened, by the logs and by the journals of the model and the tools: exactly
//! while none of them dies, and otherwise but for what died with one since it was read last.

use std::time::Duration;

use super::cluster::TestCluster;
use super::{mixed, scaled};
use crate::support::redis::durable;

/// Runs at once.
const TOGETHER: u64 = 250;

#[tokio::test]
async fn counters_are_exact_while_no_replica_dies() {
    let redis = durable().await;
    let mut cluster = TestCluster::start("counters-exact", &vec![redis.url(); 3]).await;
    let jobs = mixed("counters-exact", scaled(30, 200), &mut cluster.seed, 20);
    let in_flight = cluster.launch(jobs).await;
    let traces = in_flight.finished().await;
    cluster.count().await;
    cluster.judge(traces).await;
}

#[tokio::test]
async fn counters_lose_only_what_died_with_a_replica() {
    let redis = durable().await;
    let mut cluster = TestCluster::start("counters", &vec![redis.url(); 3]).await;
    let mut traces = Vec::new();
    for batch in 0..scaled(1, 10_000 / TOGETHER) {
        let mut jobs = mixed(&format!("counters-{batch}"), scaled(24, TOGETHER), &mut cluster.seed, 40);
        // Sessions are read one by one afterwards, so only the first batch has any.
        for (_, session) in jobs.iter_mut().filter(|_| batch > 0) {
            *session = None;
        }
        let in_flight = cluster.launch(jobs).await;
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(300 + cluster.seed.below(700))).await;
            let victim = usize::try_from(cluster.seed.below(3)).expect("it is below 3");
            cluster.kill(victim).await;
            tokio::time::sleep(Duration::from_millis(cluster.seed.below(500))).await;
            cluster.replicas[victim].restart().await;
        }
        traces.extend(in_flight.finished().await);
    }
    cluster.count().await;
    cluster.judge(traces).await;
}
