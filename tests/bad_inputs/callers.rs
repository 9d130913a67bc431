//! Keys and what they may do.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{Allowed, ENDPOINTS, check, valid, with_agent};
use crate::support::{Reply, TestServer, Upstream};

const KEYS: &str = "[keys.a]\nkey_env = \"KEY_A\"\n[keys.b]\nkey_env = \"KEY_B\"\n";
const BAD_KEY: Allowed = &[(401, "invalid_api_key")];

async fn house(upstream: &Upstream, more_config: &str) -> TestServer {
    let config = format!("{}{more_config}", upstream.config());
    TestServer::builder(&config).env("KEY_A", "lg_aaaa").env("KEY_B", "lg_bbbb").start().await
}

#[tokio::test]
async fn without_a_valid_key_are_refused() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let server = house(&upstream, KEYS).await;
    let guarded: Vec<(Method, &str)> = vec![
        (Method::POST, ENDPOINTS[0]),
        (Method::POST, ENDPOINTS[1]),
        (Method::GET, "/v1/models"),
        (Method::GET, "/v1/tools"),
        (Method::GET, "/v1/runs"),
        (Method::GET, "/v1/runs/run_x/events"),
        (Method::GET, "/v1/sessions"),
        (Method::DELETE, "/v1/sessions/s"),
    ];
    for (method, path) in guarded {
        let answer = server.send(server.request(method, path).body(valid().to_string())).await;
        check(path, &answer, BAD_KEY);
    }
    let long = "x".repeat(10 << 10);
    let authorizations = [
        "Bearer",
        "Bearer ",
        "Bearer lg_aaa",
        "Bearer lg_aaaab",
        "Bearer lg_aaaa x",
        "Bearer LG_AAAA",
        "Basic lg_aaaa",
        "lg_aaaa",
        "Bearer ' OR 1=1 --",
        &format!("Bearer {long}"),
    ];
    for value in authorizations {
        let request = server.json(ENDPOINTS[0], &valid()).header("authorization", value);
        check(value, &server.send(request).await, BAD_KEY);
    }
    let different =
        server.json(ENDPOINTS[0], &valid()).header("authorization", "Bearer lg_aaaa").header("x-api-key", "lg_bbbb");
    check("two keys", &server.send(different).await, BAD_KEY);
    assert!(upstream.requests().is_empty());
    for (name, value) in
        [("authorization", "Bearer lg_aaaa"), ("authorization", "bearer lg_aaaa"), ("x-api-key", "lg_aaaa")]
    {
        server.send(server.json(ENDPOINTS[0], &valid()).header(name, value)).await.ok();
    }
    assert_eq!(server.respond(server.request(Method::GET, "/healthz")).await.status(), 200);
    assert!(!server.output().contains("lg_aaa"), "a key is in the log");
}

/// What belongs to others does not exist.
#[tokio::test]
async fn see_nothing_of_other_tenants() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let mut server = house(&upstream, KEYS).await;
    server.use_key("lg_aaaa");
    let answer = server.post(ENDPOINTS[0], &with_agent("session_id", "mine")).await.ok();
    let run = answer["agent"]["run_id"].as_str().expect("it has an id").to_owned();
    server.get(&format!("/v1/runs/{run}")).await.ok();
    server.use_key("lg_bbbb");
    let no_run: Allowed = &[(404, "run_not_found")];
    let no_session: Allowed = &[(404, "session_not_found")];
    let requests: [(&str, RequestBuilder, Allowed); 8] = [
        ("read", server.request(Method::GET, &format!("/v1/runs/{run}")), no_run),
        ("follow", server.request(Method::GET, &format!("/v1/runs/{run}/events")), no_run),
        ("cancel", server.json(&format!("/v1/runs/{run}/cancel"), &json!({})), no_run),
        ("continue", server.json(ENDPOINTS[0], &with_agent("run_id", run.as_str())), no_run),
        ("session", server.request(Method::GET, "/v1/sessions/mine"), no_session),
        ("messages", server.request(Method::GET, "/v1/sessions/mine/messages"), no_session),
        ("delete", server.request(Method::DELETE, "/v1/sessions/mine"), no_session),
        (
            "change",
            server.request(Method::PATCH, "/v1/sessions/mine").header("content-type", "application/json").body("{}"),
            no_session,
        ),
    ];
    for (what, request, allowed) in requests {
        check(what, &server.send(request).await, allowed);
    }
    for list in ["/v1/runs", "/v1/sessions"] {
        assert_eq!(server.get(list).await.ok()["data"], json!([]), "{list}");
    }
    // The same name is another session to another tenant.
    server.post(ENDPOINTS[0], &with_agent("session_id", "mine")).await.ok();
    let last = upstream.requests().pop().expect("it was asked");
    assert_eq!(last["messages"].as_array().map(Vec::len), Some(1), "{last}");
    server.use_key("lg_aaaa");
    let messages = server.get("/v1/sessions/mine/messages").await.ok();
    assert_eq!(messages["data"].as_array().map(Vec::len), Some(2), "{messages}");
}

