//! Replicas that die while they fire schedules: each time of each schedule leads to one run, and none is left out.

use std::time::Duration;

use futures_util::future::join_all;
use loopgate::failpoint::{OF_ASKED_SCHEDULES, OF_SCHEDULES};
use loopgate::types::clock::now_ms;
use reqwest::Method;
use serde_json::{Value, json};

use super::{dies_within, scaled};
use crate::support::cluster::checker::schedules::{Fired, ScheduleEvidence, ScheduledRun, check_schedules};
use crate::support::redis::durable;
use crate::support::{Reply, TestServer, Upstream};

/// Schedules of one test, which all fire in the same minute.
const SCHEDULES: usize = 8;
/// How long it is from one time at which they fire to the next, in milliseconds.
const EVERY_MS: u64 = 60_000;
/// How far clocks may be apart, in milliseconds.
const APART_MS: u64 = 2_000;
/// It takes a minute until one fires.
const FIRED: Duration = Duration::from_secs(120);

async fn create(server: &TestServer, number: usize) {
    let request = json!({"model": "test", "messages": [{"role": "user", "content": "Report."}]});
    let body = json!({"id": format!("s{number}"), "cron": "* * * * *", "on_overlap": "allow", "request": request});
    server.post("/v1/schedules", &body).await.ok();
}

/// A list, of which one page is all.
async fn list(server: &TestServer, path: &str) -> Vec<Value> {
    server.get(path).await.ok()["data"].as_array().expect("it is a list").clone()
}

/// What a server knows of all schedules.
async fn evidence(server: &TestServer, from_ms: u64) -> ScheduleEvidence {
    let until_ms = now_ms();
    let mut found = ScheduleEvidence { every_ms: EVERY_MS, from_ms, until_ms, asked: 1, ..ScheduleEvidence::default() };
    for schedule in list(server, "/v1/schedules").await {
        let firings = schedule["firings"].as_array().expect("it has firings");
        let fired = |firing: &Value| Fired {
            due_ms: firing["due_ms"].as_u64(),
            at_ms: firing["at_ms"].as_u64().expect("it says when"),
            result: text(&firing["result"]),
            run: text(&firing["run_id"]),
        };
        found.schedules.insert(text(&schedule["id"]), firings.iter().map(fired).collect());
    }
    for run in list(server, "/v1/runs?limit=100").await {
        let run = server.get(&format!("/v1/runs/{}", text(&run["id"]))).await.ok();
        let (schedule, status) = (text(&run["metadata"]["schedule_id"]), text(&run["status"]));
        found.runs.insert(text(&run["id"]), ScheduledRun { schedule, status });
    }
    found
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Asks for a run of a schedule now; whether it was begun.
async fn ask(server: &TestServer, id: &str) -> bool {
    let request =
        server.json(&format!("/v1/schedules/{id}/run"), &json!({})).header("idempotency-key", format!("now-{id}"));
    request.send().await.is_ok_and(|answer| answer.status() == 202)
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
    let points = scaled(vec!["schedule.begun:2"], OF_SCHEDULES.to_vec());
    // At the same time, as each takes a minute, and on stores of their own: so each comes to its place.
    let tests = points.into_iter().enumerate().map(|(db, point)| outlives(format!("{}?db={db}", redis.url()), point));
    join_all(tests).await;
}

/// Lets schedules be made and fired by a replica that dies at this place, before another one goes on.
async fn outlives(store: String, point: &'static str) {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("All is well."));
    let start = |point: Option<&'static str>| {
        let builder = TestServer::builder(&upstream.config()).store(&store);
        point.into_iter().fold(builder, |builder, point| builder.env("LOOPGATE_FAILPOINT", point)).start()
    };
    let (mut dying, mut asking) = (start(Some(point)).await, start(Some(OF_ASKED_SCHEDULES[0])).await);
    // All of them fire at the same times: none of these comes while they are made, whatever the store's clock says.
    while !(APART_MS..EVERY_MS / 2).contains(&(now_ms() % EVERY_MS)) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let from_ms = now_ms();
    for number in 0..SCHEDULES {
        create(&dying, number).await;
    }
    assert!(!ask(&asking, "s0").await, "the server lives on");
    assert!(dies_within(&mut asking, FIRED).await, "the server does not come to {}", OF_ASKED_SCHEDULES[0]);
    for number in 0..SCHEDULES {
        let id = format!("s{number}");
        assert!(ask(&dying, &id).await && ask(&dying, &id).await, "a request may be sent again");
    }
    assert!(dies_within(&mut dying, FIRED).await, "the server does not come to {point}");
    let survivor = start(None).await;
    let has_fired = |found: &ScheduleEvidence| {
        found.until_ms / EVERY_MS > from_ms / EVERY_MS
            && !check_schedules(found).iter().any(|wrong| wrong.contains("did not fire"))
    };
    let mut found = evidence(&survivor, from_ms).await;
    within_minutes("all schedules to have fired", async {
        while !has_fired(&found) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            found = evidence(&survivor, from_ms).await;
        }
    })
    .await;
    let until_ms = found.until_ms;
    for id in found.schedules.keys() {
        patch(&survivor, id, &json!({"enabled": false})).await;
    }
    within_minutes("all runs to end", async {
        while found.until_ms == until_ms || !found.runs.values().all(|run| run.status == "completed") {
            tokio::time::sleep(Duration::from_millis(100)).await;
            found = evidence(&survivor, from_ms).await;
        }
    })
    .await;
    found.until_ms = until_ms;
    assert_eq!(check_schedules(&found), [""; 0], "{point}: {found:#?}");
    assert!(found.schedules.len() == SCHEDULES && found.runs.len() >= 2 * SCHEDULES, "{point}: {found:#?}");
}

async fn within_minutes<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(FIRED, wait).await.unwrap_or_else(|_| panic!("it took too long for {what}"))
}
