//! What requests may say, and how it reaches the model.

use super::*;
use crate::types::conversation::{Dialect, PartKind, Source};
use crate::types::offer::ToolChoice;
use crate::types::sampling::{ResponseFormat, Sampling, Stop};

/// What upstreams of a dialect are sent as it came.
fn passed(sampling: &Sampling, dialect: Dialect) -> Vec<(String, String)> {
    let members = sampling.extra.members(dialect).iter();
    members.map(|(name, json)| (name.clone(), json.get().to_owned())).collect()
}

#[tokio::test]
async fn instructions_stand_first_and_consecutive_messages_stay_in_order() {
    let server = Server::new(vec![Say::Text(&["Hello"])]);
    let system = json!([{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}]);
    let more = [
        json!({"role": "user", "content": [{"type": "text", "text": "there"}]}),
        json!({"role": "system", "content": "It is late."}),
        json!({"role": "user", "content": "?"}),
    ];
    server.ok(&then(with(ask("Hi"), &json!({"system": system})), &more)).await;
    let expected = ["system: Be short.", "user: Hi", "user: there", "system: It is late.", "user: ?"];
    assert_eq!(server.asked(), expected);
}

#[tokio::test]
async fn parameters_reach_the_model() {
    let server = Server::new(vec![Say::Text(&["{}"])]);
    let schema = json!({"type": "object"});
    let body = with(
        ask("Hi"),
        &json!({
            "stop_sequences": ["END"], "temperature": 0.5, "top_p": 0.9, "top_k": 7, "metadata": {"user_id": "u-1"},
            "thinking": {"type": "enabled", "budget_tokens": 10_000},
            "output_config": {"format": {"type": "json_schema", "schema": schema}},
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
            "service_tier": "auto", "container": null, "unknown": 1,
        }),
    );
    server.ok(&body).await;
    let requests = server.agent.model.requests.lock();
    let request = requests.last().unwrap();
    let sampling = &request.sampling;
    assert_eq!(request.max_tokens, Some(100));
    assert_eq!((sampling.temperature, sampling.top_p), (Some(0.5), Some(0.9)));
    assert_eq!(sampling.stop, Some(Stop::Texts(vec!["END".to_owned()])));
    assert_eq!(sampling.user.as_deref(), Some("u-1"));
    assert_eq!(sampling.reasoning_effort.as_deref(), Some("medium"));
    assert_eq!(passed(sampling, Dialect::OpenaiChat), [("top_k".to_owned(), "7".to_owned())]);
    assert!(matches!(sampling.response_format, Some(ResponseFormat::JsonSchema { .. })));
    assert_eq!((&request.tool_choice, request.parallel_tool_calls), (&ToolChoice::Required, false));
}

/// Only Anthropic's upstreams are told that a model is to think as it sees fit.
#[tokio::test]
async fn adaptive_thinking_is_said_where_it_is_understood() {
    let server = Server::new(vec![Say::Text(&["Hello"])]);
    let body = with(ask("Hi"), &json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}));
    server.ok(&body).await;
    let requests = server.agent.model.requests.lock();
    let sampling = &requests.last().unwrap().sampling;
    let thinking = ("thinking".to_owned(), r#"{"type":"adaptive"}"#.to_owned());
    assert_eq!(passed(sampling, Dialect::AnthropicMessages), [thinking]);
    assert_eq!(passed(sampling, Dialect::OpenaiChat), []);
    assert_eq!(sampling.reasoning_effort.as_deref(), Some("low"));
}

#[tokio::test]
async fn pictures_and_documents_are_parts() {
    let server = Server::new(vec![Say::Text(&["Hello"])]);
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
    let content = json!([
        {"type": "image", "source": source},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "document", "title": "Notes", "source": {"type": "text", "media_type": "text/plain", "data": "One."}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}},
        {"type": "search_result", "source": "https://example.com", "title": "Found", "content": [{"type": "text", "text": "Two."}]},
        {"type": "text", "text": "What is it?"},
    ]);
    server.ok(&ask(content)).await;
    let requests = server.agent.model.requests.lock();
    let message = requests.last().unwrap().conversation.iter().next().unwrap().clone();
    let parts = crate::llm::openai::messages::parts(&message).unwrap();
    let png = Source::Base64 { media_type: "image/png".to_owned(), data: "AAAA".to_owned() };
    assert_eq!(parts.list[0].kind, PartKind::Image { source: png, detail: None });
    let url = Source::Url("https://example.com/a.png".to_owned());
    assert_eq!(parts.list[1].kind, PartKind::Image { source: url, detail: None });
    let texts: Vec<_> = parts.list.iter().filter_map(crate::types::conversation::Part::as_text).collect();
    assert_eq!(texts, ["Notes", "One.", "Found", "https://example.com", "Two.", "What is it?"]);
    assert!(matches!(parts.list[4].kind, PartKind::File { .. }));
}

