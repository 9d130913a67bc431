//! A server that dies around approvals: an approved call is made once, one that nobody approved never, and the run ends.

use std::time::Duration;

use loopgate::failpoint::OF_APPROVALS;
use serde_json::{Value, json};

use super::dies_within;
use crate::support::{Reply, TestServer, ToolServer, Upstream, within};

/// How long a server may take to come to the place at which it is to die.
const REACHED: Duration = Duration::from_secs(20);

/// Places that a run comes to when it begins to wait.
const AT_THE_PAUSE: [&str; 3] = ["approval.required", "run.before_end", "run.ended"];

/// Sends a request that the server may not survive.
async fn try_post(server: &TestServer, path: &str, body: &Value) {
    if let Ok(response) = server.json(path, body).send().await {
        let _ = response.bytes().await;
    }
}

/// Those at which what the model answered is not stored yet, so that it is asked again.
const BEFORE_THE_ANSWER_IS_STORED: [&str; 2] = ["approval.required", "run.before_end"];

/// Asks for the one run of this test, which is begun once. Returns its ID if the server lives to tell it.
async fn accept(server: &TestServer) -> Option<String> {
    let body =
        json!({"model": "test", "messages": [{"role": "user", "content": "Book"}], "agent": {"background": true}});
    let request = server.json("/v1/agent/completions", &body).header("idempotency-key", "the-run");
    let answer = request.send().await.ok()?.bytes().await.ok()?;
    let accepted: Value = serde_json::from_slice(&answer).ok()?;
    Some(accepted["id"].as_str().expect("it is accepted").to_owned())
}

/// What the run is, once nothing is under way in it.
async fn settled(server: &TestServer, run: &str) -> Value {
    within("the run to wait or to end", async {
        loop {
            let found = server.get(&format!("/v1/runs/{run}")).await.ok();
            if found["status"] != "in_progress" && found["status"] != "queued" {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

/// The calls that wait for an approval.
fn waiting(run: &Value) -> Vec<Value> {
    let calls = run["agent"]["required_action"]["calls"].as_array();
    calls.into_iter().flatten().map(|call| call["call_id"].clone()).collect()
}

fn approve(calls: &[Value]) -> Value {
    let decisions: Vec<_> = calls.iter().map(|id| json!({"call_id": id, "decision": "approve"})).collect();
    json!({"approvals": decisions})
}

/// The server dies at this place; `expires` if nobody approves the calls.
async fn dies_at(point: &str, expires: bool) {
    let two_calls = Reply::stream()
        .tool_call(0, "a", "book", r#"{"note":"one"}"#)
        .tool_call(1, "b", "book", r#"{"note":"two"}"#)
        .finish("tool_calls")
        .usage(10, 5)
        .done();
    let is_asked_again = BEFORE_THE_ANSWER_IS_STORED.contains(&point).then(|| two_calls.clone());
    let upstream = Upstream::start(is_asked_again.into_iter().chain([two_calls, Reply::says("booked")])).await;
    let tools = ToolServer::start([]).await;
    let timeout = if expires { "1s" } else { "1h" };
    let agent = format!(
        "[agents.default]\ntools = [\"book\"]\n[agents.default.policy]\nask = [\"book\"]\n\
         [agents.default.approval]\ntimeout = \"{timeout}\"\n"
    );
    let config = [upstream.config(), tools.config("book", "write"), agent].concat();
    let builder = TestServer::builder(&config).keep_port().env("LOOPGATE_FAILPOINT", point);
    let mut server = builder.start().await;
    if AT_THE_PAUSE.contains(&point) {
        // The server may die before it answers.
        let _ = accept(&server).await;
    } else {
        let run = accept(&server).await.expect("it is accepted");
        let path = format!("/v1/runs/{run}/approvals");
        let calls = waiting(&settled(&server, &run).await);
        assert_eq!(calls.len(), 2, "{point}");
        if !expires {
            // Half of the decisions, then the rest, if the server is still there.
            try_post(&server, &path, &approve(&calls[..1])).await;
            try_post(&server, &path, &approve(&calls[1..])).await;
        }
    }
    assert!(dies_within(&mut server, REACHED).await, "the server does not come to {point}");
    server.next_env(&[]);
    server.restart().await;
    let run = accept(&server).await.expect("it is accepted, or was before");
    let path = format!("/v1/runs/{run}/approvals");
    let end = loop {
        let found = settled(&server, &run).await;
        let calls = waiting(&found);
        if calls.is_empty() {
            break found;
        }
        if expires {
            tokio::time::sleep(Duration::from_millis(200)).await;
        } else {
            // One at a time, and each twice.
            try_post(&server, &path, &approve(&calls[..1])).await;
            try_post(&server, &path, &approve(&calls[..1])).await;
        }
    };
    assert_eq!(end["status"], "completed", "{point}: {end}");
    let mut made: Vec<Value> = tools.calls().iter().map(|call| call.json()["note"].clone()).collect();
    made.sort_by_key(Value::to_string);
    let expected = if expires { vec![] } else { vec![json!("one"), json!("two")] };
    assert_eq!(made, expected, "{point}");
}

#[tokio::test]
async fn a_server_that_dies_around_approvals_makes_each_approved_call_once() {
    for point in OF_APPROVALS {
        dies_at(point, point.ends_with("expiry")).await;
    }
    for point in ["resume.before_record", "resume.recorded"].into_iter().chain(AT_THE_PAUSE) {
        dies_at(point, false).await;
    }
}
