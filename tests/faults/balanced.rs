//! Everything at once, as in production: three replicas behind the balancer that the documents recommend,
//! on a Redis that Sentinels watch, while replicas are killed and replaced and the primary dies.

use std::time::Duration;

use super::cluster::TestCluster;
use super::{mixed, scaled};
use crate::support::balancer::Balancer;
use crate::support::cluster::evidence::Window;
use crate::support::redis::{Watched, fail_over};

/// How long runs may stand still: a takeover after a failover.
const LONGEST: Duration = Duration::from_secs(25);

#[tokio::test]
async fn replicas_behind_a_balancer_keep_their_promises() {
    let mut watched = Watched::start().await;
    let mut cluster = TestCluster::start("balanced", &vec![watched.url(); 3]).await;
    let balancer = Balancer::start([0, 1, 2].map(|index| cluster.replicas[index].address())).await;
    let replicas = std::mem::replace(&mut cluster.client.addresses, vec![balancer.url()]);
    cluster.client.max_wait = Duration::from_secs(240);
    cluster.client.spread = Duration::from_secs(scaled(20, 60));
    let jobs = mixed("balanced", scaled(80, 200), &mut cluster.seed, scaled(300, 1500));
    let in_flight = cluster.launch(jobs).await;
    let mut pause = {
        let mut seed = cluster.seed.part("pauses");
        move || tokio::time::sleep(Duration::from_millis(500 + seed.below(1000)))
    };
    for round in 0..scaled(1, 3) {
        pause().await;
        let victim = round % 3;
        cluster.replicas[victim].kill9().await;
        pause().await;
        cluster.replicas[victim].restart().await;
        pause().await;
        // The killed primary stays away until everyone has learned that it is one no more.
        cluster.forgotten.push(Window::of(fail_over(&mut watched, Duration::from_secs(4))).await);
        for replica in &mut cluster.replicas {
            pause().await;
            replica.sigterm();
            let status = replica.drained().await;
            assert!(status.success(), "{status}");
            replica.restart().await;
        }
    }
    let seen = in_flight.finished().await;
    cluster.client.addresses = replicas;
    let figures = cluster.judge(seen).await;
    assert_ne!(figures.takeovers.len(), 0, "nothing was taken over: all runs had ended before");
    let slowest = Duration::from_millis(figures.takeovers.percentile(100));
    assert!(slowest <= LONGEST, "a run stood still for {slowest:?}");
}
