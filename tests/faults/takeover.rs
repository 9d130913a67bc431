//! Several replicas on one Redis: whichever dies, freezes or is replaced, the others finish its runs.

use std::time::Duration;

use loopgate::kill::POINTS;
use serde_json::json;

use super::site::{Site, TAKEOVER};
use super::{dies_within, is_full, mixed, scaled};
use crate::support::fleet::plan::{Plan, Tool};
use crate::support::redis::{RedisServer, durable};
use crate::support::seed::Seed;

/// Databases of one Redis, a test's own each.
fn database(redis: &RedisServer, number: usize) -> String {
    format!("{}?db={number}", redis.url())
}

/// One replica dies at `point`, and another goes on; at places of a resumption, this dies as well, and the
/// first one's next life goes on.
async fn dies_and_another_goes_on(point: &'static str, nth: u64, tool: Tool, store: String) {
    let name = format!("takeover-{point}-{nth}-{}", tool.name());
    let place = format!("{point}:{nth}");
    let in_resumption = point.starts_with("resume.");
    let places = if in_resumption { vec!["model.delta_recorded:4", &place] } else { vec![&*place] };
    let mut site = Site::dying(&name, &[store.clone(), store], &places).await;
    site.client.door = Some(site.replicas[0].url().to_owned());
    if site.seed.next() % 2 == 0 {
        site.client.agent = json!({});
    }
    let plan = |run: u32| Plan::new(format!("{name}-{run}")).with_tools(2, &[tool]).with_text(4, 20).with_delay(30);
    let orders = (0..4).map(|run| (plan(run), (run > 1).then(|| format!("{name}-{run}"))));
    let flight = site.launch(orders.collect()).await;
    let patience = Duration::from_secs(10);
    assert!(dies_within(&mut site.replicas[0], patience).await, "no run came to {}", places[0]);
    if in_resumption {
        assert!(dies_within(&mut site.replicas[1], TAKEOVER).await, "no resumption came to {place}");
        site.replicas[0].next_env(&[]);
        site.replicas[0].restart().await;
    }
    // Whoever reads the evidence asks those that are alive.
    site.client.addresses.remove(usize::from(in_resumption));
    let figures = site.land(flight).await;
    let slowest = Duration::from_millis(figures.takeovers.percentile(100));
    let most = if in_resumption { TAKEOVER * 2 } else { TAKEOVER };
    assert!(slowest <= most, "{name}: a run stood still for {slowest:?}");
}

#[tokio::test]
async fn a_replica_dies_anywhere_and_another_goes_on() {
    let redis = durable().await;
    let mut deaths = Vec::new();
    for (index, point) in POINTS.iter().enumerate() {
        for (number, tool) in Tool::ALL.into_iter().enumerate() {
            let is_sample = number == index % Tool::ALL.len() || (point.starts_with("tool.") && tool == Tool::Book);
            if is_full() || is_sample {
                deaths.push((*point, 1, tool));
            }
            if is_full() {
                deaths.push((*point, 2, tool));
            }
        }
    }
    let mut deaths = deaths.into_iter().enumerate();
    let mut under_way = tokio::task::JoinSet::new();
    loop {
        while under_way.len() < 10
            && let Some((number, (point, nth, tool))) = deaths.next()
        {
            under_way.spawn(dies_and_another_goes_on(point, nth, tool, database(&redis, number)));
        }
        match under_way.join_next().await {
            Some(Ok(())) => {}
            Some(Err(failure)) => std::panic::resume_unwind(failure.into_panic()),
            None => return,
        }
    }
}

#[tokio::test]
async fn replicas_are_killed_at_any_time() {
    let redis = durable().await;
    let mut site = Site::start("killings", &vec![database(&redis, 0); 3]).await;
    let orders = mixed("killings", scaled(24, 120), &mut site.seed, 100);
    let flight = site.launch(orders).await;
    for turn in 0..scaled(2, 6) {
        tokio::time::sleep(Duration::from_millis(300 + site.seed.below(700))).await;
        let victim = turn % site.replicas.len();
        site.replicas[victim].kill9().await;
        tokio::time::sleep(Duration::from_millis(site.seed.below(1000))).await;
        site.replicas[victim].restart().await;
    }
    site.land(flight).await;
}

/// A process that stood still does not know that its runs are another's by now.
#[tokio::test]
async fn a_replica_freezes_and_wakes_up() {
    let redis = durable().await;
    let mut site = Site::start("freeze", &vec![database(&redis, 0); 2]).await;
    // One in three clients is patient and reads on when the frozen replica wakes up.
    site.client.silence = Duration::from_secs(4 + 20 * site.seed.below(2));
    let orders = mixed("freeze", scaled(30, 100), &mut site.seed, 100);
    let flight = site.launch(orders).await;
    for turn in 0..scaled(1, 4) {
        tokio::time::sleep(Duration::from_millis(500 + site.seed.below(500))).await;
        let victim = turn % site.replicas.len();
        site.replicas[victim].signal("STOP").await;
        tokio::time::sleep(Duration::from_secs(15)).await;
        site.replicas[victim].signal("CONT").await;
    }
    site.land(flight).await;
}

#[tokio::test]
async fn replicas_are_replaced_one_by_one() {
    let redis = durable().await;
    let mut site = Site::start("roll", &vec![database(&redis, 0); 3]).await;
    site.client.spread = Duration::from_secs(scaled(3, 30));
    let orders = mixed("roll", scaled(40, 200), &mut site.seed, 400);
    let flight = site.launch(orders).await;
    for _ in 0..scaled(1, 3) {
        for replica in &mut site.replicas {
            tokio::time::sleep(Duration::from_millis(200 + site.seed.below(300))).await;
            replica.sigterm().await;
            let started = tokio::time::Instant::now();
            let status = replica.drained().await;
            assert!(status.success(), "{status}");
            println!("roll: a replica ended after {:?}", started.elapsed());
            replica.restart().await;
        }
    }
    site.land(flight).await;
}

/// Takes all of a test's seeds from one number.
#[test]
fn databases_are_apart() {
    let numbers: std::collections::BTreeSet<_> = (0..POINTS.len() * 6).map(|number| number % 512).collect();
    assert_eq!(numbers.len(), POINTS.len() * 6, "Redis has 512 databases");
    assert_ne!(Seed::new(1).part("a").number(), Seed::new(1).part("b").number());
}
