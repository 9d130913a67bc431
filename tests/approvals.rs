//! Approvals of tool calls, at the door: a second client, another replica, restarts, and the many that wait.

use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{StreamExt, iter};
use serde_json::{Value, json};

use crate::support::redis::RedisServer;
use crate::support::{Answer, Reply, TestServer, ToolServer, Upstream, within};

const KEYS: &str = r#"
    [keys.web]
    tenant = "acme"
    key_env = "WEB"
    scopes = ["run", "read"]

    [keys.ops]
    tenant = "acme"
    key_env = "OPS"
    scopes = ["approvals", "read"]

    [agents.default.policy]
    ask = ["book"]
"#;

/// A server over this store whose tool `book` needs an approval.
async fn server(upstream: &Upstream, tools: &ToolServer, redis: &RedisServer) -> TestServer {
    let agents = "[agents.default]\ntools = [\"book\"]\n";
    let config = [&upstream.config(), &tools.config("book", "write"), agents, KEYS].concat();
    TestServer::builder(&config).env("WEB", "lg_web").env("OPS", "lg_ops").store(&redis.url()).start().await
}

fn chat() -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": "Book it"}]})
}

async fn post(server: &TestServer, key: &str, path: &str, body: &Value) -> Answer {
    server.send(server.json(path, body).bearer_auth(key)).await
}

async fn get(server: &TestServer, key: &str, path: &str) -> Value {
    server.send(server.request(reqwest::Method::GET, path).bearer_auth(key)).await.ok()
}

fn code(answer: &Answer) -> (u16, &Value) {
    (answer.status, &answer.body["error"]["code"])
}

#[tokio::test]
async fn another_client_approves_on_another_replica_after_both_were_started_again() {
    let redis = crate::support::redis::durable().await;
    let upstream = Upstream::start([Reply::calls("book", &json!({"note": "seat 7"})), Reply::says("booked")]).await;
    let tools = ToolServer::start([Reply::plain("done")]).await;
    let (mut one, mut two) = (server(&upstream, &tools, &redis).await, server(&upstream, &tools, &redis).await);

    let asked = post(&one, "lg_web", "/v1/chat/completions", &chat()).await.ok();
    let choice = &asked["choices"][0];
    assert_eq!((&choice["finish_reason"], choice["message"].get("tool_calls")), (&json!("stop"), None), "{asked}");
    let agent = &asked["agent"];
    assert_eq!((&agent["status"], &agent["stop_reason"]), (&json!("requires_action"), &json!("approval")));
    assert_eq!(agent["required_action"]["type"], "approval");
    let call = agent["required_action"]["calls"][0].clone();
    assert_eq!((&call["name"], &call["arguments"]), (&json!("book"), &json!({"note": "seat 7"})));
    let path = format!("/v1/runs/{}/approvals", agent["run_id"].as_str().unwrap());
    for server in [&mut one, &mut two] {
        server.kill9().await;
        server.restart().await;
    }
    assert!(tools.calls().is_empty(), "nothing is done before it is approved");

    let decide = |decision: &str| {
        json!({"approvals": [{
            "call_id": call["call_id"], "decision": decision, "arguments_digest": call["arguments_digest"],
        }]})
    };
    let refused = post(&two, "lg_web", &path, &decide("approve")).await;
    assert_eq!(code(&refused), (403, &json!("forbidden")), "the one who asked lacks the scope");
    let other = json!({"approvals": [{"call_id": call["call_id"], "decision": "approve", "arguments_digest": "00"}]});
    assert_eq!(code(&post(&two, "lg_ops", &path, &other).await), (409, &json!("version_conflict")));
    let strange = json!({"approvals": [{"call_id": "call_x", "decision": "approve"}]});
    assert_eq!(code(&post(&two, "lg_ops", &path, &strange).await), (404, &json!("call_not_found")));

    // Two approve at the same time: one of them is first.
    let approval = decide("approve");
    let answers = join_all([&one, &two].map(|server| post(server, "lg_ops", &path, &approval))).await;
    let (took, late): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
    assert_eq!((took.len(), code(&late[0])), (1, (409, &json!("run_not_waiting"))));
    assert_eq!(took[0].body["choices"][0]["message"]["content"], "booked");
    assert_eq!(tools.calls().len(), 1, "the call is made once");
    let again = post(&one, "lg_ops", &path, &decide("deny")).await;
    assert_eq!(code(&again), (409, &json!("run_not_waiting")));

    let run = agent["run_id"].as_str().unwrap();
    let events = get(&one, "lg_ops", &format!("/v1/runs/{run}/events?stream=false")).await;
    let named = |name: &str| {
        let events = events["data"].as_array().unwrap();
        events.iter().filter(|event| event["type"] == name).cloned().collect::<Vec<_>>()
    };
    let (required, resolved) = (named("approval.required"), named("approval.resolved"));
    assert_eq!((required.len(), &required[0]["expires_ms"]), (1, &call["expires_ms"]));
    assert_eq!((resolved.len(), &resolved[0]["decision"], &resolved[0]["by"]), (1, &json!("approve"), &json!("ops")));
    let report = &get(&one, "lg_ops", &format!("/v1/runs/{run}")).await["agent"]["report"];
    let decisions = &report["steps"][0]["tool_calls"][0]["decisions"];
    assert_eq!(*decisions, json!([{"decision": "approve", "by": "ops"}]), "{report}");
}

