//! How responses end that are not answers.

use super::*;
use crate::llm::{ModelErrorKind, Spent};

const BROKEN: Say = Say::Fails(&[(ModelErrorKind::Rejected, Spent::Nothing)]);

#[tokio::test]
async fn a_failure_is_an_error_frame_and_a_failed_response() {
    let server = Server::new(vec![Say::Calls("So. ", vec![("echo", r#"{"n":1}"#)]), BROKEN]);
    let frames = server.stream(&ask("Go")).await;
    assert_eq!(types(&frames)[frames.len() - 2..], ["error", "failed"]);
    let error = &frames[frames.len() - 2];
    assert_eq!((&error["code"], &error["error"]["code"]), (&json!("invalid_prompt"), &json!("invalid_prompt")));
    assert_eq!(error["message"], error["error"]["message"]);
    let response = ended(&frames);
    assert_eq!((&response["status"], &response["error"]["message"]), (&json!("failed"), &error["message"]));
    assert_eq!(kinds(response), ["message", "mcp_call"], "what was done is told");
    assert_eq!(server.get(&response["id"]).await["status"], "failed");
}

#[tokio::test]
async fn a_failure_without_a_stream_is_a_status() {
    let server = Server::new(vec![BROKEN]);
    let (status, body) = server.post(&ask("Go")).await;
    assert!(status.as_u16() >= 400 && body["error"]["code"].is_string(), "{status}: {body}");
}

#[tokio::test]
async fn a_limit_ends_a_response_with_a_sentence() {
    let server = Server::new(vec![Say::Calls("", vec![("echo", r#"{"n":1}"#)])]);
    let limited = with(ask("Go"), &json!({"agent": {"limits": {"max_iterations": 2}}}));
    let frames = server.stream(&limited).await;
    assert_eq!(types(&frames).last(), Some(&"incomplete"));
    let response = ended(&frames);
    assert_eq!(
        (&response["status"], &response["incomplete_details"]),
        (&json!("incomplete"), &json!({"reason": "max_output_tokens"}))
    );
    assert_eq!(response["agent"]["stop_reason"], "max_iterations");
    assert_eq!(response["output"].as_array().unwrap().last().unwrap()["phase"], "final_answer");
    assert_eq!(text(response), "The run stopped at its limit of model calls before the answer was complete.");
    let calls = with(ask("Go"), &json!({"max_tool_calls": 1}));
    let response = server.ok(&calls).await;
    assert_eq!((&response["status"], &response["max_tool_calls"]), (&json!("incomplete"), &json!(1)));
}

#[tokio::test]
async fn a_call_that_was_cut_short_is_incomplete() {
    let server = Server::new(vec![Say::Calls("", vec![("hang", "{}")])]);
    let begun = server.ok(&with(ask("Go"), &json!({"background": true}))).await;
    let id = begun["id"].as_str().unwrap();
    while server.agent.fences.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    let (_, stopped) = server.call(Method::POST, &format!("/v1/responses/{id}/cancel")).await;
    assert_eq!(
        (&stopped["status"], &stopped["incomplete_details"]["reason"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
    let frames = server.replay(id, None).await;
    assert_eq!(types(&frames).last(), Some(&"incomplete"));
    let call = &ended(&frames)["output"][0];
    assert_ne!(call["status"], "completed", "{call}");
}

#[tokio::test]
async fn json_is_all_that_is_said_where_json_is_asked_for() {
    let calls = Say::Calls("Let me see. ", vec![("echo", r#"{"n":1}"#)]);
    let server = Server::new(vec![calls, Say::Text(&["{\"n\"", ":1}"])]);
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let format = json!({"type": "json_schema", "name": "number", "schema": schema, "strict": true});
    let frames = server.stream(&with(ask("Go"), &json!({"text": {"format": format}}))).await;
    let response = ended(&frames);
    assert_eq!((text(response), &response["text"]["format"]), ("{\"n\":1}".to_owned(), &format));
    let sampling = server.agent.model.requests.lock()[0].sampling.clone();
    assert!(sampling.asks_for_json(), "{sampling:?}");
}
