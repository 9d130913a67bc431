//! Redis itself, or the way to it, fails: runs wait, go on elsewhere or end cleanly, and nothing is done
//! twice.

use std::time::Duration;

use super::cluster::TestCluster;
use super::{mixed, scaled};
use crate::support::cluster::evidence::Window;
use crate::support::cluster::plan::{Plan, Tool};
use crate::support::proxy::Proxy;
use crate::support::redis::{Cluster, Watched, address, durable, fail_over, switch};

fn through(proxy: &Proxy) -> String {
    format!("redis://{}", proxy.address())
}

/// Some time for runs to get going, or for harm to be felt.
async fn pass(cluster: &mut TestCluster, least_ms: u64) {
    tokio::time::sleep(Duration::from_millis(least_ms + cluster.seed.below(500))).await;
}

#[tokio::test]
async fn redis_dies_and_comes_back() {
    let mut redis = durable().await;
    let mut cluster = TestCluster::start("redis-dies", &vec![redis.url(); 2]).await;
    let jobs = mixed("redis-dies", scaled(24, 100), &mut cluster.seed, 100);
    let in_flight = cluster.launch(jobs).await;
    for seconds in scaled(vec![3], vec![1, 3, 12]) {
        pass(&mut cluster, 500).await;
        redis.kill().await;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        redis.restart().await;
    }
    cluster.finish(in_flight).await;
}

#[tokio::test]
async fn redis_fails_over() {
    fails_over("failover", Duration::from_secs(4)).await;
}

/// A primary of a Redis cluster dies, and its replica takes its slots.
#[tokio::test]
async fn a_redis_cluster_fails_over() {
    let mut redis = Cluster::start(true).await;
    let mut cluster = TestCluster::start("cluster", &vec![redis.url(); 2]).await;
    let jobs = mixed("cluster", scaled(24, 100), &mut cluster.seed, 200);
    let in_flight = cluster.launch(jobs).await;
    for turn in 0..scaled(1, 3) {
        pass(&mut cluster, 500).await;
        let primary = &mut redis.primaries[turn];
        let replaced = async {
            primary.kill().await;
            tokio::time::sleep(Duration::from_secs(6)).await;
            // It comes back as the replica of the one that replaced it.
            primary.restart().await;
        };
        cluster.forgotten.push(Window::of(replaced).await);
    }
    cluster.finish(in_flight).await;
}

async fn fails_over(name: &str, later: Duration) {
    let mut watched = Watched::start().await;
    let mut cluster = TestCluster::start(name, &vec![watched.url(); 2]).await;
    let turns = scaled(1, 10);
    cluster.client.spread = cluster.client.spread.max(Duration::from_secs(10) * (turns - 1));
    let jobs = mixed(name, scaled(24, 200), &mut cluster.seed, 200);
    let in_flight = cluster.launch(jobs).await;
    for turn in 0..turns {
        pass(&mut cluster, 500).await;
        let replaced =
            async { if turn % 2 == 0 { fail_over(&mut watched, later).await } else { switch(&watched).await } };
        cluster.forgotten.push(Window::of(replaced).await);
    }
    cluster.finish(in_flight).await;
}

/// One replica cannot reach Redis, and still has its clients.
#[tokio::test]
async fn a_replica_is_cut_off_from_redis() {
    let redis = durable().await;
    let proxy = Proxy::start(address(&redis)).await;
    let stores = [through(&proxy), redis.url()];
    let mut cluster = TestCluster::start("cut-off", &stores).await;
    cluster.client.silence = Duration::from_secs(4);
    let jobs = mixed("cut-off", scaled(30, 100), &mut cluster.seed, 100);
    let in_flight = cluster.launch(jobs).await;
    for turn in 0..scaled(1, 4) {
        pass(&mut cluster, 500).await;
        match turn % 3 {
            0 => proxy.swallow(),
            1 => proxy.hold(),
            _ => {
                proxy.refuse();
                proxy.reset();
            }
        }
        tokio::time::sleep(Duration::from_secs(15)).await;
        proxy.heal();
    }
    cluster.finish(in_flight).await;
}

