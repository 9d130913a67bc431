//! Calls that the client makes.

use super::*;

fn weather() -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!({"name": "weather", "description": "Tells the weather.", "input_schema": schema})
}

fn calling(text: &'static str) -> Vec<Say> {
    vec![Say::Calls(text, vec![("weather", r#"{"city":"Oslo"}"#)]), Say::Text(&["Rain."])]
}

fn asking() -> Value {
    with(ask("Weather?"), &json!({"tools": [weather()]}))
}

fn answer(message: &Value, text: &str) -> [Value; 2] {
    let is_call = |block: &&Value| block["type"] == "tool_use";
    let calls = message["content"].as_array().unwrap().iter().filter(is_call);
    let result = |call: &Value| json!({"type": "tool_result", "tool_use_id": call["id"], "content": text});
    let results: Vec<_> = calls.map(result).collect();
    [json!({"role": "assistant", "content": message["content"]}), json!({"role": "user", "content": results})]
}

#[tokio::test]
async fn a_tool_is_called_at_the_end_and_its_result_continues_the_run() {
    let server = Server::new(calling("Let me ask. "));
    let events = server.stream(&asking()).await;
    let first = folded(&events);
    assert_eq!((kinds(&first), &first["stop_reason"]), (vec!["text", "tool_use"], &json!("tool_use")));
    let start = events.iter().find(|event| event["content_block"]["type"] == "tool_use").unwrap();
    assert_eq!(start["content_block"]["input"], json!({}));
    let call = json!({
        "type": "tool_use", "id": "toolu_R0001", "name": "weather", "input": {"city": "Oslo"},
        "caller": {"type": "direct"},
    });
    assert_eq!(generic(&first)["content"][1], call);
    let second = server.ok(&then(asking(), &answer(&first, "rain"))).await;
    assert_eq!((text(&second), &second["stop_reason"]), ("Rain.".to_owned(), &json!("end_turn")));
    assert_eq!(second["agent"]["run_id"], first["agent"]["run_id"], "it is the same run");
    assert_eq!(generic(&second)["id"], "msg_R0001", "and its second message");
    assert_eq!(second["usage"]["input_tokens"], 10, "each message counts its own model calls");
    assert_eq!(second["agent"]["warnings"].as_array().map_or(0, Vec::len), 0, "{second}");
    assert_eq!(server.asked().last().unwrap(), "tool: rain");
}

#[tokio::test]
async fn tools_of_both_sides_work_in_one_run() {
    let calls = Say::Calls("", vec![("echo", r#"{"n":1}"#), ("weather", r#"{"city":"Oslo"}"#)]);
    let server = Server::new(vec![calls, Say::Text(&["Rain."])]);
    let first = server.ok(&asking()).await;
    assert_eq!(kinds(&first), ["mcp_tool_use", "mcp_tool_result", "tool_use"]);
    // Clients that do not know the server's blocks drop them.
    let mut bare = first.clone();
    bare["content"].as_array_mut().unwrap().drain(..2);
    let second = server.ok(&then(asking(), &answer(&bare, "rain"))).await;
    assert_eq!(text(&second), "Rain.");
    assert_eq!(server.agent.journal.lock().len(), 1);
    let said = server.asked();
    assert_eq!(said[said.len() - 2..], [r#"tool: {"n":1}"#, "tool: rain"]);
}

#[tokio::test]
async fn a_result_may_be_a_failure_and_more_may_be_said_beside_it() {
    let server = Server::new(calling(""));
    let first = server.ok(&asking()).await;
    let [said, mut results] = answer(&first, "no network");
    results["content"][0]["is_error"] = true.into();
    results["content"].as_array_mut().unwrap().push(json!({"type": "text", "text": "Guess."}));
    let second = server.ok(&then(asking(), &[said, results])).await;
    assert_eq!(text(&second), "Rain.");
    let said = server.asked();
    assert_eq!(said[said.len() - 2..], ["tool: no network", "user: Guess."]);
}

#[tokio::test]
async fn calls_and_results_belong_together() {
    let server = Server::new(calling(""));
    let first = server.ok(&asking()).await;
    let [said, results] = answer(&first, "rain");
    let unanswered = then(asking(), &[said, json!({"role": "user", "content": "Never mind."})]);
    let (status, error) = server.refused(&unanswered).await;
    assert_eq!((status, &error["type"]), (400, &json!("invalid_request_error")));
    assert!(error["message"].as_str().unwrap().contains("has no tool_result"), "{error}");
    let foreign = json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"});
    let (status, error) = server.refused(&then(ask("Hi"), &[json!({"role": "user", "content": [foreign]})])).await;
    assert_eq!((status, error["message"].as_str().unwrap().contains("no tool_use before it")), (400, true));
    // Results alone lead to the run as well.
    let alone = with(asking(), &json!({"messages": [results]}));
    assert_eq!(text(&server.ok(&alone).await), "Rain.");
}

/// A transcript whose calls were made elsewhere begins a run of its own.
#[tokio::test]
async fn a_foreign_transcript_is_taken_as_it_is() {
    let server = Server::new(vec![Say::Text(&["Rain."])]);
    let messages = [
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "abc"},
            {"type": "text", "text": "I will ask."},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "find", "server_name": "crm", "input": {"q": "x"}},
            {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": false, "content": "found"},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
        ]}),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "rain"}]},
        ]}),
    ];
    let message = server.ok(&then(asking(), &messages)).await;
    assert_eq!(text(&message), "Rain.");
    let expected = ["user: Weather?", "assistant: I will ask.\n{\"q\":\"x\"}", "tool: found"];
    let said = server.asked();
    assert_eq!(said[..3], expected);
    assert_eq!(said.last().unwrap(), "tool: rain");
    let warnings = message["agent"]["warnings"].to_string();
    assert!(warnings.contains("server_tool_use"), "{warnings}");
}

/// Clients learn of tools while a run waits for them.
#[tokio::test]
async fn a_transcript_with_other_tools_goes_on_with_another_run() {
    let server = Server::new(calling(""));
    let first = server.ok(&asking()).await;
    let news = json!({"name": "news", "input_schema": {"type": "object"}});
    let asked = with(asking(), &json!({"tools": [weather(), news]}));
    let second = server.ok(&then(asked, &answer(&first, "rain"))).await;
    assert_eq!(text(&second), "Rain.");
    assert_ne!(first["agent"]["run_id"], second["agent"]["run_id"]);
}

/// A stream cannot take text back, however the run began: what breaks off fails it, and is not asked for again.
#[tokio::test]
async fn a_stream_of_a_run_that_began_without_one_voids_nothing() {
    let mut turns = calling("");
    turns[1] = Say::Break(&["half"]);
    turns.push(Say::Text(&["Rain."]));
    let server = Server::new(turns);
    let first = server.ok(&asking()).await;
    let body = with(then(asking(), &answer(&first, "rain")), &json!({"stream": true}));
    let response = server.router.clone().oneshot(Server::request("/v1/messages", &body, &[])).await.unwrap();
    let stream = String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(stream.contains("event: error"), "{stream}");
    assert_eq!(server.agent.model.requests.lock().len(), 2, "it is asked no third time");
}
