//! Conversations, as the official client for Python and OpenAI's agents use them.

use serde_json::{Value, json};

use super::{python_program, run};
use crate::support::Reply;

async fn python(case: &str, replies: &[Reply], expected: &Value) -> Vec<Value> {
    run(python_program("conversations.py"), case, replies, "", expected).await
}

#[tokio::test]
async fn a_conversation_and_its_items() {
    let expected = json!({
        "made": ["conversation", true, {"a": "b"}],
        "added": ["function_call", "function_call_output", "message"],
        "items": [
            ["message", "user", "My name is Ada."], ["message", "user", "Hi"], ["message", "assistant", "Hello"],
            ["function_call"], ["function_call_output"], ["message", "assistant", "Done."],
        ],
        "same": true,
        "one": ["message", "assistant", "Done."],
        "not_last": [400, "invalid_value"],
        "left": true,
        "gone": [404, "item_not_found"],
        "updated": {"c": "d"},
        "deleted": ["conversation.deleted", true],
        "after": [404, "conversation_not_found"],
    });
    let requests = python("conversation", &[Reply::says("Hello")], &expected).await;
    assert_eq!(requests[0]["messages"][0]["content"], "My name is Ada.");
}

#[tokio::test]
async fn a_session_of_openais_agents() {
    let expected = json!({
        "texts": ["Hello", "Again"],
        "contents": ["Hi", "Hello", "And now?", "Again"],
        "newest": ["Again"],
        "popped": "Again",
        "left": 3,
        "many": 48,
    });
    let requests = python("session_of_agents", &[Reply::says("Hello"), Reply::says("Again")], &expected).await;
    let messages = requests[1]["messages"].as_array().into_iter().flatten();
    let contents: Vec<_> = messages.map(|message| &message["content"]).collect();
    assert_eq!(contents, ["Hi", "Hello", "And now?"]);
}
