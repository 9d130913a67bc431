//! Much of everything: long messages, long logs and as many commands as are taken, while replicas die. Nothing is lost,
//! and no replica needs more memory for it than is promised.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use super::cluster::TestCluster;
use super::scaled;
use crate::support::cluster::KEY;
use crate::support::cluster::plan::{Plan, Tool};
use crate::support::redis::durable;
use crate::support::{Answer, TestServer};

/// What a replica may need, as the manifests limit it.
const MEMORY: u64 = 512 << 20;

/// Leaves each live run commands of `bytes` until no more are taken, or there are many. Returns how many each run took, by its
/// id.
async fn command(server: &TestServer, bytes: usize) -> BTreeMap<String, usize> {
    let runs = server.get("/v1/runs?status=in_progress&limit=100").await.ok();
    let message = json!({"role": "user", "content": "x".repeat(bytes)});
    let body = json!({"messages": [message]});
    let mut taken = BTreeMap::new();
    for run in runs["data"].as_array().into_iter().flatten() {
        let id = run["id"].as_str().expect("it has an id");
        let path = format!("/v1/runs/{id}/messages");
        for _ in 0..40 {
            let request = server.request(Method::POST, &path).header("content-type", "application/json");
            let answer = Answer::read(server.respond(request.body(body.to_string())).await).await;
            if answer.status >= 300 {
                assert!(answer.status < 500, "{} {}", answer.status, answer.body);
                break;
            }
            *taken.entry(id.to_owned()).or_default() += 1;
        }
    }
    taken
}

#[tokio::test]
async fn much_of_everything_is_kept_within_bounds_while_replicas_die() {
    let redis = durable().await;
    let mut cluster = TestCluster::start("large", &vec![redis.url(); 2]).await;
    for replica in &mut cluster.replicas {
        replica.use_key(KEY);
    }
    let plan = |run: u64| {
        let plan =
            Plan::new(format!("large-{run}")).with_tools(2, &[Tool::ALL[usize::try_from(run % 3).expect("small")]]);
        plan.with_text(120, 20).with_padding(120_000, 2_000).with_delay(30)
    };
    let jobs = (0..scaled(8, 40)).map(|run| (plan(run), None)).collect();
    let in_flight = cluster.launch(jobs).await;
    for victim in 0..2 {
        tokio::time::sleep(Duration::from_millis(700 + cluster.seed.below(300))).await;
        let taken = command(&cluster.replicas[1 - victim], 1_000_000).await;
        println!("large: {} commands were taken", taken.values().sum::<usize>());
        for (run, count) in taken {
            *cluster.steered.entry(run).or_default() += count;
        }
        let before = cluster.replicas[victim].most_memory();
        assert!(before < MEMORY, "replica {victim} needed {} MiB", before >> 20);
        cluster.replicas[victim].kill9().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        cluster.replicas[victim].restart().await;
    }
    cluster.finish(in_flight).await;
    assert!(!cluster.steered.is_empty(), "no run took a command of this size");
    for (index, replica) in cluster.replicas.iter().enumerate() {
        let needed = replica.most_memory();
        println!("large: replica {index} needed {} MiB", needed >> 20);
        assert!(needed < MEMORY, "replica {index} needed {} MiB", needed >> 20);
    }
}
