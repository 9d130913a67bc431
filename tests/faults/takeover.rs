//! Several replicas on one Redis: whichever dies, freezes or is replaced, the others finish its runs.

use std::time::Duration;

use loopgate::failpoint::FAILPOINTS;
use serde_json::json;

use super::cluster::{TAKEOVER, TestCluster};
use super::{dies_within, is_full, mixed, scaled};
use crate::support::cluster::Times;
use crate::support::cluster::plan::{Plan, Tool};
use crate::support::redis::{DATABASES, RedisServer, Signal, durable};
use crate::support::seed::Seed;

/// How often a replica dies at each place with each kind of tool, where everything is run.
const ROUNDS: u64 = 20;
/// How many replicas are to die at once.
const AT_ONCE: usize = 10;

/// Where a replica dies, and what tool its runs call.
#[derive(Debug, Clone, Copy)]
struct Death {
    point: &'static str,
    round: u64,
    tool: Tool,
}

/// Databases of one Redis, a test's own each.
fn database(redis: &RedisServer, number: usize) -> String {
    format!("{}?db={number}", redis.url())
}

/// One replica dies at `point`, and another goes on; at places of a resumption, this dies as well, and the
/// first one's next life goes on.
async fn dies_and_another_goes_on(death: Death, store: String) -> Times {
    let Death { point, round, tool } = death;
    let name = format!("takeover-{point}-{}-{round}", tool.name());
    let place = format!("{point}:{}", 1 + round % 2);
    let in_resumption = point.starts_with("resume.");
    let places = if in_resumption { vec!["model.delta_recorded:4", &place] } else { vec![&*place] };
    let mut cluster = TestCluster::dying(&name, &[store.clone(), store], &places).await;
    cluster.client.first_address = Some(cluster.replicas[0].url().to_owned());
    if cluster.seed.next() % 2 == 0 {
        cluster.client.agent = json!({});
    }
    let plan = |run: u32| Plan::new(format!("{name}-{run}")).with_tools(2, &[tool]).with_text(4, 20).with_delay(30);
    let jobs = (0..4).map(|run| (plan(run), (run > 1).then(|| format!("{name}-{run}"))));
    let in_flight = cluster.launch(jobs.collect()).await;
    let max_wait = Duration::from_secs(10);
    assert!(dies_within(&mut cluster.replicas[0], max_wait).await, "no run came to {}", places[0]);
    if in_resumption {
        assert!(dies_within(&mut cluster.replicas[1], TAKEOVER).await, "no resumption came to {place}");
        cluster.replicas[0].next_env(&[]);
        cluster.replicas[0].restart().await;
    }
    // The evidence is read from the replicas that are alive.
    cluster.client.addresses.remove(usize::from(in_resumption));
    let figures = cluster.finish(in_flight).await;
    let slowest = Duration::from_millis(figures.takeovers.percentile(100));
    let most = if in_resumption { TAKEOVER * 2 } else { TAKEOVER };
    assert!(slowest <= most, "{name}: a run stood still for {slowest:?}");
    if in_resumption { Times::default() } else { figures.takeovers }
}

#[tokio::test]
async fn a_replica_that_dies_at_any_failpoint_is_taken_over() {
    let redis = durable().await;
    let mut deaths = Vec::new();
    for round in 0..scaled(1, ROUNDS) {
        for (index, point) in FAILPOINTS.iter().enumerate() {
            for (number, tool) in Tool::ALL.into_iter().enumerate() {
                let is_sample = number == index % Tool::ALL.len() || (point.starts_with("tool.") && tool == Tool::Book);
                if is_full() || is_sample {
                    deaths.push(Death { point, round, tool });
                }
            }
        }
    }
    let (count, mut takeovers) = (deaths.len(), Vec::new());
    let mut deaths = deaths.into_iter().enumerate();
    let mut under_way = tokio::task::JoinSet::new();
    loop {
        while under_way.len() < AT_ONCE
            && let Some((number, death)) = deaths.next()
        {
            under_way.spawn(dies_and_another_goes_on(death, database(&redis, number)));
        }
        match under_way.join_next().await {
            Some(Ok(times)) => takeovers.push(times),
            Some(Err(failure)) => std::panic::resume_unwind(failure.into_panic()),
            None => break,
        }
    }
    println!("takeover: {count} deaths, taken over {}", Times::together(takeovers));
}

