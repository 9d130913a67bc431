//! Runs that are handed off by servers that die: each is handed off once, and goes on as the agent to which it was.

use std::time::Duration;

use loopgate::failpoint::OF_HANDOFFS;
use serde_json::{Value, json};

use super::dies_within;
use crate::support::cluster::checker::handoffs::{HandoffEvidence, check_handoffs};
use crate::support::http::{HttpServer, Request};
use crate::support::upstream::{asked, declaration, is_list};
use crate::support::{Reply, TestServer, within};

/// How long a server may take to come to the place at which it is to die.
const REACHED: Duration = Duration::from_secs(20);

/// What the model says: `front` hands off, `billing` calculates and answers with what it was told.
fn reply(request: &Request) -> Reply {
    let body = match asked(request) {
        Ok(body) => body,
        Err(reply) => return reply,
    };
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let results = messages.iter().filter(|message| message["role"] == "tool").count();
    match (messages[0]["content"].as_str(), results) {
        (Some("front"), _) => Reply::calls("handoff", &json!({"agent": "billing", "reason": "money"})),
        (Some("billing"), 1) => Reply::calls("calculator", &json!({"expression": "6 * 7"})),
        (name, _) => Reply::says(&format!("{}: {results} results", name.unwrap_or_default())),
    }
}

#[tokio::test]
async fn a_server_that_dies_around_a_handoff_goes_on_as_one_agent_and_hands_off_once() {
    for point in OF_HANDOFFS {
        let model = HttpServer::start(|request| !is_list(request), reply).await;
        let agents = "[agents.front]\nmodel = \"scripted/test\"\nsystem = \"front\"\ntools = []\nhandoffs = [\"billing\"]\n\
                      [agents.billing]\nmodel = \"scripted/test\"\nsystem = \"billing\"\ntools = [\"calculator\"]\n";
        let config = format!("{}{agents}", declaration(model.address()));
        let mut server = TestServer::builder(&config).keep_port().env("LOOPGATE_FAILPOINT", point).start().await;
        let body = json!({
            "model": "front", "messages": [{"role": "user", "content": "What do I owe?"}],
            "agent": {"background": true, "session_id": "s"}
        });
        let send = async |server: &TestServer| {
            let request = server.json("/v1/agent/completions", &body).header("idempotency-key", "one");
            let answer = request.send().await.ok()?.bytes().await.ok()?;
            serde_json::from_slice::<Value>(&answer).ok()?["id"].as_str().map(str::to_owned)
        };
        let _ = send(&server).await;
        assert!(dies_within(&mut server, REACHED).await, "the server does not come to {point}");
        server.next_env(&[]);
        server.restart().await;
        let run = send(&server).await.expect("it is accepted, or was before");
        let ended = within("the run to end", async {
            loop {
                let told = server.get(&format!("/v1/runs/{run}")).await.ok();
                if !["queued", "in_progress"].contains(&told["status"].as_str().unwrap_or_default()) {
                    return told;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        assert_eq!(ended["output_text"], "billing: 2 results", "{point}");
        let events = server.get(&format!("/v1/runs/{run}/events?stream=false")).await.ok();
        let session = server.get("/v1/sessions/s").await.ok();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let found = HandoffEvidence {
            first: "front".to_owned(),
            status: text(&ended["status"]),
            agent: text(&ended["agent_name"]),
            output: text(&ended["output_text"]),
            session_agent: text(&session["agent"]),
            events: events["data"].as_array().expect("it is a list").clone(),
            asked: model.requests().iter().map(|request| text(&request.json()["messages"][0]["content"])).collect(),
        };
        assert_eq!(check_handoffs(&found), [""; 0], "{point}: {found:#?}");
    }
}
