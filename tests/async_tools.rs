//! Tools whose services answer later, at the door: over `kill -9`, another replica, and without an API key.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::http::Request;
use crate::support::redis::RedisServer;
use crate::support::sse::outline;
use crate::support::{Answer, Reply, TestServer, ToolServer, Upstream, within};

const SETTINGS: &str = r#"
    [server]
    public_url = "http://agents.test/base"

    [keys.web]
    tenant = "acme"
    key_env = "WEB"

    [agents.default]
    tools = ["render", "note"]
"#;

/// A server whose tool `render` may be answered later.
async fn server(upstream: &Upstream, tools: &ToolServer, store: Option<&RedisServer>) -> TestServer {
    let later = "async_timeout = \"10m\"\n";
    let config =
        [&upstream.config(), &tools.config("render", "write"), later, &tools.config("note", "read"), SETTINGS].concat();
    let mut builder = TestServer::builder(&config).env("WEB", "lg_web");
    if let Some(redis) = store {
        builder = builder.store(&redis.url());
    }
    let mut server = builder.start().await;
    server.use_key("lg_web");
    server
}

fn accepted() -> Reply {
    Reply::json(202, &json!({"job": 7}))
}

fn ask(stream: bool) -> Value {
    json!({"model": "test", "stream": stream, "messages": [{"role": "user", "content": "Render it"}]})
}

/// Sends an answer to a call, as its service does: with nothing but what the call's request said.
async fn answer(server: &TestServer, asked: &Request, token: &str, body: &str) -> Answer {
    let url = &asked.headers["x-loopgate-callback-url"];
    let path = url.strip_prefix("http://agents.test/base").unwrap_or_else(|| panic!("{url}"));
    let request = reqwest::Client::new().post(format!("{}{path}", server.url())).bearer_auth(token);
    server.send(request.header("content-type", "text/plain").body(body.to_owned())).await
}

fn token(asked: &Request) -> &str {
    &asked.headers["x-loopgate-callback-token"]
}

#[tokio::test]
async fn a_run_waits_over_a_kill_for_what_a_service_answers_to_another_replica() {
    let redis = crate::support::redis::durable().await;
    let upstream = Upstream::start([Reply::calls("render", &json!({"note": "x"})), Reply::says("Here it is.")]).await;
    let tools = ToolServer::start([accepted()]).await;
    let (mut one, two) = (server(&upstream, &tools, Some(&redis)).await, server(&upstream, &tools, Some(&redis)).await);
    let mut stream = one.stream("/v1/agent/completions", &ask(true)).await;
    let before = stream.until(|frame| frame.name == "run.requires_action").await;
    assert!(outline(&before).ends_with("tool.call tool.pending run.requires_action"), "{}", outline(&before));
    let waits = before.last().unwrap().json();
    let required = &waits["agent"]["required_action"];
    assert_eq!((&waits["agent"]["stop_reason"], &required["type"]), (&json!("tool_pending"), &json!("tool_pending")));
    assert!(required["calls"][0]["expires_ms"].is_u64(), "{required}");
    let run = before[0].json()["run_id"].as_str().unwrap().to_owned();
    one.kill9().await;

    let asked = tools.called(1).await.remove(0);
    assert_eq!(asked.headers["x-loopgate-callback-timeout-ms"], "600000");
    for (token, status, code) in [("wrong", 404, "call_not_found"), (token(&asked), 204, "")] {
        let told = answer(&two, &asked, token, "a picture").await;
        assert_eq!((told.status, told.body["error"]["code"].as_str().unwrap_or_default()), (status, code));
    }
    let events = two.events(&run, before.last().unwrap().id.unwrap()).await;
    let rest = within("the end of the run", events.rest()).await;
    assert_eq!(outline(&rest), "run.resumed tool.result step.completed step.started text step.completed run.completed");
    let told = upstream.requests().pop().unwrap();
    assert_eq!(told["messages"].as_array().unwrap().last().unwrap()["content"], "a picture");
    assert_eq!(tools.calls().len(), 1, "the call is made once");

    one.restart().await;
    let again = answer(&one, &asked, token(&asked), "a picture").await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (204, "true"));
    let other = answer(&one, &asked, token(&asked), "another").await;
    assert_eq!((other.status, &other.body["error"]["code"]), (409, &json!("run_not_waiting")));
    let unsigned = one.send(reqwest::Client::new().post(format!("{}/v1/tool-results/call_x", one.url()))).await;
    assert_eq!((unsigned.status, &unsigned.body["error"]["code"]), (401, &json!("invalid_api_key")));
}

#[tokio::test]
async fn a_chat_client_gets_its_answer_once_the_service_has_answered() {
    for stream in [false, true] {
        let upstream =
            Upstream::start([Reply::calls("render", &json!({"note": "x"})), Reply::says("Here it is.")]).await;
        let tools = ToolServer::start([accepted()]).await;
        let server = server(&upstream, &tools, None).await;
        let request = server.json("/v1/chat/completions", &ask(stream));
        let service = async {
            let asked = tools.called(1).await.remove(0);
            while list(&server, "requires_action").await.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(list(&server, "requires_action").await[0]["stop_reason"], "tool_pending");
            assert_eq!(answer(&server, &asked, token(&asked), "{\"url\":\"x\"}").await.status, 204);
        };
        let (response, ()) = tokio::join!(server.respond(request), service);
        let text = within("the answer", response.text()).await.unwrap();
        assert!(text.contains("Here it is."), "{text}");
        assert!(!stream || text.trim_end().ends_with("data: [DONE]"), "{text}");
        assert!(text.contains("\"finish_reason\":\"stop\""), "{text}");
    }
}

async fn list(server: &TestServer, status: &str) -> Vec<Value> {
    let listed = server.get(&format!("/v1/runs?status={status}")).await.ok();
    listed["data"].as_array().cloned().unwrap_or_default()
}

/// The service answers while the server is dead between 202 and its record, or before; its token holds for the call however
/// often that is made.
#[tokio::test]
async fn a_call_that_is_made_again_after_a_kill_has_the_same_token_and_key() {
    let upstream = Upstream::start([Reply::calls("render", &json!({"note": "x"})), Reply::says("Here it is.")]).await;
    let tools = ToolServer::start([Reply::plain("").stall(), accepted()]).await;
    let config = [
        &upstream.config(),
        &tools.config("render", "idempotent"),
        "async_timeout = \"10m\"\n[server]\npublic_url = \"http://agents.test/base\"\n[agents.default]\ntools = [\"render\"]\n",
    ]
    .concat();
    let mut server = TestServer::start(&config).await;
    let mut stream = server.stream("/v1/agent/completions", &ask(true)).await;
    let before = stream.until(|frame| frame.name == "tool.call").await;
    let run = before[0].json()["run_id"].as_str().unwrap().to_owned();
    tools.called(1).await;
    server.kill9().await;
    server.restart().await;
    let asked = tools.called(2).await;
    for header in ["idempotency-key", "x-loopgate-callback-url", "x-loopgate-callback-token"] {
        assert_eq!(asked[0].headers[header], asked[1].headers[header], "{header}");
    }
    assert_eq!(answer(&server, &asked[0], token(&asked[0]), "7").await.status, 204);
    let rest = within("the end of the run", async { server.events(&run, 0).await.rest().await }).await;
    assert_eq!(rest.iter().filter(|frame| frame.name == "tool.result").count(), 1);
    assert!(rest.iter().any(|frame| frame.name == "run.completed"), "{}", outline(&rest));
}