#[tokio::test]
async fn replicas_are_killed_at_any_time() {
    let redis = durable().await;
    let mut cluster = TestCluster::start("killings", &vec![database(&redis, 0); 3]).await;
    let jobs = mixed("killings", scaled(24, 120), &mut cluster.seed, 100);
    let in_flight = cluster.launch(jobs).await;
    for turn in 0..scaled(2, 6) {
        tokio::time::sleep(Duration::from_millis(300 + cluster.seed.below(700))).await;
        let victim = turn % cluster.replicas.len();
        cluster.kill(victim).await;
        tokio::time::sleep(Duration::from_millis(cluster.seed.below(1000))).await;
        cluster.replicas[victim].restart().await;
    }
    let traces = in_flight.finished().await;
    cluster.count().await;
    cluster.judge(traces).await;
}

/// A process that stood still does not know that its runs are another's by now.
#[tokio::test]
async fn a_replica_freezes_and_wakes_up() {
    let redis = durable().await;
    let mut cluster = TestCluster::start("freeze", &vec![database(&redis, 0); 2]).await;
    // One in three clients is patient and reads on when the frozen replica wakes up.
    cluster.client.silence = Duration::from_secs(4 + 20 * cluster.seed.below(2));
    let turns = scaled(1, 10);
    cluster.client.spread = cluster.client.spread.max(Duration::from_secs(16) * (turns - 1));
    let jobs = mixed("freeze", scaled(30, 200), &mut cluster.seed, 100);
    let in_flight = cluster.launch(jobs).await;
    for turn in 0..usize::try_from(turns).expect("it is small") {
        tokio::time::sleep(Duration::from_millis(500 + cluster.seed.below(500))).await;
        let victim = turn % cluster.replicas.len();
        cluster.replicas[victim].signal(Signal::STOP);
        tokio::time::sleep(Duration::from_secs(15)).await;
        cluster.replicas[victim].signal(Signal::CONT);
    }
    let traces = in_flight.finished().await;
    // It counted nothing that the store refused.
    cluster.count().await;
    cluster.judge(traces).await;
}

#[tokio::test]
async fn replicas_are_replaced_one_by_one() {
    let redis = durable().await;
    for round in 0..scaled(1, 5) {
        let mut cluster = TestCluster::start(&format!("roll-{round}"), &vec![database(&redis, round); 3]).await;
        cluster.client.spread = Duration::from_secs(3);
        let jobs = mixed(&cluster.name, scaled(40, 200), &mut cluster.seed, 400);
        let in_flight = cluster.launch(jobs).await;
        for replica in &mut cluster.replicas {
            tokio::time::sleep(Duration::from_millis(200 + cluster.seed.below(300))).await;
            replica.sigterm();
            let started = tokio::time::Instant::now();
            let status = replica.drained().await;
            assert!(status.success(), "{status}");
            println!("{}: a replica ended after {:?}", cluster.name, started.elapsed());
            replica.restart().await;
        }
        cluster.finish(in_flight).await;
    }
}

/// Takes all of a test's seeds from one number.
#[test]
fn every_takeover_has_a_database_of_its_own() {
    let deaths = FAILPOINTS.len() * Tool::ALL.len() * usize::try_from(ROUNDS).expect("it is small");
    assert!(deaths <= DATABASES, "Redis has {DATABASES} databases");
    assert_ne!(Seed::new(1).part("a").number(), Seed::new(1).part("b").number());
}
