//! The sequences of events.

use super::*;

fn usage(input: u64, output: u64) -> Value {
    json!({
        "input_tokens": input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation": null,
        "output_tokens": output, "server_tool_use": null, "service_tier": "standard", "inference_geo": null,
    })
}

#[tokio::test]
async fn text_comes_as_one_block_whose_events_are_those_of_anthropic() {
    let server = Server::new(vec![Say::Text(&["Hel", "lo"])]);
    let events = server.stream(&ask("Hi")).await;
    let mut begun = generic(&events[0]["message"]);
    let estimate = begun["usage"]["input_tokens"].take().as_u64().unwrap();
    assert!(estimate > 0, "clients that read only this show it");
    begun["usage"]["input_tokens"] = 0.into();
    let expected = json!({
        "id": "msg_R0000", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null,
        "stop_sequence": null, "stop_details": null, "container": null, "usage": usage(0, 0),
    });
    assert_eq!(begun, expected);
    let piece =
        |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
    let text = [
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        piece("Hel"),
        piece("lo"),
        json!({"type": "content_block_stop", "index": 0}),
    ];
    assert_eq!(events[1..5], text);
    let ended = &events[5];
    let delta = json!({"stop_reason": "end_turn", "stop_sequence": null, "stop_details": null, "container": null});
    assert_eq!((&ended["type"], &ended["delta"]), (&json!("message_delta"), &delta));
    let sums = json!({
        "input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5,
    });
    assert_eq!(ended["usage"], sums);
    assert_eq!(ended["agent"]["stop_reason"], "done");
    assert_eq!(events[6..], [json!({"type": "message_stop"})]);
}

#[tokio::test]
async fn calls_of_the_servers_tools_are_whole_blocks_between_what_is_said() {
    let turns = || {
        let calls = Say::Calls("Let me see. ", vec![("echo", r#"{"n":1}"#), ("echo", r#"{"n":2}"#)]);
        vec![calls, Say::Text(&["Done."])]
    };
    let events = Server::new(turns()).stream(&ask("Go")).await;
    let message = folded(&events);
    let mut kinds = kinds(&message);
    assert_eq!((kinds.remove(0), kinds.pop()), ("text", Some("text")));
    kinds.sort_unstable();
    assert_eq!(kinds, ["mcp_tool_result", "mcp_tool_result", "mcp_tool_use", "mcp_tool_use"]);
    let generic = generic(&message);
    let find = |kind: &str| generic["content"].as_array().unwrap().iter().find(|block| block["type"] == kind).unwrap();
    let call = json!({
        "type": "mcp_tool_use", "id": "mcptoolu_R0001", "name": "echo", "server_name": "loopgate", "input": {"n": 1},
    });
    assert_eq!(*find("mcp_tool_use"), call);
    let result = json!({
        "type": "mcp_tool_result", "tool_use_id": "mcptoolu_R0001", "is_error": false,
        "content": [{"type": "text", "text": r#"{"n":1}"#}],
    });
    assert_eq!(*find("mcp_tool_result"), result);
    assert_eq!((&message["stop_reason"], &message["usage"]["output_tokens"]), (&json!("end_turn"), &json!(10)));
    assert!(types(&events).iter().all(|kind| *kind != "ping"));
    let delta = |event: &Value| event["delta"]["type"] == "input_json_delta";
    assert!(!events.iter().any(delta), "not every client reads the arguments of these from deltas");
}

/// Clients that know servers of tools wait for the arguments.
#[tokio::test]
async fn clients_that_read_them_get_the_arguments_of_the_servers_calls_as_deltas() {
    for headers in [[("anthropic-beta", "mcp-client-2025-11-20")], [("user-agent", "pydantic-ai/2.68.0")]] {
        let server = Server::new(vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)]), Say::Text(&["Done."])]);
        let events = server.stream_with(&ask("Go"), &headers).await;
        let start = &events[1]["content_block"];
        assert_eq!((&start["type"], &start["input"]), (&json!("mcp_tool_use"), &json!({})));
        assert_eq!(events[2]["delta"], json!({"type": "input_json_delta", "partial_json": r#"{"n":1}"#}));
        assert_eq!(folded(&events)["content"][0]["input"], json!({"n": 1}));
    }
}

#[tokio::test]
async fn thinking_is_a_block_that_is_signed() {
    let turns = || vec![Say::Unmetered("Hm.", "Yes.")];
    let events = Server::new(turns()).stream(&ask("Hi")).await;
    let deltas: Vec<_> = events.iter().filter_map(|event| event["delta"]["type"].as_str()).collect();
    assert_eq!(deltas, ["thinking_delta", "signature_delta", "text_delta"]);
    let message = Server::new(turns()).ok(&ask("Hi")).await;
    assert_eq!(kinds(&message), ["thinking", "text"]);
    assert_eq!((&message["content"][0]["thinking"], text(&message).as_str()), (&json!("Hm."), "Yes."));
    assert!(!message["content"][0]["signature"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn the_message_is_what_its_events_make() {
    let script = || vec![Say::Calls("So. ", vec![("echo", r#"{"n":1}"#)]), Say::Unmetered("Hm.", "Yes.")];
    let streamed = folded(&Server::new(script()).stream(&ask("Go")).await);
    let whole = Server::new(script()).ok(&ask("Go")).await;
    assert_eq!(generic(&streamed), generic(&whole));
    assert_eq!(whole["agent"]["status"], "completed");
    let bare = with(ask("Go"), &json!({"agent": {"events": "none"}}));
    assert_eq!(Server::new(script()).ok(&bare).await.get("agent"), None);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_tells_that_it_lives() {
    let server = Server::new(vec![Say::Late(40_000, Box::new(Say::Text(&["Hello"])))]);
    let events = server.stream(&ask("Hi")).await;
    assert_eq!(types(&events)[..4], ["message_start", "ping", "ping", "content_block_start"]);
    assert_eq!(events[1], json!({"type": "ping"}));
}

/// A stream cannot take back what it said.
#[tokio::test]
async fn a_stream_whose_text_became_void_ends_with_an_error() {
    let server = Server::new(vec![Say::Break(&["Half"]), Say::Text(&["Whole."])]);
    let events = server.stream(&ask("Hi")).await;
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["error"]["type"]), (&json!("error"), &json!("api_error")), "{events:?}");
    assert!(!events.iter().any(|event| event["delta"]["text"] == "Whole."));
    assert_eq!(types(&events).iter().filter(|kind| kind.starts_with("message_")).count(), 1, "nothing follows");
}

/// Clients repeat an error of the server's, and then the tool would be called once more.
#[tokio::test]
async fn text_that_became_void_after_a_tool_ran_is_no_error_that_clients_repeat() {
    let calls = Say::Calls("", vec![("echo", r#"{"n":1}"#)]);
    let server = Server::new(vec![calls, Say::Break(&["Half"]), Say::Text(&["Whole."])]);
    let events = server.stream(&ask("Go")).await;
    let error = &events.last().unwrap()["error"];
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("invalid_request_error"), &json!("provider_error")),
        "{events:?}"
    );
}

/// A frame's data is one line: another one would be lost to its reader.
#[tokio::test]
async fn arguments_in_several_lines_are_written_in_one() {
    let server = Server::new(vec![Say::Calls("", vec![("echo", "{\n  \"n\": 1\r\n}")]), Say::Text(&["Done."])]);
    let message = folded(&server.stream(&ask("Go")).await);
    assert_eq!(message["content"][0]["input"], json!({"n": 1}), "{message}");
}
