//! Calls that need an approval.

use super::*;

fn gated() -> Value {
    with(ask("Go"), &json!({"agent": {"policy": {"ask": ["echo"]}}}))
}

fn turns() -> Vec<Say> {
    vec![Say::Calls("I will. ", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["Done."])]
}

fn resent(message: &Value) -> Value {
    then(gated(), &[json!({"role": "assistant", "content": message["content"]})])
}

async fn decide(server: &Server, message: &Value, decision: &str) {
    let agent = &message["agent"];
    let call = &agent["required_action"]["calls"][0]["call_id"];
    let body = json!({"approvals": [{"call_id": call, "decision": decision}]});
    let path = format!("/v1/runs/{}/approvals", agent["run_id"].as_str().unwrap());
    let (status, answer) = send(&server.router, Server::request(&path, &body, &[])).await;
    assert!(status.is_success(), "{answer}");
}

#[tokio::test]
async fn a_message_pauses_at_a_call_and_goes_on_once_it_is_approved() {
    let server = Server::new(turns());
    let first = folded(&server.stream(&gated()).await);
    assert_eq!((kinds(&first), &first["stop_reason"]), (vec!["text", "mcp_tool_use"], &json!("pause_turn")));
    assert!(server.agent.journal.lock().is_empty());
    decide(&server, &first, "approve").await;
    let events = server.stream(&resent(&first)).await;
    let second = folded(&events);
    assert_eq!(kinds(&second), ["mcp_tool_use", "mcp_tool_result", "text"]);
    assert_eq!(second["content"][0], first["content"][1], "it begins with the call once more");
    assert_eq!((text(&second), &second["stop_reason"]), ("Done.".to_owned(), &json!("end_turn")));
    assert_eq!(generic(&second)["id"], "msg_R0001");
    assert_eq!(server.agent.journal.lock().len(), 1);
    // It was said once, and is told again.
    assert_eq!(generic(&server.ok(&resent(&first)).await), generic(&second));
    assert_eq!(server.agent.journal.lock().len(), 1);
    // What follows has both turns.
    let both = json!({"role": "assistant", "content": second["content"]});
    let next = then(resent(&first), &[both, json!({"role": "user", "content": "And?"})]);
    server.ok(&next).await;
    let said = server.asked();
    assert_eq!(said.iter().filter(|line| line.starts_with("tool: ")).count(), 1, "{said:?}");
}

#[tokio::test]
async fn a_call_that_is_denied_is_not_made() {
    let server = Server::new(turns());
    let first = server.ok(&gated()).await;
    decide(&server, &first, "deny").await;
    let second = server.ok(&resent(&first)).await;
    assert_eq!(text(&second), "Done.");
    assert!(server.agent.journal.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_for_the_decision_and_pauses_again_without_one() {
    let server = Server::new(turns());
    let first = server.ok(&gated()).await;
    let again = folded(&server.stream(&resent(&first)).await);
    assert_eq!((kinds(&again), &again["stop_reason"]), (vec!["mcp_tool_use"], &json!("pause_turn")));
    assert_eq!((&again["content"][0], &again["usage"]["output_tokens"]), (&first["content"][1], &json!(0)));
    let body = resent(&first);
    let deciding = async {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        decide(&server, &first, "approve").await;
    };
    let (second, ()) = tokio::join!(server.ok(&body), deciding);
    assert_eq!(text(&second), "Done.");
}

/// A client that goes on talking leaves the call alone.
#[tokio::test]
async fn what_is_said_instead_begins_another_run() {
    let server = Server::new(turns());
    let first = server.ok(&gated()).await;
    let other = then(resent(&first), &[json!({"role": "user", "content": "Never mind."})]);
    let second = server.ok(&with(other, &json!({"tool_choice": {"type": "none"}}))).await;
    assert_ne!(second["agent"]["run_id"], first["agent"]["run_id"]);
    assert!(server.agent.journal.lock().is_empty());
}

/// Each decision but the last lets the run pause once more.
#[tokio::test]
async fn a_message_goes_on_once_all_of_its_calls_are_decided() {
    let calls = vec![("echo", r#"{"n":1}"#), ("echo", r#"{"n":2}"#)];
    let server = Server::new(vec![Say::Calls("", calls), Say::Text(&["Done."])]);
    let first = server.ok(&gated()).await;
    let run = first["agent"]["run_id"].as_str().unwrap();
    for place in [0, 1] {
        let call = &first["agent"]["required_action"]["calls"][place]["call_id"];
        let body = json!({"approvals": [{"call_id": call, "decision": "approve"}]});
        let request = Server::request(&format!("/v1/runs/{run}/approvals"), &body, &[]);
        assert!(send(&server.router, request).await.0.is_success());
    }
    for second in [server.ok(&resent(&first)).await, folded(&server.stream(&resent(&first)).await)] {
        assert_eq!((text(&second), &second["stop_reason"]), ("Done.".to_owned(), &json!("end_turn")), "{second}");
        assert_eq!(second["content"].as_array().unwrap().len(), 5, "{second}");
    }
}

/// The rest of a message may have had a step that became void before anybody read it.
#[tokio::test]
async fn the_rest_of_a_message_is_told_without_what_became_void() {
    let server = Server::new(vec![turns().remove(0), Say::BreaksOnce(&["half"], &["Done."])]);
    let first = server.ok(&gated()).await;
    decide(&server, &first, "approve").await;
    server.ok(&resent(&first)).await;
    let second = folded(&server.stream(&resent(&first)).await);
    assert_eq!((text(&second), &second["stop_reason"]), ("Done.".to_owned(), &json!("end_turn")));
}
