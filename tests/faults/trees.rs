//! Trees of runs on replicas that are killed: their budget is never passed, no run is lost or done twice, the first ends with what
//! those below it said, and who reads it sees all of it once.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::scaled;
use crate::support::TestServer;
use crate::support::cluster::checker::trees::{TreeCounter, TreeEvidence};
use crate::support::cluster::tree::{AMPLE, Shape, TreeReading, TreeServices, accept, at_rest, hold_tree, is_at_rest};
use crate::support::monitor::Monitor;
use crate::support::redis::{RedisServer, durable};
use crate::support::seed::Seed;

/// How long a replica lives at most, where its runs wait for others to be taken over.
const LIFE: Duration = Duration::from_secs(2);
/// Room for the first run's own calls, beside what the runs below it may take.
const OWN: u64 = 3_000;

/// What is in the way of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Budget {
    /// Half of what all runs would take: also the first one may find nothing left.
    Half,
    /// Half of what the runs below the first would take, in parts of their own: the first one has enough to say what it was told.
    Parts,
    /// Nothing.
    Ample,
}

impl Budget {
    /// What all may take, and what each of those below the first may with those below it.
    fn limits(self, shape: Shape) -> (u64, u64) {
        let part = shape.takes_from(1) / 2;
        match self {
            Self::Half => (shape.takes_from(0) / 2, AMPLE),
            Self::Parts => (part * shape.width as u64 + OWN, part),
            Self::Ample => (AMPLE, AMPLE),
        }
    }
}

/// Lets a tree come to its end on three replicas, of which one is killed so often, and asks the checker.
async fn outlasts(redis: &RedisServer, db: usize, shape: Shape, budget: Budget, kills: usize) {
    let mut seed = Seed::of_this_run().part(&format!("trees-{budget:?}"));
    let (limit, part) = budget.limits(shape);
    let services = TreeServices::start(shape).await;
    let store = format!("{}?db={db}", redis.url());
    let mut replicas = Vec::new();
    for _ in 0..3 {
        replicas.push(TestServer::builder(&services.config(part)).keep_port().store(&store).start().await);
    }
    let (mut monitor, done) = (Monitor::start(redis).await, format!("the tree with {budget:?} has ended"));
    let (mut counting, said) = (JoinSet::new(), done.clone());
    counting.spawn(async move {
        let is_it = |key: &str| key.contains("/tree/") && key.ends_with(":c:tokens/ever");
        monitor.counters(|line| line.contains("\"ECHO\"") && line.contains(&said), is_it).await
    });
    let root = accept(&replicas[0], limit).await.expect("it is accepted");
    let addresses = replicas.iter().map(|replica| replica.url().to_owned()).collect();
    let mut reading = JoinSet::new();
    reading.spawn(TreeReading::read(addresses, root.clone()));
    for kill in 0..kills {
        // After some more calls of the model, unless these wait for what died before.
        let (asked, deadline) = (services.asked() + 1 + usize::try_from(seed.below(9)).expect("it is small"), LIFE);
        let deadline = Instant::now() + deadline;
        while services.asked() < asked && Instant::now() < deadline {
            sleep(Duration::from_millis(5)).await;
        }
        // The first has all runs at first.
        let victim = if kill == 0 { 0 } else { usize::try_from(seed.below(3)).expect("it is below 3") };
        replicas[victim].kill9().await;
        replicas[victim].restart().await;
        if is_at_rest(&replicas[victim]).await {
            break;
        }
    }
    at_rest(&replicas[0]).await;
    let reading = reading.join_next().await.expect("it was begun").expect("it comes to its end");
    let mut found = services.evidence(&replicas[1], &root, limit).await;
    redis.cli(&["ECHO", &done]).await;
    let counted = counting.join_next().await.expect("it was begun").expect("it hears of the end");
    for (key, stood) in counted {
        let run = found.runs.keys().find(|run| key.contains(&format!("/tree/{run}}}"))).cloned();
        // Trees of other databases are counted, too.
        let Some(run) = run else { continue };
        let is_part = found.runs[&run].parent.as_ref().is_some_and(|(_, _, depth)| *depth == 1);
        let limit = if run == root {
            limit
        } else if is_part {
            part
        } else {
            AMPLE
        };
        let kept = redis.cli(&["-n", &db.to_string(), "GET", &key]).await;
        assert_eq!(kept.parse().unwrap_or(0), *stood.last().expect("it changed"), "{key}");
        found.counters.push(TreeCounter { run, limit, stood });
    }
    found.fits = budget == Budget::Ample;
    judge(budget, shape, &root, &reading, found);
    let tree = replicas[2].get(&format!("/v1/runs/{root}/tree")).await.ok();
    assert!(tree["tree"]["usage"]["total_tokens"].as_u64() > Some(0), "{tree}");
}

/// Asks the checker about a tree, after making sure that it was one.
#[expect(clippy::print_stdout, reason = "the figures are what a reader of a proof wants to see")]
fn judge(budget: Budget, shape: Shape, root: &str, reading: &TreeReading, mut found: TreeEvidence) {
    found.read = Some(reading.frames.clone());
    let name = format!("trees-{budget:?}");
    hold_tree(&name, &found);
    assert_eq!(reading.gaps(&found), [""; 0], "{name}");
    let of_root = found.counters.iter().find(|counter| counter.run == root).expect("its budget is counted");
    let most = of_root.stood.iter().copied().max().unwrap_or_default();
    let completed = found.runs.values().filter(|run| run.status == "completed").count();
    let resumed =
        found.runs.values().flat_map(|run| &run.events).filter(|event| event["type"] == "run.resumed").count();
    println!(
        "{name}: {completed} of {} runs completed, {} calls of the model, at most {most} of {} tokens used and reserved in {} \
         changes, {resumed} resumptions, read in {} connections with {} events of runs below",
        found.runs.len(),
        found.calls.len(),
        found.limit,
        of_root.stood.len(),
        reading.connections,
        reading.nested.len(),
    );
    match budget {
        Budget::Ample => {
            assert_eq!(found.runs[root].output, shape.answer("r"));
            assert_eq!(found.runs.len() as u64, shape.runs_from(0));
        }
        Budget::Half | Budget::Parts => {
            assert!(completed < found.runs.len(), "{name}: all fit");
            assert!(most > i64::try_from(found.limit / 2).expect("it is small"), "{name}: {most} of {}", found.limit);
        }
    }
    if budget == Budget::Parts {
        // It says what it was told, by the checker.
        assert_eq!(found.runs[root].status, "completed");
    }
}

#[tokio::test]
async fn a_tree_on_replicas_that_are_killed_stays_within_its_budget() {
    let redis = durable().await;
    let (width, levels) = scaled((2, 3), (3, 3));
    let shape = Shape { width, levels, leaf: Duration::from_millis(150) };
    let budgets = scaled(vec![Budget::Parts], vec![Budget::Half, Budget::Parts, Budget::Ample]);
    for (db, budget) in budgets.into_iter().enumerate() {
        outlasts(&redis, db, shape, budget, scaled(2, 10)).await;
    }
}
