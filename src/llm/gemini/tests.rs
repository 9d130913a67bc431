//! The model against real sockets.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::config::HttpUpstream;
use crate::llm::http::http_client;
use crate::llm::testing::{answer, finish, http_upstream, traced_request};
use crate::llm::{Extent, ModelTurn, Spent};
use crate::net::testing::{self, Act};
use crate::types::TurnEnd;

const KEY: &str = "AIza-very-secret";
const LONG: Duration = Duration::from_secs(20);

fn model(base_url: &str, ask_in_one_piece: bool) -> GeminiModel {
    let http = http_upstream(base_url, KEY, LONG);
    GeminiModel::new("google", &GeminiUpstream { http, ask_in_one_piece }, http_client(LONG).unwrap()).unwrap()
}

fn request(model: &str) -> ModelRequest {
    ModelRequest { in_one_piece: true, ..traced_request(model) }
}

/// Asks an upstream that plays one act: how the call ended, and what was asked.
async fn ask(act: Act, model_name: &str, ask_in_one_piece: bool) -> (Result<ModelTurn, ModelError>, String) {
    let (address, requests) = testing::serve([vec![act]]).await;
    let model = model(&format!("http://{address}/v1beta/"), ask_in_one_piece);
    let turn = finish(model.stream(request(model_name))).await;
    (turn, requests.await.unwrap().remove(0))
}

fn error(code: u16, status: &str, message: &str, details: &Value) -> String {
    json!({ "error": { "code": code, "message": message, "status": status, "details": details } }).to_string()
}