#[tokio::test]
async fn what_is_not_taken_is_refused_with_its_place() {
    let server = Server::new(Vec::new());
    let block = |block: Value| json!({"messages": [{"role": "user", "content": [block]}]});
    let file = json!({"type": "image", "source": {"type": "file", "file_id": "file_1"}});
    let inside = json!({"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/a.png"}});
    let cases = [
        (block(json!({"type": "audio"})), "messages[0].content[0].type"),
        (block(json!({"type": "text"})), "messages[0].content[0].text"),
        (block(file), "messages[0].content[0].source.file_id"),
        (block(inside), "messages[0].content[0].source.url"),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages[0].role"),
        (json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}), "tools[0].type"),
        (json!({"tools": [{"name": "a b", "input_schema": {}}]}), "tools[0].name"),
        (json!({"tools": [{"name": "a"}]}), "tools[0].input_schema"),
        (json!({"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}), "tools"),
        (json!({"tool_choice": {"type": "sometimes"}}), "tool_choice.type"),
        (json!({"thinking": {"type": "hard"}}), "thinking.type"),
        (json!({"output_config": {"format": {"type": "text"}}}), "output_config.format.type"),
        (json!({"agent": {"background": true}}), "agent.background"),
        (json!({"agent": {"events": "extension"}}), "agent.events"),
        (json!({"metadata": {"user_id": "u".repeat(5_000)}}), "metadata.user_id"),
    ];
    for (more, param) in cases {
        let (status, error) = server.refused(&with(ask("Hi"), &more)).await;
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{more}: {error}");
    }
}

#[tokio::test]
async fn servers_of_tools_select_what_the_server_has() {
    let server = Server::new(vec![Say::Text(&["Hello"])]);
    let entry = json!({"type": "url", "name": "loopgate", "url": "https://example.com/mcp"});
    let toolset = json!({
        "type": "mcp_toolset", "mcp_server_name": "loopgate", "default_config": {"enabled": false},
        "configs": {"echo": {"enabled": true}},
    });
    let message = server.ok(&with(ask("Hi"), &json!({"mcp_servers": [entry], "tools": [toolset]}))).await;
    let requests = server.agent.model.requests.lock();
    let names: Vec<_> = requests.last().unwrap().tools.tools().map(|tool| tool.name.clone()).collect();
    assert_eq!(names, ["echo"]);
    assert!(message["agent"]["warnings"].to_string().contains("no URL is called"), "{message}");
}

#[tokio::test]
async fn a_session_has_what_was_said_before() {
    let server = Server::new(vec![Say::Text(&["Hello"]), Say::Text(&["Again"])]);
    let in_session = json!({"agent": {"session_id": "s-1"}});
    server.ok(&with(ask("Hi"), &in_session)).await;
    let second = server.ok(&with(ask("And now?"), &in_session)).await;
    assert_eq!(text(&second), "Again");
    assert_eq!(server.asked(), ["user: Hi", "assistant: Hello", "user: And now?"]);
    let header = Server::request("/v1/messages", &ask("Hi"), &[("x-loopgate-agent", r#"{"session_id":"s-2"}"#)]);
    let (_, body) = send(&server.router, header).await;
    assert_eq!(body["agent"]["session_id"], "s-2");
}

#[tokio::test]
async fn tokens_are_counted_without_a_run() {
    let server = Server::new(Vec::new());
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
    let (status, few) = server.counted(&body).await;
    assert_eq!(status, StatusCode::OK, "{few}");
    let long = with(body, &json!({"system": "word ".repeat(1_000)}));
    let (_, many) = server.counted(&long).await;
    let count = |answer: &Value| answer["input_tokens"].as_u64().unwrap();
    assert!(count(&few) > 0 && count(&many) > count(&few) + 900, "{few} {many}");
    assert!(server.agent.model.requests.lock().is_empty());
    let (status, body) = server.counted(&json!({"messages": []})).await;
    assert_eq!((status.as_u16(), &body["type"]), (400, &json!("error")));
}

#[tokio::test]
async fn models_have_the_shapes_of_both_vendors() {
    let server = Server::new(Vec::new());
    let request = |path: &str| Request::builder().uri(path.to_owned()).body(Body::empty()).unwrap();
    let (_, list) = send(&server.router, request("/v1/models")).await;
    let entry = &list["data"][0];
    let both = (&entry["object"], &entry["type"], &entry["created_at"]);
    assert_eq!(both, (&json!("model"), &json!("model"), &json!("1970-01-01T00:00:00Z")));
    assert_eq!((&entry["display_name"], &list["first_id"]), (&entry["id"], &entry["id"]));
    assert_eq!(list["has_more"], false);
}