#[tokio::test]
async fn a_response_that_waits_goes_on_when_another_replica_hears_the_decision() {
    let redis = RedisServer::start().await;
    let upstream = Upstream::start([Reply::calls("book", &json!({})), Reply::says("booked")]).await;
    let tools = ToolServer::start([Reply::plain("done")]).await;
    let (one, two) = (server(&upstream, &tools, &redis).await, server(&upstream, &tools, &redis).await);
    let body = json!({"model": "test", "messages": [{"role": "user", "content": "Book it"}],
                      "agent": {"approval": {"mode": "wait"}}});
    let asking = post(&one, "lg_web", "/v1/agent/completions", &body);
    let approving = async {
        let list = "/v1/runs?status=requires_action";
        let run = loop {
            let runs = get(&two, "lg_ops", list).await;
            if let Some(run) = runs["data"][0]["id"].as_str() {
                break run.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let waiting = get(&two, "lg_ops", &format!("/v1/runs/{run}")).await;
        let call = &waiting["agent"]["required_action"]["calls"][0]["call_id"];
        let decision = json!({"approvals": [{"call_id": call, "decision": "approve"}]});
        post(&two, "lg_ops", &format!("/v1/runs/{run}/approvals"), &decision).await.ok()
    };
    let (asked, approved) = Box::pin(within("both answers", async { tokio::join!(asking, approving) })).await;
    for answer in [asked.ok(), approved] {
        assert_eq!(answer["choices"][0]["message"]["content"], "booked", "{answer}");
    }
    assert_eq!(tools.calls().len(), 1);
}

#[tokio::test]
async fn what_is_sent_as_decisions_is_checked() {
    let redis = RedisServer::start().await;
    let upstream = Upstream::start([Reply::calls("book", &json!({})), Reply::says("so be it")]).await;
    let tools = ToolServer::start([]).await;
    let server = server(&upstream, &tools, &redis).await;
    let asked = post(&server, "lg_web", "/v1/agent/completions", &chat()).await.ok();
    let run = asked["agent"]["run_id"].as_str().unwrap();
    let call = &asked["agent"]["required_action"]["calls"][0]["call_id"];
    let path = format!("/v1/runs/{run}/approvals");
    for (body, param) in [
        (json!({}), "approvals"),
        (json!({"approvals": []}), "approvals"),
        (json!({"approvals": [{"call_id": call, "decision": "maybe"}]}), "approvals[0].decision"),
        (json!({"approvals": [{"call_id": call, "decision": "deny", "result": 1}]}), "approvals[0].result"),
        (
            json!({"approvals": [{"call_id": call, "decision": "approve", "arguments": {"note": 1}}]}),
            "approvals[0].arguments",
        ),
        (json!({"approvals": [{"call_id": call, "decision": "approve", "arguments": null}]}), "approvals[0].arguments"),
        (json!({"approvals": [{"call_id": call, "decision": "deny", "result": null}]}), "approvals[0].result"),
        (
            json!({"approvals": [{"call_id": call, "decision": "approve", "result": "x".repeat(60_000)}]}),
            "approvals[0].result",
        ),
        (
            json!({"approvals": [{"call_id": call, "decision": "approve"}, {"call_id": call, "decision": "deny"}]}),
            "approvals[1].call_id",
        ),
    ] {
        let refused = post(&server, "lg_ops", &path, &body).await;
        assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &json!(param)), "{body}: {}", refused.body);
    }
    let missing = "/v1/runs/run_019a0000000070008000000000000000/approvals";
    let decision = json!({"approvals": [{"call_id": call, "decision": "deny", "reason": "No."}]});
    assert_eq!(code(&post(&server, "lg_ops", missing, &decision).await), (404, &json!("run_not_found")));
    let denied = post(&server, "lg_ops", &path, &decision).await.ok();
    assert_eq!(denied["choices"][0]["message"]["content"], "so be it");
    assert!(tools.calls().is_empty());
}

