//! The model against real sockets.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::llm::http::http_client;
use crate::llm::testing::{answer, finish, http_upstream, traced_request};
use crate::llm::{ModelErrorKind, ModelTurn, Spent};
use crate::net::testing::{self, Act};
use crate::types::TurnEnd;

const KEY: &str = "sk-very-secret";
const LONG: Duration = Duration::from_secs(20);

fn config(base_url: &str) -> ResponsesUpstream {
    let http = http_upstream(base_url, KEY, LONG);
    ResponsesUpstream {
        http,
        pass_unknown_members: true,
        reasoning_summary: None,
        encrypted_reasoning: None,
        provider: None,
        key_header: None,
    }
}

/// Asks an upstream that plays one act: how the call ended, and what was asked.
async fn ask(act: Act) -> (Result<ModelTurn, ModelError>, String) {
    let (address, requests) = testing::serve([vec![act]]).await;
    let model = ResponsesModel::new("openai", &config(&format!("http://{address}/v1")), http_client(LONG).unwrap());
    let turn = finish(model.unwrap().stream(traced_request("gpt-5"))).await;
    (turn, requests.await.unwrap().remove(0))
}

#[tokio::test]
async fn a_request_bears_its_key_and_a_whole_answer_is_read_as_well() {
    let content = json!([{ "type": "output_text", "text": "hi" }]);
    let body = json!({ "object": "response", "status": "completed", "usage": { "input_tokens": 3, "output_tokens": 1 },
        "output": [{ "type": "message", "role": "assistant", "content": content }] });
    let (turn, request) = ask(answer("200 OK", "content-type: application/json\r\n", &body.to_string())).await;
    let turn = turn.unwrap();
    assert_eq!((turn.text().as_ref(), turn.end.clone()), ("hi", TurnEnd::Stop));
    assert_eq!(turn.usage.map(|usage| (usage.prompt_tokens, usage.completion_tokens)), Some((3, 1)));
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/responses HTTP/1.1\r\n"), "{head}");
    for header in [
        "authorization: Bearer sk-very-secret",
        "x-request-id: req-7",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ] {
        assert!(head.contains(header), "{header} is missing in {head}");
    }
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["stream"], body.get("stream_options")), (&json!(true), None));
}

#[tokio::test]
async fn a_refusal_is_classed_by_what_can_be_done_about_it() {
    for (status, headers, code, message, expected) in [
        (
            "429 Slow",
            "retry-after: 7\r\n",
            "rate_limit_exceeded",
            "Slow",
            (ModelErrorKind::Transient, Some(429), Some(7)),
        ),
        ("429 Money", "", "insufficient_quota", "No money", (ModelErrorKind::Rejected, Some(429), None)),
        ("500 Oh", "", "server_error", "Oh", (ModelErrorKind::Transient, Some(500), None)),
        ("401 Key", "", "invalid_api_key", "No", (ModelErrorKind::Rejected, Some(401), None)),
        ("404 None", "", "model_not_found", "No such model", (ModelErrorKind::Rejected, Some(404), None)),
        ("400 Bad", "", "unsupported_parameter", "No `temperature`", (ModelErrorKind::Rejected, Some(400), None)),
        ("400 Bad", "", "context_length_exceeded", "Too long", (ModelErrorKind::ContextLength, Some(400), None)),
    ] {
        let error = json!({ "error": { "message": message, "type": "x", "param": null, "code": code } });
        let (failed, _) = ask(answer(status, headers, &error.to_string())).await;
        let failed = failed.unwrap_err();
        let wait = failed.retry_after.map(|wait| wait.as_secs());
        assert_eq!((failed.kind, failed.status, wait), expected, "{status} {code}: {failed}");
        assert!(code == "invalid_api_key" || failed.message.contains(message), "{failed}");
        assert!(!failed.message.contains(KEY), "{failed}");
    }
}

#[tokio::test]
async fn an_answer_that_fails_in_its_middle_may_have_cost_all_of_it() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let created = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{}}\n\n";
    let error = json!({ "code": "server_error", "message": "Oh" });
    let response = json!({ "status": "failed", "error": error });
    let failed = json!({ "type": "response.failed", "response": response });
    for (act, kind) in [
        (format!("{head}{created}data: {failed}\n\n"), ModelErrorKind::Transient),
        (format!("{head}{created}"), ModelErrorKind::Transient),
        (format!("{head}data: {{\"type\":\"response.completed\"}}\n\n"), ModelErrorKind::Transient),
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
    let list = json!({ "object": "list", "data": [{ "id": "gpt-5", "object": "model" }] });
    let (address, requests) = testing::serve([vec![answer("200 OK", "", &list.to_string())]]).await;
    let config = config(&format!("http://{address}/v1/"));
    let model = ResponsesModel::new("openai", &config, http_client(LONG).unwrap()).unwrap();
    assert_eq!(model.list_models().await, Ok(vec!["gpt-5".into()]));
    let request = requests.await.unwrap().remove(0);
    assert!(request.starts_with("GET /v1/models HTTP/1.1\r\n"), "{request}");
    assert!(!format!("{model:?}").contains(KEY));
}
