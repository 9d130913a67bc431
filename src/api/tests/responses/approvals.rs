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

/// What stands beside a decision would be lost.
#[tokio::test]
async fn a_decision_stands_alone() {
    let server = Server::new(turns());
    let first = server.ok(&gated(&json!({}))).await;
    let previous = json!({"previous_response_id": first["id"]});
    let request = &first["output"][1];
    let says = json!({"role": "user", "content": "Use staging instead."});
    let output = json!({"type": "function_call_output", "call_id": "call_x", "output": "x"});
    for beside in [says.clone(), json!({"role": "developer", "content": "Be short."}), output] {
        for input in [json!([decision(request, false)[0], beside]), json!([beside, decision(request, false)[0]])] {
            let (status, code, param, message) = server.refused(&with(ask(input), &previous)).await;
            assert_eq!((status, code.as_str(), param.as_str()), (400, "invalid_value", "input"));
            assert!(message.contains("alone"), "{message}");
        }
    }
    let transcript = json!([{"role": "user", "content": "Go"}, request, decision(request, false)[0], says]);
    assert_eq!(server.refused(&gated(&json!({"input": transcript}))).await.0, 400);
    assert_eq!(text(&server.ok(&with(ask(decision(request, true)), &previous)).await), "Done.", "it waits on");
}

/// Decisions that a transcript has from before were made once.
#[tokio::test]
async fn a_transcript_with_an_old_decision_is_continued() {
    let server = Server::new(vec![turns().remove(0), Say::Text(&["Done."]), Say::Text(&["More."])]);
    let unstored = json!({"store": false});
    let first = server.ok(&gated(&unstored)).await;
    let mut items = vec![json!({"role": "user", "content": "Go"})];
    items.extend(first["output"].as_array().unwrap().iter().cloned());
    items.push(decision(&first["output"][1], true)[0].clone());
    let second = server.ok(&gated(&with(unstored.clone(), &json!({"input": items})))).await;
    assert_eq!(text(&second), "Done.");
    items.extend(second["output"].as_array().unwrap().iter().cloned());
    items.push(json!({"role": "user", "content": "Next?"}));
    let third = server.ok(&gated(&with(unstored, &json!({"input": items})))).await;
    assert_eq!((text(&third), server.asked().last().unwrap().1.as_str()), ("More.".to_owned(), "Next?"));
    assert_ne!(third["agent"]["run_id"], first["agent"]["run_id"]);
    assert_eq!(server.agent.journal.lock().len(), 1);
}

/// To who says something else the call is denied: nobody can approve it any more.
#[tokio::test]
async fn a_request_that_decides_nothing_goes_on_without_the_call() {
    let server = Server::new(turns());
    let first = server.ok(&with(ask("Go"), &json!({"agent": {"policy": {"ask": ["echo"]}}}))).await;
    let previous = json!({"previous_response_id": first["id"]});
    let output = json!([{"type": "function_call_output", "call_id": "call_x", "output": "x"}]);
    let (status, .., message) = server.refused(&with(ask(output), &previous)).await;
    assert_eq!((status, message.contains("No tool call found")), (400, true), "{message}");
    let second = server.ok(&with(ask("Never mind."), &previous)).await;
    assert_eq!((text(&second), server.asked().last().unwrap().1.as_str()), ("Done.".to_owned(), "Never mind."));
    let agent = &first["agent"];
    let call = &agent["required_action"]["calls"][0]["call_id"];
    let body = json!({"approvals": [{"call_id": call, "decision": "approve"}]});
    let path = format!("/v1/runs/{}/approvals", agent["run_id"].as_str().unwrap());
    let (status, answer) = send(&server.router, Server::request(&Method::POST, &path, Some(&body), &[])).await;
    assert_eq!(status.as_u16(), 409, "{answer}");
    assert!(server.agent.journal.lock().is_empty());
    assert_eq!(server.get(&first["id"]).await["status"], "completed", "it ended before");
}

/// Over an approval that a response waits for openly, it stays one response.
#[tokio::test]
async fn a_response_that_waits_openly_is_not_torn() {
    let server = Server::new(turns());
    let agent = json!({"policy": {"ask": ["echo"]}, "approval": {"mode": "wait"}});
    let begun = server.ok(&with(ask("Go"), &json!({"background": true, "agent": agent}))).await;
    let run = begun["id"].as_str().unwrap().replace("resp_", "run_");
    let mut call = Value::Null;
    for _ in 0..1_000 {
        let (_, view) = server.call(Method::GET, &format!("/v1/runs/{run}")).await;
        call = view["agent"]["required_action"]["calls"][0]["call_id"].clone();
        if call.is_string() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let previous = json!({"previous_response_id": begun["id"]});
    assert_eq!(server.refused(&with(ask("And?"), &previous)).await.1, "previous_response_not_ready");
    let body = json!({"approvals": [{"call_id": call, "decision": "approve"}]});
    let path = format!("/v1/runs/{run}/approvals");
    let (status, answer) = send(&server.router, Server::request(&Method::POST, &path, Some(&body), &[])).await;
    assert!(status.is_success(), "{answer}");
    let frames = server.replay(begun["id"].as_str().unwrap(), None).await;
    assert_eq!(types(&frames).iter().filter(|kind| **kind == "created").count(), 1);
    let whole = server.get(&begun["id"]).await;
    assert_eq!((kinds(&whole), text(&whole)), (vec!["message", "mcp_call", "message"], "I will. Done.".to_owned()));
    assert_eq!((&whole["status"], &whole["usage"]["total_tokens"]), (&json!("completed"), &json!(30)));
}

/// Items bear the labels that their client gave, so that it knows whom it is asked about.
#[tokio::test]
async fn calls_are_shown_under_the_label_that_their_client_gave() {
    let server = Server::new(vec![turns().remove(0), Say::Text(&["Done."]), Say::Text(&["More."])]);
    let tools = json!([{
        "type": "mcp", "server_label": "mine", "connector_id": "loopgate", "require_approval": "always",
    }]);
    let asked = with(ask("Go"), &json!({"tools": tools, "store": false}));
    let first = server.ok(&asked).await;
    let request = &first["output"][1];
    assert_eq!((&request["type"], &request["server_label"]), (&json!("mcp_approval_request"), &json!("mine")));
    let mut items = vec![json!({"role": "user", "content": "Go"}), request.clone()];
    items.push(decision(request, true)[0].clone());
    let second = server.ok(&with(asked.clone(), &json!({"input": items}))).await;
    assert_eq!((&second["output"][0]["server_label"], &second["output"][0]["name"]), (&json!("mine"), &json!("echo")));
    // The model reads of its own tool again.
    items.extend(second["output"].as_array().unwrap().iter().cloned());
    items.push(json!({"role": "user", "content": "Next?"}));
    server.ok(&with(asked, &json!({"input": items}))).await;
    let requests = server.agent.model.requests.lock();
    let sent = serde_json::to_string(&requests.last().unwrap().conversation.iter().collect::<Vec<_>>()).unwrap();
    assert!(sent.contains("\"echo\"") && !sent.contains("mine__echo"), "{sent}");
}
