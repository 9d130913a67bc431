//! What requests may say.

use super::*;

#[tokio::test]
async fn a_response_repeats_its_request() {
    let server = Server::new(Vec::new());
    let mcp = json!({"type": "mcp", "server_label": "loopgate", "allowed_tools": ["echo"], "authorization": "SECRET"});
    let asked = json!({
        "model": "m", "input": "Hi", "instructions": "Short.", "max_output_tokens": 99, "temperature": 0.5, "top_p": 0.9,
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}, mcp],
        "tool_choice": "auto", "parallel_tool_calls": false, "metadata": {"a": "b"}, "truncation": "auto",
        "reasoning": {"effort": "low", "summary": "auto"}, "text": {"verbosity": "low"}, "prompt_cache_key": "k",
        "safety_identifier": "s", "unknown": {"x": 1}, "stream_options": {"include_obfuscation": false},
        "include": ["reasoning.encrypted_content"],
    });
    let response = server.ok(&asked).await;
    for name in [
        "instructions",
        "max_output_tokens",
        "temperature",
        "top_p",
        "tool_choice",
        "metadata",
        "truncation",
        "prompt_cache_key",
        "safety_identifier",
        "parallel_tool_calls",
        "model",
    ] {
        assert_eq!(response[name], asked[name], "{name}");
    }
    let function =
        json!({"type": "function", "name": "f", "description": null, "parameters": {"type": "object"}, "strict": null});
    assert_eq!(response["tools"][0], function);
    assert_eq!(
        (&response["tools"][1]["server_label"], response["tools"][1].get("authorization")),
        (&json!("loopgate"), None)
    );
    assert_eq!(response["reasoning"]["effort"], "low");
    assert_eq!(response["text"], json!({"format": {"type": "text"}, "verbosity": "low"}));
    assert_eq!((&response["object"], &response["service_tier"]), (&json!("response"), &json!("default")));
    assert!(!server.get(&response["id"]).await.to_string().contains("SECRET"));
    let offered: Vec<_> = server.agent.model.requests.lock()[0].tools.tools().map(|tool| tool.name.clone()).collect();
    assert_eq!(offered.iter().filter(|name| ["save", "hang"].contains(&name.as_str())).count(), 0, "{offered:?}");
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused_by_its_place() {
    let server = Server::new(Vec::new());
    for (more, param) in [
        (json!({"temperature": 3}), "temperature"),
        (json!({"top_p": -1}), "top_p"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"max_tool_calls": 0}), "max_tool_calls"),
        (json!({"truncation": "some"}), "truncation"),
        (json!({"prompt": {"id": "p"}}), "prompt"),
        (json!({"moderation": {}}), "moderation"),
        (json!({"input": 7}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": [{"type": "strange"}]}), "input[0].type"),
        (json!({"input": [{"role": "friend", "content": ""}]}), "input[0].role"),
        (json!({"input": [{"role": "user", "content": "a"}, {"role": "user"}]}), "input[1].content"),
        (json!({"input": [{"role": "user", "content": [{"type": "input_video"}]}]}), "input[0].content[0].type"),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}]}),
            "input[0].content[0].file_id",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1/"}]}]}),
            "input[0].content[0].image_url",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_file", "file_data": "AAAA"}]}]}),
            "input[0].content[0].file_data",
        ),
        (json!({"input": [{"type": "function_call_output", "output": "x"}]}), "input[0].call_id"),
        (json!({"tools": [{"type": "computer_use_preview"}]}), "tools[0].type"),
        (json!({"tools": [{"type": "function", "name": "a b"}]}), "tools[0].name"),
        (json!({"tools": [{"type": "function", "name": "a"}, {"type": "custom", "name": "a"}]}), "tools[1].name"),
        (
            json!({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom"}]}]}),
            "tools[0].tools[0].type",
        ),
        (json!({"tools": [{"type": "mcp"}]}), "tools[0].server_label"),
        (json!({"tools": [{"type": "mcp", "server_label": "x", "server_url": 7}]}), "tools[0].server_url"),
        (json!({"tool_choice": {"type": "web_search"}}), "tool_choice.type"),
        (json!({"text": {"format": {"type": "xml"}}}), "text.format.type"),
        (json!({"text": {"format": {"type": "json_schema", "name": "x"}}}), "text.format.schema"),
        (json!({"metadata": {"a": "x".repeat(600)}}), "metadata.a"),
        (json!({"agent": {"run_id": "run_1"}}), "agent.run_id"),
        (json!({"agent": {"background": true}}), "agent.background"),
        (json!({"agent": {"events": "extension"}}), "agent.events"),
        (json!({"agent": {"nothing": 1}}), "agent.nothing"),
    ] {
        let (status, code, found, message) = server.refused(&with(ask("Hi"), &more)).await;
        assert_eq!((status, found.as_str()), (400, param), "{more}: {code}: {message}");
        assert!(!message.is_empty() && !code.is_empty());
    }
    assert_eq!(server.refused(&json!({"model": "none", "input": "Hi"})).await.1, "model_not_found");
}