#[tokio::test]
async fn a_request_bears_its_key_as_a_header_and_goes_to_the_model_that_it_names() {
    let whole = json!({ "candidates": [{ "content": { "parts": [{ "text": "hi" }], "role": "model" }, "finishReason": "STOP" }],
        "usageMetadata": { "promptTokenCount": 3, "candidatesTokenCount": 1 } })
    .to_string();
    let streamed = format!("data: {whole}\r\n\r\n");
    for (name, in_one_piece, path) in [
        ("gemini-2.5-flash", false, "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
        ("models/gemini-2.5-flash", true, "/v1beta/models/gemini-2.5-flash:generateContent"),
        ("tunedModels/mine", false, "/v1beta/tunedModels/mine:streamGenerateContent?alt=sse"),
        ("../x?key=y#z", true, "/v1beta/models/..%2Fx%3Fkey=y%23z:generateContent"),
    ] {
        let act = if in_one_piece {
            answer("200 OK", "content-type: application/json; charset=UTF-8\r\n", &whole)
        } else {
            answer("200 OK", "content-type: text/event-stream\r\n", &streamed)
        };
        let (turn, request) = ask(act, name, in_one_piece).await;
        let turn = turn.unwrap();
        assert_eq!((turn.text().as_ref(), turn.end.clone()), ("hi", TurnEnd::Stop));
        assert_eq!(turn.usage.map(|usage| (usage.prompt_tokens, usage.completion_tokens)), Some((3, 1)));
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{head}");
        for header in [
            "x-goog-api-key: AIza-very-secret",
            "x-request-id: req-7",
            "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert!(head.contains(header), "{header} is missing in {head}");
        }
        assert!(!head.contains("authorization") && head.matches(KEY).count() == 1, "{head}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["contents"][0]["parts"][0]["text"], "hi");
    }
}

#[tokio::test]
async fn a_gateway_that_gave_up_waiting_for_a_whole_answer_may_have_cost_all_of_it() {
    let failed = async |in_one_piece| {
        let error = ask(answer("504 Gateway Timeout", "", ""), "gemini-2.5-flash", in_one_piece).await.0.unwrap_err();
        (error.kind, error.spent)
    };
    assert_eq!(failed(true).await, (ModelErrorKind::Timeout, Spent::Unknown));
    assert_eq!(failed(false).await, (ModelErrorKind::Transient, Spent::Input));
}

#[tokio::test]
async fn a_refusal_is_classed_by_what_can_be_done_about_it() {
    use ModelErrorKind::{ContextLength, Rejected, Transient};
    let none = json!([]);
    let wait = json!([{ "@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [] },
        { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s" }]);
    let key = json!([{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com" }]);
    let full = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).";
    let (money, spent) =
        ("Your prepayment credits are depleted.", "Your project has exceeded its monthly spending cap.");
    for (code, status, message, details, expected) in [
        (503, "UNAVAILABLE", "The model is overloaded. Please try again later.", &none, (Transient, Some(503), None)),
        (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", &wait, (Transient, Some(429), Some(7))),
        (429, "RESOURCE_EXHAUSTED", money, &none, (Rejected, Some(429), None)),
        (429, "RESOURCE_EXHAUSTED", spent, &none, (Rejected, Some(429), None)),
        (500, "INTERNAL", "x", &none, (Transient, Some(500), None)),
        (504, "DEADLINE_EXCEEDED", "x", &none, (Transient, Some(504), None)),
        (400, "INVALID_ARGUMENT", full, &none, (ContextLength, Some(400), None)),
        (400, "INVALID_ARGUMENT", "Invalid value at 'contents'", &none, (Rejected, Some(400), None)),
        (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", &key, (Rejected, Some(401), None)),
        (400, "FAILED_PRECONDITION", "User location is not supported", &none, (Rejected, Some(403), None)),
        (403, "PERMISSION_DENIED", "x", &none, (Rejected, Some(403), None)),
        (404, "NOT_FOUND", "models/x is not found", &none, (Rejected, Some(404), None)),
    ] {
        let act = answer(
            &format!("{code} Sorry"),
            "content-type: application/json\r\n",
            &error(code, status, message, details),
        );
        let failed = ask(act, "gemini-2.5-flash", false).await.0.unwrap_err();
        let found = (failed.kind, failed.status, failed.retry_after.map(|wait| wait.as_secs()));
        // A server that failed may have worked on the request before.
        let spent = if matches!(code, 500 | 504) { Spent::Input } else { Spent::Nothing };
        assert_eq!((found, failed.spent), (expected, spent), "{code} {message}: {failed}");
        assert!(code == 403 || failed.message.contains(message), "the upstream's own words are told: {failed}");
    }
}

#[tokio::test]
async fn an_answer_that_began_may_have_cost_all_of_it() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let begun = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Half\"}]}}]}\r\n\r\n";
    let overloaded = format!("data: {}\r\n\r\n", error(503, "UNAVAILABLE", "overloaded", &json!([])));
    let malformed = "data: {\"candidates\":[{\"finishReason\":\"MALFORMED_FUNCTION_CALL\"}]}\r\n\r\n";
    for (act, kind) in [
        (format!("{head}{begun}{overloaded}"), ModelErrorKind::Transient),
        (format!("{head}{begun}"), ModelErrorKind::Transient),
        (format!("{head}{malformed}"), ModelErrorKind::Transient),
        (format!("{head}data: {{\"candidates\":7}}\n\n"), ModelErrorKind::Transient),
        ("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<html>".to_owned(), ModelErrorKind::Rejected),
    ] {
        let failed = ask(Act::from(act.clone()), "m", false).await.0.unwrap_err();
        assert_eq!(failed.kind, kind, "{act}: {failed}");
        let spent = if kind == ModelErrorKind::Rejected { Spent::Nothing } else { Spent::Unknown };
        assert_eq!(failed.spent, spent, "{act}");
        let extent = if act.contains("MALFORMED") { Extent::Answer } else { Extent::Model };
        assert_eq!(failed.extent, extent, "what the model wrote is no fault of the server: {act}");
    }
}

/// A server that writes a reason with every chunk, or before the model has begun, has not said that its answer is whole.
#[tokio::test]
async fn a_stream_that_breaks_off_or_falls_silent_after_a_reason_is_whole_only_if_the_answer_was_counted() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let ended = |parts: Value, usage: Value| {
        let candidate = json!({ "content": { "parts": parts }, "finishReason": "STOP" });
        format!("{head}data: {}\r\n\r\n", json!({ "candidates": [candidate], "usageMetadata": usage }))
    };
    let prompt = json!({ "promptTokenCount": 3 });
    let counted = json!({ "promptTokenCount": 3, "candidatesTokenCount": 5 });
    let text = json!([{ "text": "The total is 4" }]);
    let call = json!([{ "functionCall": { "name": "f", "args": {} } }]);
    for (begun, is_whole) in [
        (ended(text.clone(), prompt.clone()), false),
        (ended(call, prompt.clone()), false),
        (ended(json!([]), prompt), false),
        (ended(text, counted), true),
    ] {
        for act in [Act::Reset(begun.clone()), Act::Stall(begun.clone())] {
            let (address, _requests) = testing::serve([vec![act.clone()]]).await;
            let http = http_upstream(&format!("http://{address}/v1beta"), KEY, LONG);
            let http = HttpUpstream { idle_timeout: Duration::from_millis(100), ..http };
            let config = GeminiUpstream { http, ask_in_one_piece: false };
            let model = GeminiModel::new("google", &config, http_client(LONG).unwrap()).unwrap();
            let turn = finish(model.stream(request("m"))).await;
            assert_eq!(turn.is_ok(), is_whole, "{act:?}: {turn:?}");
            assert!(turn.is_ok_and(|turn| turn.text() == "The total is 4") == is_whole);
        }
    }
}

#[tokio::test]
async fn a_model_whose_name_no_address_can_hold_is_refused() {
    let model = model("http://127.0.0.1:1/v1beta", false);
    let failed = finish(model.stream(request(&"x".repeat(70_000)))).await.unwrap_err();
    assert_eq!((failed.kind, failed.spent), (ModelErrorKind::Rejected, Spent::Nothing), "{failed}");
}

#[tokio::test]
async fn all_models_are_listed() {
    let list = json!({ "models": [{ "name": "models/gemini-a", "supportedGenerationMethods": ["generateContent"] }] });
    let (address, requests) = testing::serve([vec![answer("200 OK", "", &list.to_string())]]).await;
    let model = model(&format!("http://{address}/v1beta"), false);
    assert_eq!(model.list_models().await, Ok(vec!["gemini-a".into()]));
    let request = requests.await.unwrap().remove(0);
    assert!(request.starts_with("GET /v1beta/models?pageSize=1000 HTTP/1.1\r\n"), "{request}");
    assert!(!format!("{model:?}").contains(KEY));
}