/// Commits arrive, and nobody learns of it.
#[tokio::test]
async fn replies_get_lost() {
    let redis = durable().await;
    let proxy = Proxy::start(address(&redis)).await;
    let mut cluster = TestCluster::start("lost-replies", &vec![through(&proxy); 2]).await;
    let jobs = mixed("lost-replies", scaled(24, 100), &mut cluster.seed, 60);
    let in_flight = cluster.launch(jobs).await;
    for _ in 0..scaled(30, 200) {
        let wait = 20 + cluster.seed.below(80);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        proxy.swallow_replies(1);
    }
    proxy.heal();
    cluster.finish(in_flight).await;
}

/// The commit that creates a run arrives, with the begin of its first step in it, and its client is told to come again.
#[tokio::test]
async fn replies_to_the_creation_of_runs_get_lost() {
    let redis = durable().await;
    let proxy = Proxy::start(address(&redis)).await;
    let mut cluster = TestCluster::without_budget("lost-creations", &vec![through(&proxy); 2]).await;
    // Commits of drivers get through, or at a later attempt.
    cluster.drivers_stayed = true;
    cluster.client.spread = Duration::from_secs(scaled(4, 40));
    let plan = |number: u64| {
        let tool = Tool::ALL[usize::try_from(number % 3).expect("it is below 3")];
        Plan::new(format!("lost-creations-{number}")).with_tools(1, &[tool]).with_text(4, 20).with_delay(30)
    };
    let in_flight = cluster.launch((0..scaled(40, 400)).map(|number| (plan(number), None)).collect()).await;
    for _ in 0..scaled(1, 10) {
        pass(&mut cluster, 500).await;
        proxy.swallow_replies_to("run_started");
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        proxy.heal();
    }
    let figures = cluster.finish(in_flight).await;
    assert!(figures.takeovers.len() > 0, "no commit arrived whose answer was lost");
}

#[tokio::test]
async fn connections_to_redis_break() {
    let redis = durable().await;
    let proxy = Proxy::start(address(&redis)).await;
    let mut cluster = TestCluster::start("resets", &vec![through(&proxy); 2]).await;
    let jobs = mixed("resets", scaled(24, 100), &mut cluster.seed, 60);
    let in_flight = cluster.launch(jobs).await;
    for _ in 0..scaled(8, 40) {
        pass(&mut cluster, 100).await;
        let harm = cluster.seed.pick(&[Proxy::cut as fn(&Proxy), Proxy::reset]);
        harm(&proxy);
    }
    cluster.finish(in_flight).await;
}

/// Nudges may be lost: what they would have told is found by looking.
#[tokio::test]
async fn nudges_get_lost() {
    let redis = durable().await;
    let proxy = Proxy::start(address(&redis)).await;
    let mut cluster = TestCluster::start("deaf", &vec![through(&proxy); 2]).await;
    proxy.deafen_subscribers();
    // Every run is driven by the first replica and read, from its first broken connection on, at the second.
    let proxy = Proxy::start(cluster.replicas[0].address().parse().expect("it is an address")).await;
    cluster.client.first_address = Some(proxy.url());
    cluster.client.addresses.remove(0);
    let jobs = mixed("deaf", scaled(16, 60), &mut cluster.seed, 100);
    let in_flight = cluster.launch(jobs).await;
    pass(&mut cluster, 500).await;
    proxy.reset();
    let figures = cluster.finish(in_flight).await;
    assert_eq!(figures.takeovers.len(), 0, "a lease was lost");
}

/// A slow Redis makes runs slow, and nothing else.
#[tokio::test]
async fn redis_is_slow() {
    for latency_ms in [200, 1000] {
        let redis = durable().await;
        let proxy = Proxy::start(address(&redis)).await;
        let mut cluster = TestCluster::start(&format!("slow-{latency_ms}"), &vec![through(&proxy); 2]).await;
        let jobs = mixed(&cluster.name.clone(), scaled(12, 40), &mut cluster.seed, 60);
        let in_flight = cluster.launch(jobs).await;
        pass(&mut cluster, 500).await;
        proxy.slow(Duration::from_millis(latency_ms));
        tokio::time::sleep(Duration::from_secs(scaled(15, 40))).await;
        proxy.heal();
        let figures = cluster.finish(in_flight).await;
        assert_eq!(figures.takeovers.len(), 0, "a lease was lost");
    }
}