#[tokio::test]
async fn options_may_come_in_a_header() {
    let server = Server::new(vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)])]);
    let header = [("x-loopgate-agent", r#"{"limits":{"max_iterations":1}}"#)];
    let (_, response) = server.post_with(&ask("Go"), &header).await;
    assert_eq!(response["agent"]["stop_reason"], "max_iterations", "{response}");
    let both = with(ask("Go"), &json!({"agent": {}}));
    let (status, body) = server.post_with(&both, &header).await;
    assert_eq!((status.as_u16(), &body["error"]["param"]), (400, &json!("x-loopgate-agent")));
    let (status, body) = server.post_with(&ask("Go"), &[("x-loopgate-agent", "{")]).await;
    assert_eq!((status.as_u16(), &body["error"]["param"]), (400, &json!("x-loopgate-agent")));
}

#[tokio::test]
async fn a_request_is_counted_with_what_it_continues() {
    let server = Server::new(vec![Say::Text(&["one"])]);
    let first = server.ok(&ask("First? ".repeat(500))).await;
    let count = async |body: &Value| {
        let request = Server::request(&Method::POST, "/v1/responses/input_tokens", Some(body), &[]);
        let (status, answer) = send(&server.router, request).await;
        assert_eq!((status.as_u16(), &answer["object"]), (200, &json!("response.input_tokens")), "{answer}");
        answer["input_tokens"].as_u64().unwrap()
    };
    let alone = count(&ask("Second?")).await;
    let after = count(&with(ask("Second?"), &json!({"previous_response_id": first["id"]}))).await;
    assert!(alone > 0 && after > alone + 500, "{alone} and {after}");
    assert_eq!(server.agent.model.requests.lock().len(), 1);
}

/// Transcripts of other servers have items of tools that are not here.
#[tokio::test]
async fn a_foreign_transcript_is_read_as_far_as_it_can_be() {
    let server = Server::new(Vec::new());
    let input = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "One"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "from g"},
        {"type": "function_call_output", "call_id": "a", "output": "from f"},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "crm", "name": "find", "arguments": "{}", "output": "Ada"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two", "annotations": []}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two and a half", "annotations": []}]},
        {"role": "user", "content": "Three"},
    ]);
    let response = server.ok(&ask(input)).await;
    assert!(response["agent"]["warnings"].to_string().contains("web_search_call"), "{response}");
    let said: Vec<_> = server.asked().into_iter().map(|(role, text)| format!("{role}: {text}")).collect();
    assert_eq!(
        said,
        [
            "user: One",
            "assistant: {}\n{}",
            "tool: from f",
            "tool: from g",
            "assistant: {}",
            "tool: Ada",
            "assistant: Two",
            "assistant: Two and a half",
            "user: Three"
        ]
    );
}

#[tokio::test]
async fn tools_can_be_forced_and_left_out() {
    let server = Server::new(Vec::new());
    let offered = |server: &Server| -> Vec<String> {
        server.agent.model.requests.lock().last().unwrap().tools.tools().map(|tool| tool.name.clone()).collect()
    };
    server.ok(&with(ask("Hi"), &json!({"tool_choice": "none"}))).await;
    assert_eq!(offered(&server), Vec::<String>::new());
    let allowed = json!({"type": "allowed_tools", "mode": "auto", "tools": [
        {"type": "mcp", "server_label": "loopgate", "name": "echo"},
    ]});
    let function = json!([{"type": "function", "name": "f"}]);
    server.ok(&with(ask("Hi"), &json!({"tool_choice": allowed, "tools": function}))).await;
    assert_eq!(offered(&server), ["echo"]);
    // Without a name, all tools under the label; none that the entries of the request leave out.
    let allowed =
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "loopgate"}]});
    let selects = json!([{"type": "mcp", "server_label": "loopgate", "allowed_tools": ["echo"]}]);
    server.ok(&with(ask("Hi"), &json!({"tool_choice": allowed, "tools": selects}))).await;
    assert_eq!(offered(&server), ["echo"]);
    server.ok(&with(ask("Hi"), &json!({"tool_choice": allowed, "tools": function}))).await;
    assert!(offered(&server).contains(&"echo".to_owned()) && !offered(&server).contains(&"f".to_owned()));
    let unknown = json!([{"type": "mcp", "server_label": "loopgate", "allowed_tools": ["nothing"]}]);
    assert_eq!(server.refused(&with(ask("Hi"), &json!({"tools": unknown}))).await.1, "tool_not_allowed");
}

/// OpenAI's own items have members of other types.
#[tokio::test]
async fn items_that_are_left_out_are_read_no_further() {
    let server = Server::new(vec![Say::Text(&["one"])]);
    let input = json!([
        {"type": "tool_search_call", "call_id": null, "arguments": {"query": "crm"}, "status": "completed"},
        {"role": "user", "content": "Hi"},
    ]);
    let response = server.ok(&ask(input)).await;
    assert!(response["agent"]["warnings"].to_string().contains("tool_search_call"), "{response}");
    let call = json!([{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]);
    assert_eq!(server.refused(&ask(call)).await.2, "input[0].arguments");
}
