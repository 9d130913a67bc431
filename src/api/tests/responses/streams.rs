//! The sequences of frames.

use super::*;

#[tokio::test]
async fn text_comes_as_one_item_whose_frames_are_those_of_openai() {
    let server = Server::new(vec![Say::Text(&["Hel", "lo"])]);
    let frames = server.stream(&ask("Hi")).await;
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(types(&frames), expected);
    assert_eq!(frames[0]["response"]["output"], json!([]));
    assert_eq!(frames[0]["response"]["usage"], Value::Null);
    let id = ended(&frames)["id"].as_str().unwrap();
    let of_item = |frame: &Value| frame.to_string().replace(&id[5..33], "R");
    assert_eq!(
        of_item(&frames[2]["item"]),
        json!({"type": "message", "id": "msg_R000100", "status": "in_progress", "role": "assistant", "content": []})
            .to_string()
    );
    let delta = json!({
        "type": "response.output_text.delta", "sequence_number": 4, "item_id": "msg_R000100", "output_index": 0,
        "content_index": 0, "delta": "Hel", "logprobs": [],
    });
    assert_eq!(serde_json::from_str::<Value>(&of_item(&frames[4])).unwrap(), delta);
    let part = json!({"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []});
    let item = json!({
        "type": "message", "id": "msg_R000100", "status": "completed", "role": "assistant", "content": [part],
        "phase": "final_answer",
    });
    assert_eq!(serde_json::from_str::<Value>(&of_item(&frames[8]["item"])).unwrap(), item);
    assert_eq!(ended(&frames)["output"], json!([frames[8]["item"]]));
    let usage = json!({
        "input_tokens": 10, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15,
    });
    assert_eq!(ended(&frames)["usage"], usage);
    assert_eq!(ended(&frames)["agent"]["stop_reason"], "done");
}

#[tokio::test]
async fn calls_of_the_servers_tools_are_items_between_what_is_said() {
    let calls = Say::Calls("Let me see. ", vec![("echo", r#"{"n":1}"#), ("echo", r#"{"n":2}"#)]);
    let server = Server::new(vec![calls, Say::Text(&["Done."])]);
    let frames = server.stream(&ask("Go")).await;
    let types = types(&frames);
    let count = |kind: &str| types.iter().filter(|known| **known == kind).count();
    for kind in ["mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done", "mcp_call.completed"] {
        assert_eq!(count(kind), 2, "{kind}: {types:?}");
    }
    assert_eq!((count("output_item.added"), count("output_item.done")), (4, 4));
    let response = ended(&frames);
    assert_eq!(kinds(response), ["message", "mcp_call", "mcp_call", "message"]);
    assert_eq!(response["output"][0]["phase"], "commentary");
    assert_eq!(response["output"][3]["phase"], "final_answer");
    let call = &response["output"][1];
    assert_eq!(
        generic(&json!([call, response["id"]])),
        json!([
            {
                "type": "mcp_call", "id": "mcp_R0001", "server_label": "loopgate", "name": "echo",
                "arguments": r#"{"n":1}"#, "output": r#"{"n":1}"#, "error": null, "approval_request_id": null,
                "status": "completed",
            },
            "resp_R0000",
        ])
        .to_string()
    );
    assert_eq!(response["usage"]["total_tokens"], 30);
}

/// Whatever stands in the last frame was told before: items by their frames, and all of it by the object.
#[tokio::test]
async fn the_last_frame_the_items_frames_and_the_object_are_the_same() {
    let calls = Say::Calls("So: ", vec![("echo", r#"{"n":1}"#), ("nothing", "{}"), ("echo", "{\"x\":1}")]);
    let server = Server::new(vec![calls, Say::Unmetered("hm", "Yes.")]);
    let frames = server.stream(&ask("Go")).await;
    let mut items: Vec<_> = frames.iter().filter(|frame| frame["type"] == "response.output_item.done").collect();
    items.sort_by_key(|frame| frame["output_index"].as_u64());
    let items: Vec<_> = items.iter().map(|frame| frame["item"].clone()).collect();
    assert_eq!(ended(&frames)["output"], Value::from(items));
    assert_eq!(kinds(ended(&frames)), ["message", "mcp_call", "mcp_call", "mcp_call", "reasoning", "message"]);
    let calls = &ended(&frames)["output"].as_array().unwrap()[1..4];
    let (failed, made): (Vec<_>, Vec<_>) = calls.iter().partition(|call| call["status"] == "failed");
    assert_eq!((failed.len(), made.len()), (2, 1), "there is no such tool, and no such argument: {calls:?}");
    let error = &failed[0]["error"];
    assert_eq!((&error["type"], &error["content"][0]["type"]), (&json!("mcp_tool_execution_error"), &json!("text")));
    assert_eq!(server.get(&ended(&frames)["id"]).await, *ended(&frames));
    let mut texts = std::collections::BTreeMap::<u64, String>::new();
    for frame in frames.iter().filter(|frame| frame["type"].as_str().unwrap().ends_with("text.delta")) {
        *texts.entry(frame["output_index"].as_u64().unwrap()).or_default() += frame["delta"].as_str().unwrap();
    }
    for (index, text) in texts {
        let item = &ended(&frames)["output"][usize::try_from(index).unwrap()];
        let told = item["content"][0]["text"].as_str().or(item["summary"][0]["text"].as_str());
        assert_eq!(told, Some(text.as_str()));
    }
}

#[tokio::test]
async fn a_stream_is_told_again_from_any_of_its_numbers_by_any_replica() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let calls = Say::Calls("Let me see. ", vec![("echo", r#"{"n":1}"#)]);
    let one = Server::over(store.clone(), vec![calls, Say::Text(&["It ", "is ", "1."])]);
    let frames = one.stream(&ask("Go")).await;
    let other = Server::over(store, Vec::new());
    let id = ended(&frames)["id"].as_str().unwrap();
    assert_eq!(other.replay(id, None).await, frames);
    for after in 0..frames.len() as u64 {
        let rest = other.replay(id, Some(after)).await;
        assert_eq!(rest, frames[usize::try_from(after).unwrap() + 1..], "after {after}");
    }
    let ahead = format!("/v1/responses/{id}?stream=true&starting_after={}", frames.len());
    let (status, body) = other.call(Method::GET, &ahead).await;
    assert_eq!((status.as_u16(), &body["error"]["param"]), (400, &json!("starting_after")));
}

#[tokio::test(start_paused = true)]
async fn what_became_void_is_left_out_of_the_output_and_its_index_is_not_used_again() {
    let server = Server::new(vec![Say::Break(&["never mi", "nd"])]);
    let frames = server.stream(&with(ask("Go"), &json!({"agent": {"limits": {"timeout_ms": 5000}}}))).await;
    let done: Vec<_> = frames.iter().filter(|frame| frame["type"] == "response.output_item.done").collect();
    assert!(done.len() >= 2, "{:?}", types(&frames));
    assert!(done.iter().all(|frame| frame["item"]["status"] == "incomplete"), "{done:?}");
    let indices: Vec<_> = done.iter().map(|frame| frame["output_index"].as_u64().unwrap()).collect();
    assert_eq!(indices, (0..done.len() as u64).collect::<Vec<_>>());
    assert_eq!(ended(&frames)["output"], json!([]));
}

#[tokio::test]
async fn a_refusal_is_a_part_of_its_own() {
    let server = Server::new(vec![Say::Declines(&["I can", "not."])]);
    let frames = server.stream(&ask("Go")).await;
    assert!(types(&frames).contains(&"refusal.delta") && types(&frames).contains(&"refusal.done"));
    assert_eq!(ended(&frames)["output"][0]["content"], json!([{"type": "refusal", "refusal": "I cannot."}]));
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_tells_that_it_lives_without_taking_numbers() {
    let server = Server::new(vec![Say::Late(130_000, Box::new(Say::Text(&["late"])))]);
    let body = json!({"model": "m", "input": "Go", "stream": true, "agent": {"limits": {"timeout_ms": 60000}}});
    let text = server.read(Server::request(&Method::POST, "/v1/responses", Some(&body), &[])).await;
    let alive: Vec<&str> = text.split("\n\n").filter(|block| block.starts_with("event: keepalive")).collect();
    assert!(!alive.is_empty() && text.contains(": keep-alive\n\n"), "{text}");
    let number = |block: &str| serde_json::from_str::<Value>(block.split_once("data: ").unwrap().1).unwrap();
    assert_eq!(number(alive[0])["sequence_number"], 1, "the number of the frame before it: {text}");
    let without: String =
        text.split_inclusive("\n\n").filter(|block| !block.contains("keepalive") && !block.starts_with(':')).collect();
    frames(&without, 0);
}

/// A frame's data is one line: another one would be lost to its reader.
#[tokio::test]
async fn json_that_a_request_has_in_several_lines_is_written_in_one() {
    let server = Server::new(vec![Say::Text(&["{}"])]);
    let tools = json!([{"type": "custom", "name": "patch"}, {"type": "namespace", "name": "crm", "tools": []}]);
    let format = json!({"type": "json_schema", "name": "x", "schema": {"type": "object"}});
    let body = json!({"text": {"format": format}, "tools": tools, "tool_choice": {"type": "custom", "name": "patch"}});
    let body = with(with(ask("Go"), &body), &json!({"stream": true}));
    let pretty = serde_json::to_string_pretty(&body).unwrap().replace('\n', "\r\n");
    let request = Server::request(&Method::POST, "/v1/responses", None, &[]).map(|_| Body::from(pretty));
    let frames = frames(&server.read(request).await, 0);
    for name in ["tools", "tool_choice"] {
        assert_eq!((&frames[0]["response"][name], &ended(&frames)[name]), (&body[name], &body[name]));
    }
    assert_eq!(ended(&frames)["text"]["format"], format);
}
