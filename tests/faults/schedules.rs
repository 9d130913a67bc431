//! Replicas that die while they fire schedules: each time of each schedule leads to one run, and none is left out.

use std::collections::BTreeSet;
use std::time::Duration;

use loopgate::failpoint::OF_SCHEDULES;
use reqwest::Method;
use serde_json::{Value, json};

use super::{dies_within, scaled};
use crate::support::redis::durable;
use crate::support::{Reply, TestServer, Upstream, within};

/// Schedules of one test, which all fire in the same minute.
const SCHEDULES: usize = 8;
/// It takes a minute until they fire, and another one where the other replicas were first.
const FIRED: Duration = Duration::from_secs(150);

async fn create(server: &TestServer, number: usize) {
    let request = json!({"model": "test", "messages": [{"role": "user", "content": "Report."}]});
    let body = json!({"id": format!("s{number}"), "cron": "* * * * *", "on_overlap": "allow", "request": request});
    server.post("/v1/schedules", &body).await.ok();
}

/// A list, of which one page is all.
async fn list(server: &TestServer, path: &str) -> Vec<Value> {
    server.get(path).await.ok()["data"].as_array().expect("it is a list").clone()
}

/// The runs that a schedule says it began.
fn runs_of(schedule: &Value) -> Vec<String> {
    let firings = schedule["firings"].as_array().expect("it has firings");
    let run = |firing: &Value| {
        assert_eq!(firing["result"], "started", "{schedule}");
        firing["run_id"].as_str().expect("it names its run").to_owned()
    };
    firings.iter().map(run).collect()
}

async fn patch(server: &TestServer, id: &str, body: &Value) {
    let path = format!("/v1/schedules/{id}");
    let mut request = server.json(&path, body).build().expect("it is a request");
    *request.method_mut() = Method::PATCH;
    let answer = reqwest::Client::new().execute(request).await.expect("it is answered");
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn each_time_of_a_schedule_leads_to_one_run_whoever_dies() {
    let redis = durable().await;
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("All is well."));
    let points = scaled(vec!["schedule.begun:2"], OF_SCHEDULES.to_vec());
    let start = |point: Option<&'static str>| {
        let builder = TestServer::builder(&upstream.config()).store(&redis.url());
        point.into_iter().fold(builder, |builder, point| builder.env("LOOPGATE_FAILPOINT", point)).start()
    };
    let mut dying = Vec::new();
    for point in points {
        dying.push((point, start(Some(point)).await));
    }
    let survivor = start(None).await;
    // A replica knows at once of what it made itself, so those that are to die come to it.
    for number in 0..SCHEDULES {
        create(&dying[number % dying.len()].1, number).await;
    }
    for (point, server) in &mut dying {
        assert!(dies_within(server, FIRED).await, "the server does not come to {point}");
    }
    let schedules = within_minutes("all schedules to have fired", async {
        loop {
            let schedules = list(&survivor, "/v1/schedules").await;
            if schedules.iter().all(|schedule| !runs_of(schedule).is_empty()) {
                return schedules;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    for schedule in &schedules {
        patch(&survivor, schedule["id"].as_str().expect("it has an id"), &json!({"enabled": false})).await;
    }
    let schedules = list(&survivor, "/v1/schedules").await;
    let said: Vec<String> = schedules.iter().flat_map(runs_of).collect();
    let runs = within("all runs to end", async {
        loop {
            let runs = list(&survivor, "/v1/runs?limit=100").await;
            if runs.iter().all(|run| run["status"] == "completed") {
                return runs;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    let ids: BTreeSet<String> = runs.iter().map(|run| run["id"].as_str().expect("it has an id").to_owned()).collect();
    assert_eq!(ids, said.iter().cloned().collect(), "{schedules:?}");
    assert_eq!(ids.len(), said.len(), "a run for each firing: {schedules:?}");
    for schedule in &schedules {
        let times: Vec<_> = schedule["firings"].as_array().into_iter().flatten().map(|one| &one["due_ms"]).collect();
        let once: BTreeSet<_> = times.iter().map(|time| time.as_u64()).collect();
        assert_eq!(once.len(), times.len(), "{schedule}");
    }
}

async fn within_minutes<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(FIRED, wait).await.unwrap_or_else(|_| panic!("it took too long for {what}"))
}
