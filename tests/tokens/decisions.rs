//! Calls of the server's tools that a page's user decides.

use serde_json::json;

use super::{AGENT, config, get, is, post, says, start, token, with};
use crate::support::{Reply, ToolServer, Upstream};

const POLICY: &str = r#"
    [agents.booker]
    model = "test"
    tools = ["book"]

    [agents.booker.policy]
    ask = ["book"]
"#;

/// A key's backend gives tokens to many: the log says which of them it was.
#[tokio::test]
async fn a_page_approves_and_the_log_names_its_user_beside_the_key() {
    let upstream = Upstream::start([Reply::calls("book", &json!({"note": "7"})), Reply::says("Booked.")]).await;
    let tools = ToolServer::start([Reply::plain("done")]).await;
    let server = start(&[&config(&upstream), &tools.config("book", "write"), POLICY].concat(), None).await;
    let of = |may: &[&str]| json!({"session_id": "mine", "may": may, "user": "ada"});
    let (starter, _) = token(&server, &of(&["follow", "start"])).await;
    let asked = post(&server, &starter, AGENT, &with(says("Book it"), &json!({"model": "booker"}))).await.ok();
    // A session is there before others may decide in it.
    let (approver, _) = token(&server, &of(&["follow", "approve"])).await;
    let call = &asked["agent"]["required_action"]["calls"][0]["call_id"];
    let run = asked["agent"]["run_id"].as_str().expect("it has an id");
    let path = format!("/v1/runs/{run}/approvals");
    let decide = |members| json!({"approvals": [with(json!({"call_id": call, "decision": "approve"}), &members)]});

    is(&post(&server, &starter, &path, &decide(json!({}))).await, 403, "forbidden");
    for change in [json!({"arguments": {"note": "8"}}), json!({"result": "done"})] {
        is(&post(&server, &approver, &path, &decide(change)).await, 403, "forbidden");
    }
    assert_eq!(tools.calls().len(), 0, "nothing is done before it is approved");
    let answered = post(&server, &approver, &path, &decide(json!({}))).await.ok();
    assert_eq!(answered["choices"][0]["message"]["content"], "Booked.", "{answered}");
    assert_eq!(tools.calls().len(), 1);

    let events = get(&server, &approver, &format!("/v1/runs/{run}/events?stream=false")).await.ok();
    let resolved =
        events["data"].as_array().expect("it is a list").iter().find(|event| event["type"] == "approval.resolved");
    let resolved = resolved.expect("it is in the log");
    assert_eq!((&resolved["by"], &resolved["user"]), (&json!("web"), &json!("ada")), "{resolved}");
    let read = get(&server, &approver, &format!("/v1/runs/{run}")).await.ok();
    let decisions = &read["agent"]["report"]["steps"][0]["tool_calls"][0]["decisions"];
    assert_eq!(*decisions, json!([{"decision": "approve", "by": "web", "user": "ada"}]), "{read}");
}