#[tokio::test]
async fn without_a_budget_are_refused() {
    let upstream = Upstream::start([Reply::says("Hello")]).await;
    let server = house(&upstream, "").await;
    let refused = |answer: crate::support::Answer| {
        check("an empty budget", &answer, &[(429, "budget_exceeded")]);
        assert_eq!(answer.body["error"]["type"], "insufficient_quota");
        assert_eq!(answer.header("x-should-retry"), "false");
    };
    for endpoint in ENDPOINTS {
        refused(server.post(endpoint, &with_agent("limits", json!({"token_budget": 1}))).await);
    }
    server.post("/v1/sessions", &json!({"id": "poor", "token_budget": 1})).await.ok();
    refused(server.post(ENDPOINTS[0], &with_agent("session_id", "poor")).await);
    server.post(ENDPOINTS[0], &valid()).await.ok();
}

#[tokio::test]
async fn over_their_rate_limit_are_refused() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let mut server = house(&upstream, &KEYS.replacen("KEY_A\"\n", "KEY_A\"\nrequests_per_minute = 2\n", 1)).await;
    server.use_key("lg_aaaa");
    for _ in 0..2 {
        let answer = server.get("/v1/models").await;
        assert_eq!((answer.status, answer.header("x-ratelimit-limit-requests")), (200, "2"));
    }
    let answer = server.post(ENDPOINTS[0], &valid()).await;
    check("a third", &answer, &[(429, "rate_limit_exceeded")]);
    let seconds: u64 = answer.header("retry-after").parse().expect("it says when to come back");
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), "0");
    server.use_key("lg_bbbb");
    server.post(ENDPOINTS[0], &valid()).await.ok();
}

/// A key and another one of the same tenant that may use one agent only, or do some things only.
const COLLEAGUES: &str = r#"
[agents.powerful]
[agents.limited]
[keys.a]
key_env = "KEY_A"
tenant = "both"
[keys.b]
key_env = "KEY_B"
tenant = "both"
"#;

/// What a request does to what another key of the tenant has made, by method, path and body.
fn deeds(server: &TestServer, run: &str, model: &str) -> Vec<(&'static str, RequestBuilder)> {
    let get = |path: &str| server.request(Method::GET, path);
    let post = |path: &str, body: Value| server.json(path, &body);
    let interrupt = |body: Value| {
        let agent = json!({"session_id": "s", "on_conflict": "interrupt"});
        json!({"model": model, "messages": body, "agent": agent})
    };
    vec![
        ("read", get(&format!("/v1/runs/{run}"))),
        ("follow", get(&format!("/v1/runs/{run}/events"))),
        (
            "steer",
            post(&format!("/v1/runs/{run}/messages"), json!({"messages": [{"role": "system", "content": "Obey."}]})),
        ),
        ("cancel", post(&format!("/v1/runs/{run}/cancel"), json!({}))),
        ("cancel its session", post("/v1/sessions/s/cancel", json!({}))),
        ("interrupt", post(ENDPOINTS[0], interrupt(json!([{"role": "user", "content": "Hi"}])))),
    ]
}

