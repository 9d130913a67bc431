//! What becomes of requests that meet in one session, and of a run that its client has left, over HTTP.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Frame, Gate, Reply, TestServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";
/// How long a reader that was announced to other replicas counts as there (`follow/announcement.rs`), and a second.
const ANNOUNCED_FOR: Duration = Duration::from_secs(16);

fn ask(text: &str, agent: &Value) -> Value {
    json!({"model": "test", "stream": true, "messages": [{"role": "user", "content": text}], "agent": agent})
}

fn queued(agent: Value) -> Value {
    let mut agent = agent;
    (agent["session_id"], agent["on_conflict"]) = ("s".into(), "enqueue".into());
    agent
}

/// Returns once the run is at its end, and how that came.
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

fn run_of(frames: &[Frame]) -> String {
    let named = frames.iter().find_map(|frame| frame.json()["run_id"].as_str().map(str::to_owned));
    named.expect("an event names the run")
}

/// Else the session would be blocked for as long as a run may wait.
#[tokio::test]
async fn a_run_that_would_wait_for_its_client_ends_for_those_that_are_queued_behind_it() {
    let gate = Gate::new();
    let call = Reply::stream().gate(&gate).tool_call(0, "call_1", "theirs", "{}").finish("tool_calls");
    let upstream = Upstream::start([call.usage(9, 9).done(), Reply::says("Second.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let mut first = ask("one", &json!({"session_id": "s"}));
    first["tools"] = json!([{"type": "function", "function": {"name": "theirs"}}]);
    let first = server.stream(ENDPOINT, &first).await;
    gate.reached().await;
    let mut second = server.stream(ENDPOINT, &ask("two", &queued(json!({})))).await;
    second.until(|frame| frame.name == "run.queued").await;
    gate.open();
    let first = first.rest().await;
    assert!(first.iter().any(|frame| frame.name == "run.cancelled"), "{first:?}");
    let second = second.rest().await;
    assert_eq!(second.iter().filter_map(Frame::text).collect::<String>(), "Second.");
    assert!(second.iter().any(|frame| frame.name == "run.completed"), "{second:?}");
}

#[tokio::test]
async fn a_queued_run_whose_client_has_gone_asks_no_model() {
    let gate = Gate::new();
    let upstream =
        Upstream::start([Reply::stream().text("First.").gate(&gate).finish("stop").usage(9, 9).done()]).await;
    let server = TestServer::start(&upstream.config()).await;
    let first = server.stream(ENDPOINT, &ask("one", &json!({"session_id": "s"}))).await;
    gate.reached().await;
    let leaves = queued(json!({"on_disconnect": "cancel", "reconnect_grace_ms": 0}));
    let mut second = server.stream(ENDPOINT, &ask("two", &leaves)).await;
    let run = run_of(&second.until(|frame| frame.name == "run.queued").await);
    drop(second);
    let noticed = async {
        let read =
            async || server.respond(server.request(Method::GET, "/metrics")).await.text().await.expect("it is text");
        while !read().await.contains("loopgate_readers 1\n") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("the server to notice that the client has gone", noticed).await;
    // If the server had announced the reader before, this counts for so long.
    tokio::time::sleep(ANNOUNCED_FOR).await;
    gate.open();
    first.rest().await;
    assert_eq!(ended(&server, &run).await["status"], "cancelled");
    assert_eq!(upstream.requests().len(), 1, "only the first run asked");
}

/// It is told that there is no such run, and so it is no reader of it.
#[tokio::test]
async fn a_caller_of_another_tenant_keeps_no_run_alive() {
    let upstream = Upstream::start([Reply::stream().text("First.").stall()]).await;
    let keys = "[keys.owner]\nkey_env = \"OWNER\"\n[keys.stranger]\nkey_env = \"STRANGER\"\n";
    let builder = TestServer::builder(&format!("{}{keys}", upstream.config()));
    let mut server = builder.env("OWNER", "owner").env("STRANGER", "stranger").start().await;
    server.use_key("owner");
    let leaves = json!({"on_disconnect": "cancel", "reconnect_grace_ms": 1_000});
    let mut stream = server.stream(ENDPOINT, &ask("one", &leaves)).await;
    let run = run_of(&stream.until(|frame| frame.text().is_some()).await);
    drop(stream);
    let asks = async {
        loop {
            server.use_key("stranger");
            assert_eq!(server.get(&format!("/v1/runs/{run}/events")).await.status, 404);
            server.use_key("owner");
            if server.get(&format!("/v1/runs/{run}")).await.ok()["status"] == "cancelled" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    within("the run to be abandoned", asks).await;
}
