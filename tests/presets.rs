//! Servers of known manners: what they insist on is judged by scripted ones.

use serde_json::{Value, json};

use crate::support::{Reply, TestServer, Upstream};

const AGENT: &str = "/v1/agent/completions";
const CHAT: &str = "/v1/chat/completions";

/// A request in a session of these messages.
fn in_session(messages: &Value) -> Value {
    json!({"model": "test", "messages": messages, "agent": {"session_id": "s"}})
}

/// What a client that keeps its own history sends after a tool was called.
fn own_history() -> Value {
    let function = json!({"name": "get_weather", "arguments": "{}"});
    let call = json!({"id": "call_0fypS1hVX", "type": "function", "function": function});
    json!({"model": "test", "messages": [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": null, "tool_calls": [call], "weight": 0},
        {"role": "tool", "tool_call_id": "call_0fypS1hVX", "content": "no"},
    ]})
}

#[tokio::test]
async fn ids_of_calls_are_short_where_the_upstream_wants_them_so() {
    let sum = json!({"expression": "6 * 7"});
    let upstream = Upstream::start_as_mistral([
        Reply::calls("calculator", &sum),
        Reply::says("42"),
        Reply::says("Bye"),
        Reply::says("No rain"),
    ])
    .await;
    let server = TestServer::start(&upstream.config()).await;
    let answer = server.post(AGENT, &in_session(&json!([{"role": "user", "content": "What is 6 * 7?"}]))).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "42", "{answer}");
    let messages = json!([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Bye"}]);
    server.post(AGENT, &in_session(&messages)).await.ok();
    server.post(CHAT, &own_history()).await.ok();

    let id = |request: &Value| request["messages"][1]["tool_calls"][0]["id"].clone();
    let [_, second, third, own] = <[Value; 4]>::try_from(upstream.requests()).expect("there were four model calls");
    assert_eq!(second["messages"][2]["tool_call_id"], id(&second));
    assert_eq!(third["messages"][0]["role"], "system");
    assert_eq!(third["messages"][2]["tool_calls"][0]["id"], id(&second), "a call keeps its id: {third}");
    assert_eq!((&own["messages"][0]["role"], &own["messages"][2]["weight"]), (&json!("system"), &json!(0)), "{own}");
}

#[tokio::test]
async fn reasoning_goes_back_to_the_model_that_wrote_it_where_the_upstream_wants_it() {
    let think = |text: &str| Reply::stream().reasoning(text);
    let call = think("I must ").reasoning("add.").tool_call(0, "call_00", "calculator", "{\"expression\": \"6 * 7\"}");
    let deepseek = Upstream::start_as_deepseek([
        call.finish("tool_calls").usage(10, 5).done(),
        think("Now I know.").text("42").finish("stop").usage(10, 5).done(),
        Reply::says("Bye"),
        Reply::says("No rain"),
    ])
    .await;
    let server = TestServer::start(&deepseek.config()).await;
    let answer = server.post(AGENT, &in_session(&json!([{"role": "user", "content": "What is 6 * 7?"}]))).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "42", "{answer}");
    let messages = json!([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Bye"}]);
    server.post(AGENT, &in_session(&messages)).await.ok();
    server.post(CHAT, &own_history()).await.ok();

    let [_, _, third, own] = <[Value; 4]>::try_from(deepseek.requests()).expect("there were four model calls");
    let told: Vec<_> = third["messages"].as_array().into_iter().flatten().map(|m| &m["reasoning_content"]).collect();
    let (first, second, none) = (json!("I must add."), json!("Now I know."), Value::Null);
    assert_eq!(told, [&none, &none, &first, &none, &second, &none], "{third}");
    assert_eq!(own["messages"][2]["reasoning_content"], "", "a client cannot know of it: {own}");
}