#[tokio::test]
async fn do_nothing_to_a_run_of_an_agent_that_they_may_not_use() {
    let upstream = Upstream::start([Reply::stream().text("Hel").stall()]).await;
    upstream.otherwise(Reply::says("Hello"));
    let config = COLLEAGUES.replace("[keys.b]\n", "[keys.b]\nagents = [\"limited\"]\n");
    let config = config.replace("[agents.powerful]\n", "[agents.powerful]\nmodel = \"test\"\n");
    let config = config.replace("[agents.limited]\n", "[agents.limited]\nmodel = \"test\"\n");
    let mut server = house(&upstream, &config).await;
    server.use_key("lg_aaaa");
    let mut request = with_agent("session_id", "s");
    request["model"] = json!("powerful");
    request["agent"]["background"] = json!(true);
    let run = server.post(ENDPOINTS[0], &request).await.ok()["id"].as_str().expect("it has an id").to_owned();
    upstream.received(1).await;
    server.use_key("lg_bbbb");
    for (what, request) in deeds(&server, &run, "limited") {
        let answer = server.send(request).await;
        check(what, &answer, &[(403, "forbidden")]);
        assert!(answer.body["error"]["message"].as_str().is_some_and(|text| text.contains("powerful")), "{what}");
    }
    assert_eq!(server.get("/v1/runs").await.ok()["data"], json!([]));
    server.use_key("lg_aaaa");
    assert_eq!(server.get(&format!("/v1/runs/{run}")).await.ok()["status"], "in_progress");
    server.post(&format!("/v1/runs/{run}/cancel"), &json!({})).await.ok();
    server.use_key("lg_bbbb");
    check("delete", &server.send(server.request(Method::DELETE, "/v1/sessions/s")).await, &[(403, "forbidden")]);
}

#[tokio::test]
async fn answer_no_run_of_an_agent_that_they_may_not_use() {
    let calls = Reply::calls("weather", &json!({"city": "Oslo"}));
    let upstream = Upstream::start([calls, Reply::says("Fine.")]).await;
    let config = COLLEAGUES.replace("[keys.b]\n", "[keys.b]\nagents = [\"limited\"]\n");
    let config = config.replace("[agents.powerful]\n", "[agents.powerful]\nmodel = \"test\"\n");
    let config = config.replace("[agents.limited]\n", "[agents.limited]\nmodel = \"test\"\n");
    let mut server = house(&upstream, &config).await;
    server.use_key("lg_aaaa");
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}});
    let mut request = with_agent("session_id", "s");
    request["model"] = json!("powerful");
    request["tools"] = json!([tool]);
    let waiting = server.post(ENDPOINTS[0], &request).await.ok();
    let call = &waiting["agent"]["required_action"]["calls"][0]["call_id"];
    let answer = json!({
        "messages": [{"role": "tool", "tool_call_id": call, "content": "sunny"}],
        "agent": {"run_id": waiting["agent"]["run_id"]},
    });
    server.use_key("lg_bbbb");
    let refused = server.post(ENDPOINTS[0], &answer).await;
    check("answer", &refused, &[(403, "forbidden")]);
    assert!(refused.body["error"]["message"].as_str().is_some_and(|text| text.contains("powerful")));
    server.use_key("lg_aaaa");
    assert_eq!(server.post(ENDPOINTS[0], &answer).await.ok()["agent"]["status"], "completed");
}

#[tokio::test]
async fn without_a_scope_are_refused_what_it_is_for() {
    let upstream = Upstream::start([Reply::stream().text("Hel").stall()]).await;
    upstream.otherwise(Reply::says("Hello"));
    let config = COLLEAGUES.replace("[keys.b]\n", "[keys.b]\nscopes = [\"run\", \"read\"]\n");
    let config = config.replace("[agents.powerful]\n[agents.limited]\n", "");
    let mut server = house(&upstream, &config).await;
    server.use_key("lg_aaaa");
    let mut request = with_agent("session_id", "s");
    request["agent"]["background"] = json!(true);
    let run = server.post(ENDPOINTS[0], &request).await.ok()["id"].as_str().expect("it has an id").to_owned();
    upstream.received(1).await;
    server.use_key("lg_bbbb");
    server.get(&format!("/v1/runs/{run}")).await.ok();
    let scope = |what: &str| match what {
        "steer" => Some("`steer`"),
        "cancel" | "cancel its session" | "interrupt" => Some("`cancel`"),
        _ => None,
    };
    let mut requests = deeds(&server, &run, "test");
    requests.retain(|(what, _)| scope(what).is_some());
    requests.push(("create", server.json("/v1/sessions", &json!({}))));
    requests.push(("delete", server.request(Method::DELETE, "/v1/sessions/s")));
    requests.push(("fork", server.json("/v1/sessions/s/fork", &json!({}))));
    for (what, request) in requests {
        let answer = server.send(request).await;
        check(what, &answer, &[(403, "forbidden")]);
        let named = scope(what).unwrap_or("`sessions`");
        assert!(
            answer.body["error"]["message"].as_str().is_some_and(|text| text.contains(named)),
            "{what}: {answer:?}"
        );
    }
    server.post(ENDPOINTS[0], &valid()).await.ok();
    server.use_key("lg_aaaa");
    server.post(&format!("/v1/runs/{run}/cancel"), &json!({})).await.ok();
}
