//! Runs that outlive their server again and again, and runs that cannot, over HTTP.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::redis::durable;
use crate::support::{Frame, Gate, Reply, TestServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";

fn ask(agent: &Value) -> Value {
    json!({"model": "test", "stream": true, "messages": [{"role": "user", "content": "Go."}], "agent": agent})
}

/// Starts a run, and returns its id once its model has begun to answer.
async fn begun(server: &TestServer, gate: &Gate) -> String {
    let mut stream = server.stream(ENDPOINT, &ask(&json!({"on_disconnect": "continue"}))).await;
    let frames = stream.until(|frame| frame.name == "run.started").await;
    gate.reached().await;
    frames.iter().find_map(|frame| frame.json()["run_id"].as_str().map(str::to_owned)).expect("an event names the run")
}

async fn ended(server: &TestServer, run: &str) -> Value {
    let ends = async {
        loop {
            let found = server.get(&format!("/v1/runs/{run}")).await.ok();
            if !found["stop_reason"].is_null() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("the run to end", ends).await
}

/// A run may meet any number of restarts.
#[tokio::test]
async fn a_run_that_servers_leave_by_order_is_no_crash_loop() {
    let gates: Vec<Gate> = (0..6).map(|_| Gate::new()).collect();
    let reply = |gate: &Gate| Reply::stream().gate(gate).text("Hello").finish("stop").usage(9, 9).done();
    let upstream = Upstream::start(gates.iter().map(reply)).await;
    let server = "[server]\ndrain_delay = \"0s\"\ndrain_timeout = \"100ms\"\n";
    let mut server = TestServer::start(&format!("{}{server}", upstream.config())).await;
    let run = begun(&server, &gates[0]).await;
    for gate in &gates[1..] {
        server.sigterm();
        assert!(server.drained().await.success());
        server.restart().await;
        within("the model to be asked again", gate.reached()).await;
    }
    gates[5].open();
    let found = ended(&server, &run).await;
    assert_eq!((&found["status"], &found["output_text"]), (&json!("completed"), &json!("Hello")), "{found}");
}

#[tokio::test]
async fn a_run_whose_server_dies_again_and_again_ends_and_the_log_says_so() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::stream().stall());
    let mut server = TestServer::start(&upstream.config()).await;
    let mut stream = server.stream(ENDPOINT, &ask(&json!({"on_disconnect": "continue"}))).await;
    let frames = stream.until(|frame| frame.name == "run.started").await;
    let run = frames[0].json()["run_id"].as_str().expect("it has an id").to_owned();
    for calls in 1..=4 {
        upstream.received(calls).await;
        server.kill9().await;
        server.restart().await;
    }
    let found = ended(&server, &run).await;
    assert_eq!((&found["status"], &found["stop_reason"]), (&json!("failed"), &json!("crash_loop")), "{found}");
    assert_eq!(upstream.requests().len(), 4);
    let line = server.logged("crash_loop").await;
    assert!(line.contains("WARN") && line.contains(&run), "{line}");
}

/// Neither the run nor its session may be lost with an entry that a fault of the store has damaged.
#[tokio::test]
async fn a_run_whose_log_cannot_be_read_fails_and_its_session_goes_on() {
    let redis = durable().await;
    let upstream = Upstream::start([Reply::calls("theirs", &json!({})), Reply::says("Next.")]).await;
    let server = TestServer::builder(&upstream.config()).store(&redis.url()).start().await;
    let mut waits = ask(&json!({"session_id": "s"}));
    waits["tools"] = json!([{"type": "function", "function": {"name": "theirs"}}]);
    let frames = server.stream(ENDPOINT, &waits).await.rest().await;
    let run = frames[0].json()["run_id"].as_str().expect("it has an id").to_owned();
    let keys = redis.cli(&["KEYS", &format!("*{run}*")]).await;
    let mut damaged = 0;
    for key in keys.lines() {
        if redis.cli(&["TYPE", key]).await.trim() == "list" {
            redis.cli(&["LSET", key, "-1", "{\"n\":"]).await;
            damaged += 1;
        }
    }
    assert!(damaged > 0, "{keys}");
    server.post("/v1/sessions/s/cancel", &json!({})).await.ok();
    let found = ended(&server, &run).await;
    assert_eq!((&found["status"], &found["stop_reason"]), (&json!("failed"), &json!("store_lost_state")), "{found}");
    let next = server.stream(ENDPOINT, &ask(&json!({"session_id": "s"}))).await.rest().await;
    assert_eq!(next.iter().filter_map(Frame::text).collect::<String>(), "Next.", "{next:?}");
    server.send(server.request(reqwest::Method::DELETE, "/v1/sessions/s")).await.ok();
}
