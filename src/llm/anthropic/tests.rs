//! The model against real sockets.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::llm::http::http_client;
use crate::llm::testing::{answer, finish, http_upstream, traced_request};
use crate::llm::{ModelErrorKind, ModelTurn, Spent};
use crate::net::testing::{self, Act};
use crate::types::TurnEnd;

const KEY: &str = "sk-ant-very-secret";
const LONG: Duration = Duration::from_secs(20);

fn config(base_url: &str) -> AnthropicUpstream {
    let http = http_upstream(base_url, KEY, LONG);
    let beta = vec!["a-2025-01-01".to_owned(), "b-2025-02-02".to_owned()];
    AnthropicUpstream { http, version: "2023-06-01".to_owned(), beta, max_tokens: None, prompt_cache: true }
}

/// Asks an upstream that plays one act: how the call ended, and what was asked.
async fn ask(act: Act) -> (Result<ModelTurn, ModelError>, String) {
    let (address, requests) = testing::serve([vec![act]]).await;
    let model = AnthropicModel::new("claude", &config(&format!("http://{address}/v1")), http_client(LONG).unwrap());
    let turn = finish(model.unwrap().stream(traced_request("claude-sonnet-4-5"))).await;
    (turn, requests.await.unwrap().remove(0))
}

fn error(kind: &str, message: &str) -> String {
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_1" }).to_string()
}

#[tokio::test]
async fn a_request_bears_key_version_and_betas_and_a_whole_answer_is_read_as_well() {
    let body = json!({ "type": "message", "content": [{ "type": "text", "text": "hi" }], "stop_reason": "end_turn",
        "usage": { "input_tokens": 3, "output_tokens": 1 } });
    let (turn, request) = ask(answer("200 OK", "content-type: application/json\r\n", &body.to_string())).await;
    let turn = turn.unwrap();
    assert_eq!((turn.text().as_ref(), turn.end.clone()), ("hi", TurnEnd::Stop));
    assert_eq!(turn.usage.map(|usage| (usage.prompt_tokens, usage.completion_tokens)), Some((3, 1)));
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{head}");
    for header in [
        "x-api-key: sk-ant-very-secret",
        "anthropic-version: 2023-06-01",
        "anthropic-beta: a-2025-01-01,b-2025-02-02",
        "x-request-id: req-7",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ] {
        assert!(head.contains(header), "{header} is missing in {head}");
    }
    assert!(!head.contains("authorization"), "{head}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["stream"], &body["max_tokens"]), (&json!(true), &json!(32_000)));
}

#[tokio::test]
async fn a_refusal_is_classed_by_what_can_be_done_about_it() {
    for (status, headers, kind, message, expected) in [
        ("529 Overloaded", "", "overloaded_error", "Overloaded", (ModelErrorKind::Transient, Some(529), None)),
        (
            "429 Too Many Requests",
            "retry-after: 7\r\n",
            "rate_limit_error",
            "slow",
            (ModelErrorKind::Transient, Some(429), Some(7)),
        ),
        ("500 Internal Server Error", "", "api_error", "x", (ModelErrorKind::Transient, Some(500), None)),
        (
            "400 Bad Request",
            "",
            "invalid_request_error",
            "prompt is too long: 200001 tokens > 200000 maximum",
            (ModelErrorKind::ContextLength, Some(400), None),
        ),
        ("400 Bad Request", "", "invalid_request_error", "top_k: bad", (ModelErrorKind::Rejected, Some(400), None)),
        (
            "400 Bad Request",
            "",
            "invalid_request_error",
            "Your credit balance is too low to access the API",
            (ModelErrorKind::Rejected, Some(402), None),
        ),
        ("402 Payment Required", "", "billing_error", "x", (ModelErrorKind::Rejected, Some(402), None)),
        (
            "401 Unauthorized",
            "",
            "authentication_error",
            "invalid x-api-key",
            (ModelErrorKind::Rejected, Some(401), None),
        ),
        ("403 Forbidden", "", "permission_error", "x", (ModelErrorKind::Rejected, Some(403), None)),
        ("404 Not Found", "", "not_found_error", "model: x", (ModelErrorKind::Rejected, Some(404), None)),
        ("413 Payload Too Large", "", "request_too_large", "x", (ModelErrorKind::Rejected, Some(413), None)),
    ] {
        let failed = ask(answer(status, headers, &error(kind, message))).await.0.unwrap_err();
        let found = (failed.kind, failed.status, failed.retry_after.map(|wait| wait.as_secs()));
        // A server that failed may have worked on the request before.
        let spent = if failed.status == Some(500) { Spent::Input } else { Spent::Nothing };
        assert_eq!((found, failed.spent), (expected, spent), "{status} {message}: {failed}");
    }
}

#[tokio::test]
async fn an_answer_that_began_may_have_cost_all_of_it() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let started = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n";
    let overloaded = format!("event: error\ndata: {}\n\n", error("overloaded_error", "Overloaded"));
    for (act, kind) in [
        (format!("{head}{started}{overloaded}"), ModelErrorKind::Transient),
        (format!("{head}{started}"), ModelErrorKind::Transient),
        (format!("{head}data: {{\"choices\":[]}}\n\n"), ModelErrorKind::Transient),
        ("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<html>".to_owned(), ModelErrorKind::Rejected),
    ] {
        let failed = ask(Act::from(act.clone())).await.0.unwrap_err();
        assert_eq!(failed.kind, kind, "{act}: {failed}");
        let spent = if kind == ModelErrorKind::Rejected { Spent::Nothing } else { Spent::Unknown };
        assert_eq!(failed.spent, spent, "{act}");
    }
}

#[tokio::test]
async fn all_models_are_listed() {
    let list = json!({ "data": [{ "type": "model", "id": "claude-a", "display_name": "A" }], "has_more": false });
    let (address, requests) = testing::serve([vec![answer("200 OK", "", &list.to_string())]]).await;
    let config = config(&format!("http://{address}/v1/"));
    let model = AnthropicModel::new("claude", &config, http_client(LONG).unwrap()).unwrap();
    assert_eq!(model.list_models().await, Ok(vec!["claude-a".into()]));
    let request = requests.await.unwrap().remove(0);
    assert!(request.starts_with("GET /v1/models?limit=1000 HTTP/1.1\r\n"), "{request}");
    assert!(!format!("{model:?}").contains(KEY));
}
