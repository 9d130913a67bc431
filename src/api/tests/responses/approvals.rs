//! Calls that need an approval.

use super::*;

fn gated(more: &Value) -> Value {
    with(
        with(ask("Go"), &json!({"tools": [{"type": "mcp", "server_label": "loopgate", "require_approval": "always"}]})),
        more,
    )
}

fn turns() -> Vec<Say> {
    vec![Say::Calls("I will. ", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["Done."])]
}

fn decision(request: &Value, approve: bool) -> Value {
    json!([{"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve, "reason": "so"}])
}

#[tokio::test]
async fn an_approval_is_asked_for_and_its_call_is_made_once_it_is_given() {
    let server = Server::new(turns());
    let frames = server.stream(&gated(&json!({}))).await;
    let first = ended(&frames).clone();
    assert_eq!(kinds(&first), ["message", "mcp_approval_request"]);
    assert_eq!((&first["status"], &first["agent"]["status"]), (&json!("completed"), &json!("requires_action")));
    let request = &first["output"][1];
    assert_eq!(
        (&request["server_label"], &request["name"], &request["arguments"]),
        (&json!("loopgate"), &json!("echo"), &json!(r#"{"n":1}"#))
    );
    let previous = json!({"previous_response_id": first["id"]});
    let refused = server.refused(&with(ask("Never mind."), &previous)).await;
    assert_eq!((refused.0, refused.1.as_str()), (400, "previous_response_not_ready"));
    assert!(server.agent.journal.lock().is_empty());
    let frames = server.stream(&with(ask(decision(request, true)), &previous)).await;
    let second = ended(&frames).clone();
    assert_eq!((kinds(&second), text(&second)), (vec!["mcp_call", "message"], "Done.".to_owned()));
    assert_eq!(second["output"][0]["approval_request_id"], request["id"]);
    assert!(second["id"].as_str().unwrap().ends_with("0001"));
    assert_eq!(second["previous_response_id"], first["id"]);
    assert_eq!(server.agent.journal.lock().len(), 1);
    assert_eq!(server.replay(second["id"].as_str().unwrap(), None).await, frames);
    // The decision was made: it is not made again.
    let (status, code, ..) = server.refused(&with(ask(decision(request, false)), &previous)).await;
    assert_eq!((status, code.as_str()), (400, "previous_response_not_ready"));
}

#[tokio::test]
async fn a_call_that_is_denied_is_not_made_and_the_model_is_told() {
    let server = Server::new(turns());
    let first = server.ok(&gated(&json!({"store": false}))).await;
    // The id of the request leads to the run, whatever else the transcript has.
    let input = json!([{"role": "user", "content": "Go"}, first["output"][1], decision(&first["output"][1], false)[0]]);
    let second = server.ok(&gated(&json!({"store": false, "input": input}))).await;
    assert_eq!((kinds(&second), &second["output"][0]["status"]), (vec!["mcp_call", "message"], &json!("failed")));
    assert!(server.agent.journal.lock().is_empty());
    let told = server.asked();
    assert!(told.last().unwrap().1.contains("denied"), "{told:?}");
}

/// A client that did not declare where the tool is could not answer an item about it.
#[tokio::test]
async fn a_client_that_cannot_be_asked_is_told_in_words_and_the_run_waits() {
    let server = Server::new(turns());
    let policy = json!({"agent": {"policy": {"ask": ["echo"]}}});
    let first = server.ok(&with(ask("Go"), &policy)).await;
    assert_eq!(kinds(&first), ["message", "message"]);
    assert!(text(&first).ends_with("An approval is needed before `echo` can be called."), "{first}");
    let run = first["agent"]["run_id"].as_str().unwrap();
    let call = first["agent"]["required_action"]["calls"][0]["call_id"].clone();
    let body = json!({"approvals": [{"call_id": call, "decision": "approve"}]});
    let request = Server::request(&Method::POST, &format!("/v1/runs/{run}/approvals"), Some(&body), &[]);
    let (status, answer) = send(&server.router, request).await;
    assert!(status.is_success(), "{answer}");
    let second = first["id"].as_str().unwrap().replace("0000\"", "").trim_end_matches("0000").to_owned() + "0001";
    let frames = server.replay(&second, None).await;
    assert_eq!(text(ended(&frames)), "Done.");
}

#[tokio::test]
async fn all_calls_are_decided_in_one_request() {
    let calls = vec![("echo", r#"{"n":1}"#), ("echo", r#"{"n":2}"#)];
    let server = Server::new(vec![Say::Calls("", calls), Say::Text(&["Done."])]);
    let first = server.ok(&gated(&json!({}))).await;
    let [one, two] = [&first["output"][0], &first["output"][1]];
    let previous = json!({"previous_response_id": first["id"]});
    let (status, .., message) = server.refused(&with(ask(decision(one, true)), &previous)).await;
    assert_eq!(status, 400);
    assert!(message.contains("decide all calls in one request"), "{message}");
    let input = json!([{"role": "user", "content": "Go"}, decision(two, true)[0]]);
    assert_eq!(server.refused(&gated(&json!({"input": input}))).await.0, 400, "nor without naming the response");
    let both = json!([decision(one, true)[0], decision(two, false)[0]]);
    let second = server.ok(&with(ask(both), &previous)).await;
    assert_eq!((text(&second), server.agent.journal.lock().len()), ("Done.".to_owned(), 1));
    let foreign = json!([{"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true}]);
    assert_eq!(server.refused(&ask(foreign)).await.2, "input[0].approval_request_id");
}
