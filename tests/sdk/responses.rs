//! Responses, as the official clients and OpenAI's agents for Python and Node read them.

use serde_json::{Value, json};

use super::{both_of, calls_calculator, clients, run, with};
use crate::support::{Gate, Reply};

/// Both clients see the same. Returns what the upstream was asked by each.
async fn both(case: &str, replies: &[Reply], expected: Value) -> [Vec<Value>; 2] {
    both_of("responses", case, replies, "", &expected).await
}

fn calls_weather() -> Reply {
    Reply::calls("get_weather", &json!({"city": "Oslo"}))
}

fn seen(text: &str, status: &str, items: &[&str], total_tokens: u64) -> Value {
    json!({"text": text, "status": status, "items": items, "total_tokens": total_tokens})
}

#[tokio::test]
async fn a_response() {
    let expected = with(seen("Hello", "completed", &["message"], 15), &json!({"metadata": {"a": "b"}}));
    for requests in both("plain", &[Reply::says("Hello")], expected).await {
        assert_eq!(requests[0]["messages"][0]["content"], "Be short.");
    }
}

#[tokio::test]
async fn a_stream_whose_tools_run_on_the_server() {
    let replies = [calls_calculator(), Reply::says("It is 42.")];
    let told = json!({"first": "response.created", "last": "response.completed", "gaps": false, "same": true});
    both("streamed", &replies, with(seen("It is 42.", "completed", &["mcp_call", "message"], 30), &told)).await;
}

#[tokio::test]
async fn a_tool_of_the_client() {
    let called = json!({"called": [["get_weather", {"city": "Oslo"}]]});
    for case in ["client_tool", "transcript"] {
        let replies = [calls_weather(), Reply::says("Rain.")];
        let expected = with(seen("Rain.", "completed", &["message"], 15), &called);
        for requests in both(case, &replies, expected).await {
            let roles: Vec<_> = requests[1]["messages"].as_array().into_iter().flatten().collect();
            let roles: Vec<_> = roles.iter().map(|message| message["role"].as_str().unwrap_or_default()).collect();
            assert_eq!(roles, ["user", "assistant", "tool"], "{case}");
        }
    }
}

#[tokio::test]
async fn an_approval() {
    let replies = [calls_calculator(), Reply::says("42")];
    let asked = json!({"asked": [["calculator", {"expression": "6 * 7"}]]});
    both("approval", &replies, with(seen("42", "completed", &["mcp_call", "message"], 15), &asked)).await;
}

#[tokio::test]
async fn an_answer_of_a_schema() {
    let replies = [calls_calculator(), Reply::says(r#"{"n":42}"#)];
    for requests in both("structured", &replies, json!({"n": 42})).await {
        assert_eq!(requests[0]["response_format"]["type"], "json_schema");
    }
}

#[tokio::test]
async fn a_limit() {
    let text = "The run stopped at its limit of model calls before the answer was complete.";
    let expected =
        with(seen(text, "incomplete", &["mcp_call", "message"], 15), &json!({"reason": "max_output_tokens"}));
    both("limited", &[calls_calculator()], expected).await;
}

#[tokio::test]
async fn failures() {
    let unknown = json!({"status": 404, "code": "model_not_found", "param": "model", "attempts": 1});
    both("unknown_model", &[], unknown).await;
    let broken = || Reply::stream().text("Hel").cut();
    let replies = [broken(), broken(), broken()];
    for client in clients("responses") {
        let told = json!({"text": "HelHelHel", "code": "server_error", "attempts": 1});
        run(client, "broken_stream", &replies, "", &told).await;
    }
}

#[tokio::test]
async fn a_stream_that_is_taken_up_again() {
    let replies = [Reply::says("Hello")];
    both("resumed", &replies, with(seen("Hello", "completed", &["message"], 15), &json!({"gaps": false}))).await;
}

#[tokio::test]
async fn a_response_in_the_background() {
    let told = json!({"input": ["Hi"], "gone": "response_not_found"});
    both("background", &[Reply::says("Hello")], with(seen("Hello", "completed", &["message"], 15), &told)).await;
    let gate = Gate::new();
    let waits = [Reply::stream().gate(&gate).text("Hel").done()];
    both("cancelled", &waits, json!({"status": "cancelled", "again": "cancelled"})).await;
}

#[tokio::test]
async fn a_chain_of_responses() {
    let replies = [Reply::says("Hello"), Reply::says("Again")];
    for requests in both("chained", &replies, json!({"texts": ["Hello", "Again"]})).await {
        let messages = requests[1]["messages"].as_array().into_iter().flatten();
        let contents: Vec<_> = messages.map(|message| &message["content"]).collect();
        assert_eq!(contents, ["Hi", "Hello", "And now?"]);
    }
}

/// Agents, of which both see the same.
async fn agents(case: &str, replies: &[Reply], expected: Value) {
    for client in clients("with_agents") {
        run(client, case, replies, "", &expected).await;
    }
}

#[tokio::test]
async fn openais_agents() {
    for case in ["plain", "streamed"] {
        let replies = [calls_weather(), Reply::says("Rain."), Reply::says("Still.")];
        agents(case, &replies, json!({"text": "Rain.", "called": ["Oslo"], "more": "Still."})).await;
    }
    let replies = [calls_calculator(), Reply::says("42"), Reply::says("Still.")];
    agents("approval", &replies, json!({"text": "42", "called": ["calculator"], "more": "Still."})).await;
}

#[tokio::test]
async fn how_runs_of_openais_agents_end() {
    agents("server_tool", &[calls_calculator(), Reply::says("It is 42.")], json!({"text": "It is 42."})).await;
    agents("structured", &[Reply::says(r#"{"n":42}"#)], json!({"n": 42})).await;
    agents("failure", &[Reply::error(400, "bad", "No such thing.")], json!({"told": true})).await;
    agents("limit", &[calls_calculator()], json!({"error": "ModelBehaviorError"})).await;
    agents("left", &[Reply::stream().text("First.").stall()], json!({"text": "First."})).await;
}
