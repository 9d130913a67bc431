//! Clients of Anthropic's Messages: what they read after a lost connection, and with their own way to send a key.

use serde_json::{Value, json};

use crate::support::sse::read_to;
use crate::support::{Gate, Proxy, Reply, TestServer, Upstream};

const ENDPOINT: &str = "/v1/messages";

fn ask(more: &Value) -> Value {
    let mut body = json!({"model": "test", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]});
    for (name, value) in more.as_object().expect("it is an object") {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_message_whose_connection_was_cut_starts_one_run() {
    let gate = Gate::new();
    let upstream =
        Upstream::start([Reply::stream().text("One ").gate(&gate).text("run.").finish("stop").usage(10, 5).done()])
            .await;
    let server = TestServer::start(&upstream.config()).await;
    let proxy = Proxy::start(server.address().parse().expect("it is an address")).await;
    let client = reqwest::Client::builder().no_proxy().build().expect("it can be built");
    let send = || {
        let request = client.post(format!("{}{ENDPOINT}", proxy.url())).header("idempotency-key", "k-1");
        request.header("content-type", "application/json").body(ask(&json!({"stream": true})).to_string()).send()
    };
    let mut first = send().await.expect("it is answered");
    let begun = read_to(&mut first, "One ").await;
    gate.reached().await;
    proxy.cut();
    drop(first);
    let mut second = send().await.expect("it is answered again");
    gate.open();
    let again = read_to(&mut second, "message_stop").await;
    assert!(again.starts_with(&begun), "it is answered from the first event: {again}");
    assert!(again.contains("run."), "{again}");
    assert_eq!(upstream.requests().len(), 1);
}

/// Anthropic's clients send their key in a header of its own.
#[tokio::test]
async fn a_message_is_its_tenants_and_its_key_is_read_from_x_api_key() {
    let upstream = Upstream::start([
        Reply::calls("weather", &json!({"city": "Oslo"})),
        Reply::says("Elsewhere."),
        Reply::says("Rain."),
    ])
    .await;
    let keys =
        "[keys.one]\nkey_env = \"KEY_ONE\"\ntenant = \"one\"\n[keys.two]\nkey_env = \"KEY_TWO\"\ntenant = \"two\"\n";
    let config = format!("{}{keys}", upstream.config());
    let server = TestServer::builder(&config).env("KEY_ONE", "lg_one").env("KEY_TWO", "lg_two").start().await;
    let client = reqwest::Client::builder().no_proxy().build().expect("it can be built");
    let post = async |key: &str, body: Value| {
        let request = client.post(format!("{}{ENDPOINT}", server.url())).header("x-api-key", key);
        let request = request.header("anthropic-version", "2023-06-01").header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.expect("it is answered");
        let status = answer.status().as_u16();
        let body: Value = serde_json::from_str(&answer.text().await.expect("it has a body")).expect("it is JSON");
        (status, body)
    };
    let (status, refused) = post("lg_nobody", ask(&json!({}))).await;
    assert_eq!((status, &refused["error"]["type"]), (401, &json!("authentication_error")));
    let tools = json!([{"name": "weather", "input_schema": {"type": "object"}}]);
    let (_, first) = post("lg_one", ask(&json!({"tools": tools}))).await;
    let call = &first["content"][0]["id"];
    let answered = json!({"tools": tools, "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "rain"}]},
    ]});
    let (_, foreign) = post("lg_two", ask(&answered)).await;
    assert_ne!(foreign["agent"]["run_id"], first["agent"]["run_id"], "others begin a run of their own");
    let (_, second) = post("lg_one", ask(&answered)).await;
    assert_eq!((&second["content"][0]["text"], &second["stop_reason"]), (&json!("Rain."), &json!("end_turn")));
    assert_eq!(second["agent"]["run_id"], first["agent"]["run_id"]);
}
