//! Clients of OpenAI's Responses: what they read after a crash, after a lost connection, and of others.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::support::sse::read_to;
use crate::support::{Gate, Proxy, Reply, TestServer, ToolServer, Upstream};

const ENDPOINT: &str = "/v1/responses";

fn ask(more: &Value) -> Value {
    let mut body = json!({"model": "test", "input": "Hi"});
    for (name, value) in more.as_object().expect("it is an object") {
        body[name] = value.clone();
    }
    body
}

/// The events of a text that has whole frames.
fn events(text: &str) -> Vec<Value> {
    let data = text.split("\n\n").filter_map(|frame| frame.split_once("data: ").map(|(_, data)| data));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

async fn streamed(server: &TestServer, path: &str) -> Response {
    server.respond(server.request(Method::GET, path)).await
}

/// The client goes on behind the last number that it has, and nothing of what it has seen has changed.
#[tokio::test]
async fn a_response_goes_on_after_a_kill_where_its_reader_was() {
    let gate = Gate::new();
    let tools = ToolServer::start([]).await;
    let upstream = Upstream::start([
        Reply::calls("note", &json!({"note": "x"})),
        Reply::stream().text("Half ").gate(&gate).text("lost").finish("stop").usage(10, 5).done(),
        Reply::says("Whole."),
    ])
    .await;
    let agent = "[agents.default]\ntools = [\"note\"]\n";
    let config = format!("{}{}{agent}", upstream.config(), tools.config("note", "write"));
    let mut server = TestServer::start(&config).await;
    let body = ask(&json!({"stream": true, "agent": {"on_disconnect": "continue"}}));
    let mut response = server.respond(server.json(ENDPOINT, &body)).await;
    let before = events(&read_to(&mut response, "Half").await);
    gate.reached().await;
    server.kill9().await;
    drop(response);
    let id = before[0]["response"]["id"].as_str().expect("the first event has the id").to_owned();
    let last = before.last().expect("there are events")["sequence_number"].as_u64().expect("it is a number");
    server.restart().await;

    let path = format!("{ENDPOINT}/{id}?stream=true");
    let rest = read_to(&mut streamed(&server, &format!("{path}&starting_after={last}")).await, "[DONE]").await;
    let all: Vec<_> = before.into_iter().chain(events(&rest)).collect();
    let numbers: Vec<_> = all.iter().filter_map(|event| event["sequence_number"].as_u64()).collect();
    assert_eq!(numbers, (0..all.len() as u64).collect::<Vec<_>>());
    assert_eq!(
        all,
        events(&read_to(&mut streamed(&server, &path).await, "[DONE]").await),
        "it reads the same from its begin"
    );
    let ended = &all.last().expect("there are events")["response"];
    assert_eq!(ended["status"], "completed");
    let items = ended["output"].as_array().expect("it has output");
    let kinds: Vec<_> = items.iter().map(|item| item["type"].as_str().unwrap_or_default()).collect();
    assert_eq!(kinds, ["mcp_call", "message"], "what was half said is void");
    assert_eq!(items[1]["content"][0]["text"], "Whole.");
    assert_eq!(tools.calls().len(), 1);

    // A response is continued after its server was killed, too.
    server.kill9().await;
    server.restart().await;
    upstream.then(Reply::says("More."));
    let next = server.post(ENDPOINT, &ask(&json!({"previous_response_id": id}))).await.ok();
    assert_eq!(next["output"][0]["content"][0]["text"], "More.");
    let asked = upstream.requests().pop().expect("it was asked");
    assert_eq!(asked["messages"][3]["content"], "Whole.", "{asked}");
}

#[tokio::test]
async fn a_request_whose_connection_was_cut_starts_one_run() {
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
    let begun = events(&read_to(&mut first, "One").await);
    gate.reached().await;
    proxy.cut();
    drop(first);
    let mut second = send().await.expect("it is answered again");
    gate.open();
    let again = events(&read_to(&mut second, "[DONE]").await);
    assert_eq!(again[..begun.len()], begun[..], "it is answered from the first event");
    assert_eq!(again.last().expect("there are events")["response"]["output"][0]["content"][0]["text"], "One run.");
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_response_is_its_tenants() {
    let upstream = Upstream::start([Reply::says("Hello"), Reply::says("Again")]).await;
    let keys =
        "[keys.one]\nkey_env = \"KEY_ONE\"\ntenant = \"one\"\n[keys.two]\nkey_env = \"KEY_TWO\"\ntenant = \"two\"\n";
    let config = format!("{}{keys}", upstream.config());
    let builder = TestServer::builder(&config).env("KEY_ONE", "lg_one").env("KEY_TWO", "lg_two");
    let mut server = builder.start().await;
    server.use_key("lg_one");
    let first = server.post(ENDPOINT, &ask(&json!({}))).await.ok();
    let id = first["id"].as_str().expect("it has an id");
    server.use_key("lg_two");
    for (method, path) in [
        (Method::GET, format!("{ENDPOINT}/{id}")),
        (Method::GET, format!("{ENDPOINT}/{id}?stream=true")),
        (Method::GET, format!("{ENDPOINT}/{id}/input_items")),
        (Method::POST, format!("{ENDPOINT}/{id}/cancel")),
        (Method::DELETE, format!("{ENDPOINT}/{id}")),
    ] {
        let answer = server.send(server.request(method, &path)).await;
        assert_eq!((answer.status, answer.code()), (404, "response_not_found"), "{path}");
    }
    let named = json!([{"type": "item_reference", "id": first["output"][0]["id"]}, {"role": "user", "content": "?"}]);
    for (more, code) in [
        (json!({"previous_response_id": id}), "previous_response_not_found"),
        (json!({"input": named}), "item_not_found"),
    ] {
        assert_eq!(server.post(ENDPOINT, &ask(&more)).await.code(), code);
    }
    server.use_key("lg_one");
    assert_eq!(server.get(&format!("{ENDPOINT}/{id}")).await.ok()["output"], first["output"]);
}

/// Who may only ask decides about no call, by whichever endpoint.
#[tokio::test]
async fn only_a_key_that_may_approve_decides_in_a_response() {
    let upstream =
        Upstream::start([Reply::calls("calculator", &json!({"expression": "6 * 7"})), Reply::says("42")]).await;
    let keys = "[keys.asks]\nkey_env = \"ASKS\"\ntenant = \"acme\"\nscopes = [\"run\", \"read\"]\n[keys.approves]\nkey_env = \"APPROVES\"\ntenant = \"acme\"\n";
    let config = format!("{}{keys}", upstream.config());
    let mut server = TestServer::builder(&config).env("ASKS", "lg_asks").env("APPROVES", "lg_approves").start().await;
    server.use_key("lg_asks");
    let gated = json!([{"type": "mcp", "server_label": "loopgate", "require_approval": "always"}]);
    let first = server.post(ENDPOINT, &ask(&json!({"tools": gated}))).await.ok();
    let request = &first["output"][0];
    assert_eq!(request["type"], "mcp_approval_request", "{first}");
    let approval = json!([{"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": true}]);
    let decision = ask(&json!({"previous_response_id": first["id"], "input": approval, "tools": gated}));
    let refused = server.post(ENDPOINT, &decision).await;
    assert_eq!((refused.status, refused.code()), (403, "forbidden"));
    server.use_key("lg_approves");
    let second = server.post(ENDPOINT, &decision).await.ok();
    assert_eq!(second["output"][1]["content"][0]["text"], "42", "{second}");
}
