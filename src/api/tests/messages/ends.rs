//! How messages end that are not answers.

use super::*;
use crate::llm::{ModelErrorKind, Spent};

const BROKEN: Say = Say::Fails(&[(ModelErrorKind::Rejected, Spent::Nothing)]);

#[tokio::test]
async fn a_failure_is_the_last_event() {
    let server = Server::new(vec![Say::Calls("So. ", vec![("echo", r#"{"n":1}"#)]), BROKEN]);
    let events = server.stream_with(&ask("Go"), &[("x-request-id", "req-7")]).await;
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["request_id"]), (&json!("error"), &json!("req-7")));
    let expected = (&json!("invalid_request_error"), &json!("provider_error"));
    assert_eq!((&last["error"]["type"], &last["error"]["code"]), expected, "clients do not repeat what a tool did");
    assert!(!types(&events).contains(&"message_stop"));
}

#[tokio::test]
async fn a_failure_without_a_stream_is_a_status() {
    let request = Server::request("/v1/messages", &ask("Go"), &[("x-request-id", "req-7")]);
    let (headers, body) = Server::new(vec![BROKEN]).read(request).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&body["type"], &body["request_id"]), (&json!("error"), &json!("req-7")));
    assert_eq!((&body["error"]["type"], &body["error"]["code"]), (&json!("api_error"), &json!("provider_error")));
    assert_eq!(headers["request-id"], "req-7");
    assert_eq!(headers["x-should-retry"], "false", "it was refused for good");
}

#[tokio::test]
async fn a_limit_ends_a_message_with_a_sentence() {
    let server = Server::new(vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)])]);
    let limited = with(ask("Go"), &json!({"agent": {"limits": {"max_iterations": 2}}}));
    let message = folded(&server.stream(&limited).await);
    assert_eq!((&message["stop_reason"], kinds(&message).last()), (&json!("max_tokens"), Some(&"text")));
    assert_eq!(text(&message), "The run stopped at its limit of model calls before the answer was complete.");
    assert_eq!(message["agent"]["stop_reason"], "max_iterations");
}

#[tokio::test]
async fn words_in_which_a_model_declines_end_as_a_refusal() {
    let message = Server::new(vec![Say::Declines(&["I will ", "not."])]).ok(&ask("Go")).await;
    assert_eq!((text(&message), &message["stop_reason"]), ("I will not.".to_owned(), &json!("refusal")));
}

#[tokio::test]
async fn errors_have_the_kinds_by_which_clients_tell_them_apart() {
    let server = Server::new(Vec::new());
    let cases = [
        (json!({"model": "nonsense"}), 404, "not_found_error", "model_not_found"),
        (json!({"temperature": 2}), 400, "invalid_request_error", "invalid_value"),
        (json!({"max_tokens": null}), 400, "invalid_request_error", "missing_field"),
        (json!({"messages": []}), 400, "invalid_request_error", "invalid_value"),
    ];
    for (more, expected, kind, code) in cases {
        let (status, error) = server.refused(&with(ask("Hi"), &more)).await;
        assert_eq!((status, &error["type"], &error["code"]), (expected, &json!(kind), &json!(code)), "{more}");
    }
    let request = Request::builder().method(Method::POST).uri("/v1/messages").body(Body::from("{")).unwrap();
    let (status, body) = send(&server.router, request).await;
    assert_eq!((status.as_u16(), &body["error"]["code"]), (415, &json!("unsupported_media_type")));
    assert_eq!(body["type"], "error", "also where the body was not read");
}

#[tokio::test]
async fn a_conversation_that_is_too_long_is_told_as_clients_know_it() {
    let server = Server::new(Vec::new());
    let long = with(ask("word ".repeat(200_000)), &json!({"agent": {"context": {"compaction": "off"}}}));
    let (status, error) = server.refused(&long).await;
    assert_eq!((status, &error["type"]), (400, &json!("invalid_request_error")), "{error}");
    assert!(error["message"].as_str().unwrap().starts_with("prompt is too long"), "{error}");
    assert_eq!(error["param"], "messages");
}
