//! Clients cancel their runs, at any replica and at any time, while replicas die.

use std::time::Duration;

use super::cluster::TestCluster;
use super::scaled;
use crate::support::cluster::Job;
use crate::support::cluster::plan::{Plan, Tool};
use crate::support::redis::durable;
use crate::support::seed::Seed;

/// Runs that would go on for half a minute and longer, most of which their clients cancel: in the middle of an answer, of a
/// tool call, and in between. Some are in a session of their own.
fn long(name: &str, count: u64, seed: &mut Seed) -> Vec<Job> {
    let job = |number| {
        let mut tools = Tool::ALL.to_vec();
        tools.rotate_left(usize::try_from(seed.below(3)).expect("it is below 3"));
        let plan = Plan::new(format!("{name}-{number}")).with_text(4, 40 + seed.below(60)).with_delay(seed.below(300));
        let session = (number % 2 == 0).then(|| format!("{name}-s{number}"));
        if number % 6 == 0 {
            return (plan.with_tools(2, &tools), session);
        }
        let plan = plan.with_tools(60, &tools).cancelled_after(2 + seed.below(40));
        (Plan { calls: 1 + u32::try_from(number % 2).expect("it is small"), ..plan }, session)
    };
    (0..count).map(job).collect()
}

#[tokio::test]
async fn runs_that_their_clients_cancel_stop_and_end_once_and_are_charged() {
    let redis = durable().await;
    let mut cluster = TestCluster::start("cancelled", &vec![redis.url(); 3]).await;
    cluster.client.spread = Duration::from_secs(2);
    let jobs = long("cancelled", scaled(36, 300), &mut cluster.seed);
    let in_flight = cluster.launch(jobs).await;
    for turn in 0..scaled(2, 8) {
        tokio::time::sleep(Duration::from_millis(300 + cluster.seed.below(700))).await;
        let victim = turn % cluster.replicas.len();
        cluster.kill(victim).await;
        tokio::time::sleep(Duration::from_millis(cluster.seed.below(1000))).await;
        cluster.replicas[victim].restart().await;
    }
    let traces = in_flight.finished().await;
    cluster.count().await;
    let figures = cluster.judge(traces).await;
    let cancelled = figures.ends.get("cancelled").copied().unwrap_or(0);
    assert!(cancelled > 0, "{figures}");
}