#[tokio::test]
async fn approvers_whose_clients_name_their_requests_alike_each_count() {
    let redis = RedisServer::start().await;
    let upstream = Upstream::start([Reply::calls("book", &json!({})), Reply::says("booked")]).await;
    let tools = ToolServer::start([]).await;
    let second = "[keys.boss]\ntenant = \"acme\"\nkey_env = \"BOSS\"\nscopes = [\"approvals\"]\n[agents.default.approval]\napprovals = 2\n";
    let agents = "[agents.default]\ntools = [\"book\"]\n";
    let config = [&upstream.config(), &tools.config("book", "write"), agents, KEYS, second].concat();
    let builder = TestServer::builder(&config).env("WEB", "lg_web").env("OPS", "lg_ops").env("BOSS", "lg_boss");
    let server = builder.store(&redis.url()).start().await;
    let asked = post(&server, "lg_web", "/v1/agent/completions", &chat()).await.ok();
    let call = asked["agent"]["required_action"]["calls"][0]["call_id"].clone();
    let path = format!("/v1/runs/{}/approvals", asked["agent"]["run_id"].as_str().unwrap());
    let body = json!({"approvals": [{"call_id": call, "decision": "approve"}]});
    let approve = async |key: &str| {
        let request = server.json(&path, &body).bearer_auth(key).header("idempotency-key", "approve-the-call");
        server.send(request).await.ok()
    };
    assert_eq!(approve("lg_ops").await["agent"]["status"], "requires_action");
    assert_eq!(approve("lg_ops").await["agent"]["status"], "requires_action", "it is the same request");
    assert_eq!(approve("lg_boss").await["agent"]["status"], "completed");
    assert_eq!(tools.calls().len(), 1);
}

/// How many bytes of data the server holds.
async fn used(redis: &RedisServer) -> u64 {
    let memory = redis.cli(&["INFO", "memory"]).await;
    let line = memory.lines().find_map(|line| line.strip_prefix("used_memory_dataset:"));
    line.expect("it tells").trim().parse().expect("it is a number")
}

#[tokio::test]
async fn a_thousand_runs_that_wait_hold_no_task_and_little_of_the_store() {
    const RUNS: u64 = 1_000;
    let redis = RedisServer::start().await;
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::calls("book", &json!({"note": "a seat"})));
    let tools = ToolServer::start([]).await;
    let server = server(&upstream, &tools, &redis).await;
    post(&server, "lg_web", "/v1/agent/completions", &chat()).await.ok();
    let before = used(&redis).await;
    let asked: Vec<Value> = iter(0..RUNS)
        .map(|_| async { post(&server, "lg_web", "/v1/agent/completions", &chat()).await.ok() })
        .buffer_unordered(16)
        .collect()
        .await;
    assert!(asked.iter().all(|answer| answer["agent"]["stop_reason"] == "approval"));
    // What is counted and unregistered after a run's end is shared by those that end within a second.
    let each = within("the store to settle", async {
        loop {
            let each = used(&redis).await.saturating_sub(before) / RUNS;
            if each < 8 << 10 {
                return each;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let each = each.await;
    println!("a run that waits takes {each} bytes");
    // A released lease keeps its token for a while, without a holder.
    let leases = redis.cli(&["--scan", "--pattern", "*h:lease/run_*"]).await;
    for lease in leases.lines() {
        let held = redis.cli(&["GET", lease]).await;
        assert!(held.is_empty() || held.trim_end().ends_with("::0:"), "a run that waits holds no lease: {held}");
    }
}
