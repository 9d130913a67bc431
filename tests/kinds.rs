//! One conversation, and upstreams of every kind.

use serde_json::{Value, json};

use crate::support::{Anthropic, Reply, Responses, TestServer, Upstream};

const PNG: &str = "iVBORw0KGgo=";

/// The texts that stand anywhere in a request, in their order.
fn texts(body: &Value) -> Vec<&str> {
    match body {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Text, pictures, calls and results go everywhere and back. Thinking goes back only to the model that sealed it, and
/// waits in the session while others are asked.
#[tokio::test]
async fn a_conversation_goes_through_all_kinds_and_back_and_loses_nothing() {
    let claude = Anthropic::start([
        Reply::anthropic()
            .thinking_block(0, "claude thinks", "EqQB")
            .tool_block(1, "calculator", &json!({"expression": "6 * 7"}))
            .stop("tool_use"),
        Reply::anthropic().text_block(0, "It is 42.").stop("end_turn"),
        Reply::anthropic().text_block(0, "Bye from claude").stop("end_turn"),
    ])
    .await;
    let respond = Responses::start([
        Reply::responses()
            .reasoning_item(0, "gpt thinks", "gAAA==")
            .call_item(1, "calculator", &json!({"expression": "42 + 1"}))
            .complete(),
        Reply::responses().text_item(0, "It is 43.").complete(),
        Reply::responses().text_item(0, "Bye from gpt").complete(),
    ])
    .await;
    let openai = Upstream::start([
        Reply::calls("calculator", &json!({"expression": "43 + 1"})),
        Reply::says("It is 44."),
        Reply::says("Bye from openai"),
    ])
    .await;
    let server = TestServer::start(&format!("{}{}{}", claude.config(), respond.config(), openai.config())).await;
    let picture = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG}")}});
    let models = ["claude/claude-sonnet-4-5", "respond/gpt-5", "scripted/test"];
    for (index, model) in models.iter().chain(&models).enumerate() {
        let content = json!([{"type": "text", "text": format!("question {index}")}, picture]);
        let messages = json!([{"role": "user", "content": content}]);
        let request = json!({"model": model, "messages": messages, "agent": {"session_id": "s"}});
        server.post("/v1/agent/completions", &request).await.ok();
    }

    let last = [claude.requests().pop(), respond.requests().pop(), openai.requests().pop()];
    // What was said before each kind was asked for the last time.
    for (kind, (body, asked)) in last.iter().zip([4, 5, 6]).enumerate() {
        let body = body.as_ref().expect("each was asked");
        let found = texts(body);
        let said = [
            "It is 42.",
            "It is 43.",
            "It is 44.",
            "question 0",
            "question 1",
            "question 2",
            "question 3",
            "42",
            "43",
            "44",
        ];
        for text in said {
            assert_eq!(found.iter().filter(|found| **found == text).count(), 1, "{text} for {kind}: {body}");
        }
        for expression in ["6 * 7", "42 + 1", "43 + 1"] {
            assert!(found.iter().any(|text| text.contains(expression)), "{expression} for {kind}: {body}");
        }
        assert_eq!(found.iter().filter(|text| text.contains(PNG)).count(), asked, "pictures for {kind}: {body}");
        for (author, seal) in ["EqQB", "gAAA=="].iter().enumerate() {
            let seen = found.iter().any(|text| text == seal);
            assert_eq!(seen, author == kind, "only the model that sealed its thinking sees it: {body}");
        }
    }
}
