//! Conversations that cannot be.

use serde_json::{Value, json};

use super::{Allowed, ENDPOINTS, House, complaint, nothing_in, valid, with};

#[tokio::test]
async fn that_openai_would_refuse_are_refused() {
    let user = json!({"role": "user", "content": "Hi"});
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let calls =
        |ids: &[&str]| json!({"role": "assistant", "tool_calls": ids.iter().map(|id| call(id)).collect::<Value>()});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
    let value: Allowed = &[(400, "invalid_value")];
    let missing: Allowed = &[(400, "missing_field")];
    let either: Allowed = &[(400, "invalid_value"), (400, "missing_field")];
    let mut absent = valid();
    absent.as_object_mut().expect("it is one").remove("messages");
    let rows: Vec<(Value, Allowed)> = vec![
        (absent, missing),
        (with("messages", json!([])), value),
        (with("messages", "Hi"), value),
        (with("messages", Value::Null), either),
        (with("messages", json!([{"role": "wizard", "content": "Hi"}])), value),
        (with("messages", json!([{"content": "Hi"}])), missing),
        (with("messages", json!([{"role": "user", "content": 7}])), value),
        (with("messages", json!([{"role": "user", "content": null}])), either),
        (with("messages", json!([{"role": "user"}])), either),
        (with("messages", json!([{"role": "user", "content": [{"type": "smell"}]}])), value),
        (with("messages", json!([{"role": "user", "content": [{"type": "text"}]}])), either),
        (with("messages", json!(["Hi"])), value),
        (with("messages", json!([user, result("a")])), value),
        (with("messages", json!([user, calls(&["a"]), result("b")])), value),
        (with("messages", json!([user, calls(&["a"]), result("a"), result("a")])), value),
        (with("messages", json!([user, calls(&["a"]), {"role": "tool", "content": "x"}])), either),
        (with("messages", json!([user, calls(&["a"]), user])), value),
        (with("messages", json!([user, calls(&["a", "b"]), result("a"), user])), value),
        (with("messages", json!([user, calls(&["a", "a"]), result("a")])), value),
        (with("messages", json!([user, {"role": "assistant", "tool_calls": [{"id": "a"}]}])), either),
    ];
    let house = House::build("").await;
    let mut complaints = Vec::new();
    for (body, allowed) in rows {
        for endpoint in ENDPOINTS {
            complaints.extend(complaint(&body.to_string(), &house.server.post(endpoint, &body).await, allowed));
        }
    }
    nothing_in(&complaints);
    house.still_stands().await;
}
