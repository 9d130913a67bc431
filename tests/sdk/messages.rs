//! Messages, as the official clients of Anthropic for Python and Node read them.

use std::time::Duration;

use serde_json::{Value, json};

use super::{both_of, calls_calculator, clients, seen, send_again, with};
use crate::support::{Reply, TestServer, Upstream, within};

/// Both clients see the same. Returns what the upstream was asked by each.
async fn both(case: &str, replies: &[Reply], config: &str, expected: Value) -> [Vec<Value>; 2] {
    both_of("messages", case, replies, config, &expected).await
}

fn message(text: &str, stop_reason: &str, blocks: &[&str], tokens: [u64; 2]) -> Value {
    json!({"text": text, "stop_reason": stop_reason, "blocks": blocks, "tokens": tokens})
}

#[tokio::test]
async fn a_message_of_anthropics_clients() {
    let expected = with(message("Hello", "end_turn", &["text"], [10, 5]), &json!({"has_request_id": true}));
    for requests in both("plain", &[Reply::says("Hello")], "", expected).await {
        let asked = &requests[0];
        assert_eq!((&asked["messages"][0]["content"], &asked["user"]), (&json!("Be short."), &json!("u-1")));
        assert_eq!(asked["stop"], json!(["END"]));
    }
}

#[tokio::test]
async fn a_message_whose_tools_run_on_the_server() {
    let replies = [calls_calculator(), Reply::says("It is 42.")];
    let blocks = ["mcp_tool_use", "mcp_tool_result", "text"];
    let expected = with(message("It is 42.", "end_turn", &blocks, [20, 10]), &json!({"same": true}));
    both("streamed", &replies, "", expected).await;
}

#[tokio::test]
async fn a_message_that_calls_a_tool_of_the_client() {
    let calls = Reply::stream().tool_call(0, "call_1", "calculator", r#"{"expression":"6 * 7"}"#).tool_call(
        1,
        "call_2",
        "get_weather",
        r#"{"city":"Oslo"}"#,
    );
    let replies = [calls.finish("tool_calls").usage(10, 5).done(), Reply::says("Rain.")];
    let called = json!({"called": [["get_weather", {"city": "Oslo"}]]});
    for requests in
        both("client_tool", &replies, "", with(message("Rain.", "end_turn", &["text"], [10, 5]), &called)).await
    {
        let messages = requests[1]["messages"].as_array().expect("there are messages");
        let said: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap_or_default()).collect();
        assert_eq!(said, ["user", "assistant", "tool", "tool"]);
        assert_eq!((&messages[2]["content"], &messages[3]["content"]), (&json!("42"), &json!("rain")));
    }
}

#[tokio::test]
async fn a_message_with_thinking() {
    let replies = [Reply::stream().reasoning("Hm.").text("Yes.").finish("stop").usage(10, 5).done()];
    for requests in both("thinking", &replies, "", message("Yes.", "end_turn", &["thinking", "text"], [10, 5])).await {
        assert_eq!(requests[0]["reasoning_effort"], "low");
    }
}

#[tokio::test]
async fn a_message_whose_call_is_approved() {
    let blocks = ["mcp_tool_use", "mcp_tool_result", "text"];
    let more = json!({"paused": "pause_turn", "asked": ["calculator"]});
    let expected = with(message("It is 42.", "end_turn", &blocks, [10, 5]), &more);
    both("approval", &[calls_calculator(), Reply::says("It is 42.")], "", expected).await;
}

#[tokio::test]
async fn a_message_of_a_schema() {
    for requests in both("structured", &[Reply::says(r#"{"n":42}"#)], "", json!({"n": 42})).await {
        assert_eq!(requests[0]["response_format"]["type"], "json_schema");
    }
}

#[tokio::test]
async fn a_message_that_ends_at_a_limit() {
    let text = "The run stopped at its limit of model calls before the answer was complete.";
    let blocks = ["mcp_tool_use", "mcp_tool_result", "text"];
    both("limited", &[calls_calculator()], "", message(text, "max_tokens", &blocks, [10, 5])).await;
}

#[tokio::test]
async fn errors_of_anthropics_clients() {
    let unknown = json!({"status": 404, "type": "not_found_error", "code": "model_not_found", "attempts": 1});
    both("unknown_model", &[], "", unknown).await;
    let keys = "[keys.test]\nkey_env = \"LOOPGATE_TEST_KEY\"\n";
    let refused = json!({"status": 401, "type": "authentication_error", "code": "invalid_api_key", "attempts": 1});
    both("unauthorized", &[], keys, refused).await;
    let broken = || Reply::stream().text("Hel").cut();
    // The server has asked the upstream as often as it may.
    let failed = json!({"status": 502, "type": "api_error", "code": "provider_error", "attempts": 1});
    both("provider_failure", &[broken(), broken(), broken()], "", failed).await;
    both("broken_stream", &[broken()], "", json!({"text": "Hel", "type": "api_error", "attempts": 1})).await;
}

#[tokio::test]
async fn tokens_and_models_for_anthropics_clients() {
    both("counted", &[], "", json!({"counts": true})).await;
    let agent = "[agents.researcher]\nmodel = \"scripted/test\"\n";
    both("models", &[], agent, json!({"ids": ["researcher", "scripted/test"], "one": "researcher"})).await;
}

/// The client leaves in the middle, and the run ends.
#[tokio::test]
async fn a_client_that_leaves_cancels_its_run() {
    for client in clients("messages") {
        let upstream = Upstream::start([Reply::stream().text("First.").stall()]).await;
        let server = TestServer::start(&upstream.config()).await;
        assert_eq!(seen(client, "left", server.url(), &server).await, json!({"text": "First."}));
        let asks = async {
            while server.get("/v1/runs").await.ok()["data"][0]["status"] != "cancelled" {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        within("the run to be cancelled", asks).await;
    }
}

#[tokio::test]
async fn a_lost_connection_of_anthropics_clients_costs_no_second_run() {
    send_again("messages", json!({"text": "Noted.", "attempts": 2})).await;
}
