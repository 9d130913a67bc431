//! A server that dies around guardrails that ask: what nobody judged is neither made nor shown, and what was judged is made once.

use std::time::Duration;

use loopgate::failpoint::OF_GUARDRAILS;
use serde_json::{Value, json};

use super::dies_within;
use crate::support::{Reply, TestServer, ToolServer, Upstream, within};

/// How long a server may take to come to the place at which it is to die.
const REACHED: Duration = Duration::from_secs(20);

/// The server dies when it comes to this place for the nth time: around users' words, the arguments of a call, or its result.
async fn dies_at(point: &str, nth: usize) {
    let pays = || Reply::calls("pay", &json!({"note": "1"}));
    let upstream = Upstream::start([pays(), Reply::says("paid")]).await;
    let tools = ToolServer::start([]).await;
    let judge = ToolServer::start([]).await;
    for _ in 0..8 {
        judge.then(Reply::json(200, &json!({"verdict": "pass"})));
    }
    let rails: Vec<String> = ["input", "tool_arguments", "tool_result"]
        .map(|on| {
            format!("{{ name = \"on-{on}\", on = \"{on}\", kind = \"webhook\", hook = \"judge\", tripwire = true }}")
        })
        .to_vec();
    let agent = format!(
        "[agents.default]\ntools = [\"pay\"]\nguardrails = [{}]\n\
         [hooks.judge]\non = \"guardrail\"\naction = \"webhook\"\nurl = \"http://{}/judge\"\n",
        rails.join(", "),
        judge.address()
    );
    let config = [upstream.config(), tools.config("pay", "write"), agent].concat();
    let failpoint = format!("{point}:{nth}");
    let mut server = TestServer::builder(&config).keep_port().env("LOOPGATE_FAILPOINT", &failpoint).start().await;
    let body =
        json!({"model": "test", "messages": [{"role": "user", "content": "Pay"}], "agent": {"background": true}});
    let accepted = server.json("/v1/agent/completions", &body).header("idempotency-key", "the-run").send().await;
    drop(accepted);
    assert!(dies_within(&mut server, REACHED).await, "the server does not come to {failpoint}");
    server.next_env(&[]);
    server.restart().await;
    let again = server.json("/v1/agent/completions", &body).header("idempotency-key", "the-run");
    let answer = again.send().await.expect("the server is back").bytes().await.expect("it answers");
    let accepted: Value = serde_json::from_slice(&answer).expect("it is JSON");
    let run = accepted["id"].as_str().expect("it is accepted").to_owned();
    let end = within("the run to end", async {
        loop {
            let found = server.get(&format!("/v1/runs/{run}")).await.ok();
            if found["status"] != "in_progress" && found["status"] != "queued" {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!((&end["status"], tools.calls().len()), (&json!("completed"), 1), "{failpoint}: {end}");
    // The question whose answer was lost was asked again, under the same id; no other was.
    let ids: Vec<String> = judge.calls().iter().map(|call| call.headers["webhook-id"].clone()).collect();
    let mut once = ids.clone();
    once.sort();
    once.dedup();
    let lost = usize::from(point == "guardrail.answered");
    assert_eq!((ids.len(), once.len()), (3 + lost, 3), "{failpoint}: {ids:?}");
}

#[tokio::test]
async fn a_server_that_dies_while_it_asks_a_guardrail_makes_a_call_that_passes_once() {
    for point in OF_GUARDRAILS {
        for nth in 1..=3 {
            dies_at(point, nth).await;
        }
    }
}
