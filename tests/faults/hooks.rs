//! Messages to hooks over replicas that die: each run's end is told, under one id, and not without end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use loopgate::failpoint::OF_HOOKS;
use serde_json::{Value, json};

use super::{dies_within, is_full};
use crate::support::redis::{DATABASES, RedisServer, durable};
use crate::support::{Reply, TestServer, ToolServer, Upstream};

/// Runs of one test.
const RUNS: usize = 6;
/// How often one message may come: once for each attempt that was begun before the replica died, and once after.
const MOST: usize = 3;
/// Places that a run's last event and the delivery of its message come to.
const AT_THE_END: [&str; 2] = ["run.ended", "run.released"];

/// Replica `a` dies at `point`, and `b` tells what `a` did not.
async fn one_dies_and_another_tells(point: &str, redis: &RedisServer, number: usize) {
    let (database, store) = ((number % DATABASES).to_string(), format!("{}?db={}", redis.url(), number % DATABASES));
    let store = store.as_str();
    // A failed attempt is made again, also by another replica.
    let hooks = ToolServer::start([Reply::status(503)]).await;
    let tools = ToolServer::start([]).await;
    let upstream = Upstream::start([]).await;
    for _ in 0..RUNS {
        upstream.then(Reply::calls("pay", &json!({"note": "1"})));
    }
    upstream.otherwise(Reply::says("Done."));
    let config = format!(
        "{}{}[agents.default]\ntools = [\"pay\"]\n[hooks.ended]\non = \"run_end\"\naction = \"webhook\"\n\
         url = \"http://{}/ended\"\ntimeout = \"1s\"\n[hooks.asked]\non = \"before_tool\"\naction = \"command\"\ncommand = [\"/bin/sh\", \"-c\", \"exit 0\"]\n",
        upstream.config(),
        tools.config("pay", "idempotent"),
        hooks.address()
    );
    let mut dying = TestServer::builder(&config).store(store).env("LOOPGATE_FAILPOINT", point).start().await;
    let other = TestServer::builder(&config).store(store).start().await;
    let body =
        json!({"model": "test", "messages": [{"role": "user", "content": "Go."}], "agent": {"background": true}});
    let mut accepted = Vec::new();
    for number in 0..RUNS {
        let server = if number % 2 == 0 { &dying } else { &other };
        let Ok(response) = server.json("/v1/agent/completions", &body).send().await else { continue };
        let Ok(body) = response.bytes().await else { continue };
        let Ok(run) = serde_json::from_slice::<Value>(&body) else { continue };
        accepted.extend(run["id"].as_str().map(str::to_owned));
    }
    assert!(dies_within(&mut dying, Duration::from_secs(20)).await, "nothing came to {point}");
    let told = || {
        let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for call in hooks.calls() {
            let run = call.json()["run_id"].as_str().expect("a message names its run").to_owned();
            told.entry(run).or_default().push(call.headers["webhook-id"].clone());
        }
        told
    };
    let all = async {
        while !accepted.iter().all(|run| told().contains_key(run)) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(90), all).await.unwrap_or_else(|_| panic!("{point}: {:?}", told()));
    // What was taken is not kept, and nothing leads to it.
    let is_empty = async || {
        let messages = redis.cli(&["-n", &database, "--scan", "--pattern", "*d:outbox/*"]).await;
        let due = redis.cli(&["-n", &database, "--scan", "--pattern", "lg:{due}:d:*/message/*"]).await;
        messages.trim().is_empty() && due.trim().is_empty()
    };
    let emptied = async {
        while !is_empty().await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    // An entry that leads to a message which was never stored goes a minute after its time.
    let emptied = tokio::time::timeout(Duration::from_secs(150), emptied).await;
    emptied.unwrap_or_else(|_| panic!("{point}: messages or entries stay"));
    for (run, ids) in told() {
        assert!(ids.iter().all(|id| *id == ids[0]), "{point}: {run} was told under several ids: {ids:?}");
        assert!(ids.len() <= MOST, "{point}: {run} was told {} times", ids.len());
    }
}

#[tokio::test]
async fn a_message_outlives_the_replica_that_was_to_send_it() {
    let redis = Arc::new(durable().await);
    let sample = ["outbox.indexed", "outbox.claimed", "outbox.sent", "run.ended", "hook.answered"];
    let all: Vec<&str> = OF_HOOKS.iter().copied().chain(AT_THE_END).collect();
    let points = if is_full() { all } else { sample.to_vec() };
    let mut under_way = tokio::task::JoinSet::new();
    for (number, point) in points.into_iter().enumerate() {
        let (point, redis) = (point.to_owned(), redis.clone());
        under_way.spawn(async move { one_dies_and_another_tells(&point, &redis, number).await });
    }
    while let Some(ended) = under_way.join_next().await {
        if let Err(failure) = ended {
            std::panic::resume_unwind(failure.into_panic());
        }
    }
}
