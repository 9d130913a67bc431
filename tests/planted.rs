//! Secrets are planted wherever a server gets any, and whatever it is told of people is marked too. Then runs of all kinds go
//! well and wrong, and everything is searched that the server tells to operators and callers.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{Reply, TestServer, ToolServer, Upstream};

const ENDPOINT: &str = "/v1/agent/completions";

/// How often each kind of request is sent.
const ROUNDS: usize = 20;

/// What is secret: nothing but the servers that it is for is told any of it.
const SECRETS: [&str; 12] = [
    "SECRET-upstream-key",
    "SECRET-upstream-key-in-a-file",
    "SECRET-tool-header",
    "SECRET-collector-key",
    "SECRET-key",
    "SECRET-key-of-another-tenant",
    "SECRET-key-that-is-wrong",
    "SECRET-key-in-the-other-header",
    "SECRET-key-in-the-query",
    "SECRET-cookie",
    "SECRET-password-of-a-proxy",
    "SECRET-idempotency-key",
];

/// What is said, or is somebody's: callers are told it, and operators are not.
const SAID: [&str; 9] = [
    "CANARY-system",
    "CANARY-prompt",
    "CANARY-answer",
    "CANARY-arguments",
    "CANARY-result",
    "CANARY-user",
    "CANARY-label",
    "CANARY-metadata",
    "CANARY-member",
];

/// What a server tells.
struct Told {
    log: String,
    metrics: String,
    /// What its collector got, and what it says of the traces of runs.
    traces: String,
    /// What callers were answered.
    answers: String,
}

/// The upstream's answers to the runs of a round, in the order of [`runs`].
fn script() -> Vec<Reply> {
    let calls = Reply::calls("look", &json!({"note": "CANARY-arguments"}));
    let mut replies = vec![
        Reply::calls("CANARY-tool", &json!({})),
        calls,
        Reply::says("CANARY-answer"),
        Reply::says("CANARY-answer"),
        Reply::stream().text("CANARY-answer").cut(),
        Reply::says("CANARY-answer"),
    ];
    let error = |status| Reply::error(status, "denied", "CANARY-upstream-error was not understood");
    replies.extend([401, 400, 402, 404, 413, 422].map(error));
    replies.push(error(503).header("retry-after-ms", "1"));
    replies.push(Reply::says("CANARY-answer"));
    let within = json!({"error": {"message": "CANARY-upstream-error in the answer", "code": 400}});
    replies.push(Reply::stream().bytes(format!("data: {within}\n\n")));
    replies
}

/// The requests of a round that begin runs.
fn runs(server: &TestServer) -> Vec<RequestBuilder> {
    let asked = |model: &str, stream: bool| {
        json!({
            "model": model,
            "stream": stream,
            "user": "CANARY-user",
            "metadata": {"CANARY-label": "CANARY-metadata"},
            "messages": [{"role": "user", "content": "CANARY-prompt"}],
        })
    };
    let mut all = vec![
        server.json(ENDPOINT, &asked("scripted/test", false)),
        server.json(ENDPOINT, &asked("second/test", true)),
        server.json("/v1/chat/completions", &asked("scripted/test", true)),
    ];
    all.extend((0..8).map(|_| server.json(ENDPOINT, &asked("scripted/test", false))));
    all
}

/// Requests that are refused, each in another way.
fn refused(server: &TestServer) -> Vec<RequestBuilder> {
    let plain = |path: &str| server.request(Method::GET, path);
    let asked = json!({"model": "scripted/test", "messages": [{"role": "user", "content": "CANARY-prompt"}]});
    let with = |name: &str, value: Value| {
        let mut body = asked.clone();
        body[name] = value;
        server.json(ENDPOINT, &body)
    };
    vec![
        with("temperature", json!("CANARY-member")),
        with("model", json!("CANARY-model")),
        with("agent", json!({"CANARY-member": "CANARY-member"})),
        with("agent", json!({"token_budget": 1})),
        server.json(ENDPOINT, &json!([])).body("{\"messages\": \"CANARY-prompt"),
        server.request(Method::POST, ENDPOINT).header("content-type", "text/plain").body("CANARY-prompt"),
        server.json(ENDPOINT, &asked).header("cookie", "SECRET-cookie"),
        plain("/v1/runs/run_00000000000070008000000000000000"),
        plain("/v1/CANARY-path?api_key=SECRET-key-in-the-query"),
        server.request(Method::PUT, "/v1/runs?api_key=SECRET-key-in-the-query"),
        plain("/v1/runs").header("x-api-key", "SECRET-key-in-the-other-header"),
        server.json("/v1/sessions", &json!({"messages": [{"role": "nobody", "content": "CANARY-prompt"}]})),
        server.json("/v1/sessions", &json!({"id": "CANARY-session"})).header("x-request-id", "CANARY-request-id"),
    ]
}

async fn answer(server: &TestServer, request: RequestBuilder) -> String {
    let response = server.respond(request).await;
    let head = format!("{:?}", response.headers());
    head + &response.text().await.unwrap_or_default()
}

/// Everything that a server tells that logs so much.
async fn told(level: &str) -> Told {
    let collector = ToolServer::start((0..20 * ROUNDS).map(|_| Reply::plain(""))).await;
    let tools = ToolServer::start((0..ROUNDS).map(|_| Reply::plain("CANARY-result"))).await;
    let upstream = Upstream::start((0..ROUNDS).flat_map(|_| script())).await;
    let named = |name: &str, key: &str| {
        upstream.config().replace("[upstreams.scripted]", &format!("[upstreams.{name}]\n{key}"))
    };
    let config = format!(
        "{}{}{}[tools.look.headers]\nauthorization = {{ env = \"TOOL\" }}\n\
         [agents.default]\ntools = [\"look\"]\nsystem = \"CANARY-system\"\n\
         [keys.mine]\nkey_env = \"KEY\"\n[keys.metrics]\nkey_env = \"METRICS\"\nscopes = [\"metrics\"]\n\
         [keys.other]\ntenant = \"other\"\nkey_env = \"OTHER\"\n\
         [traces]\nendpoint = \"http://{}\"\nheaders_env = \"COLLECTOR\"\n",
        named("scripted", "api_key_env = \"UPSTREAM\""),
        named("second", "api_key_file = \"upstream.key\""),
        tools.config("look", "read"),
        collector.address(),
    );
    let builder = TestServer::builder(&config).file("upstream.key", "SECRET-upstream-key-in-a-file");
    let builder = builder.env("UPSTREAM", "SECRET-upstream-key").env("TOOL", "SECRET-tool-header");
    let builder =
        builder.env("KEY", "SECRET-key").env("OTHER", "SECRET-key-of-another-tenant").env("METRICS", "numbers");
    let builder = builder.env("HTTPS_PROXY", "http://ann:SECRET-password-of-a-proxy@127.0.0.1:9");
    let mut server = builder.env("COLLECTOR", "api-key=SECRET-collector-key").env("LOOPGATE_LOG", level).start().await;
    let mut answers = String::new();
    for round in 0..ROUNDS {
        server.use_key("SECRET-key");
        for request in runs(&server).into_iter().chain(refused(&server)) {
            answers += &answer(&server, request).await;
        }
        let named = server.json(ENDPOINT, &json!({"model": "not-there"}));
        answers += &answer(&server, named.header("idempotency-key", format!("SECRET-idempotency-key-{round}"))).await;
        for key in ["SECRET-key-that-is-wrong", "SECRET-key-of-another-tenant"] {
            server.use_key(key);
            answers += &answer(&server, server.request(Method::GET, "/v1/runs")).await;
        }
    }
    assert_eq!((upstream.requests().len(), tools.calls().len()), (ROUNDS * script().len(), ROUNDS), "{answers}");
    let asked = upstream.raw_requests();
    let by_file = asked.iter().filter(|asked| asked.headers["authorization"].ends_with("-key-in-a-file"));
    assert_eq!(by_file.count(), ROUNDS);
    server.use_key("SECRET-key");
    let (mut traces, mut after) = (String::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/runs?limit=100{after}")).await.ok();
        for run in page["data"].as_array().expect("it is a list") {
            let path = format!("/v1/runs/{}", run["id"].as_str().expect("it is named"));
            traces += &server.get(&format!("{path}/trace")).await.ok().to_string();
            answers += &answer(&server, server.request(Method::GET, &format!("{path}/events"))).await;
        }
        match page["next"].as_str().or_else(|| page["last_id"].as_str()).filter(|_| page["has_more"] == true) {
            Some(last) => after = format!("&after={last}"),
            None => break,
        }
    }
    let mut metrics = String::new();
    server.use_key("numbers");
    for accept in ["text/plain", "application/openmetrics-text"] {
        metrics += &answer(&server, server.request(Method::GET, "/metrics").header("accept", accept)).await;
    }
    server.sigterm();
    server.drained().await;
    for request in collector.calls() {
        assert_eq!((request.target.as_str(), &request.headers["api-key"][..]), ("/v1/traces", "SECRET-collector-key"));
        traces += &String::from_utf8_lossy(&request.body);
    }
    Told { log: server.output(), metrics, traces, answers }
}

#[tokio::test]
async fn what_is_planted_is_told_only_to_those_whom_it_is_for() {
    let Told { log, metrics, traces, answers } = told("info").await;
    assert!(log.contains("the run failed") && answers.contains("CANARY-answer"));
    let found: Vec<_> = SECRETS.into_iter().chain(SAID).filter(|planted| log.contains(planted)).collect();
    assert_eq!(found, [""; 0], "in the log");
    let found: Vec<_> = SECRETS.into_iter().filter(|secret| answers.contains(secret)).collect();
    assert_eq!(found, [""; 0], "in answers");
    assert!(metrics.contains("loopgate_tool_calls_total{tool=\"look\",outcome=\"ok\"}"), "{metrics}");
    assert!(["execute_tool look", "execute_tool other", "upstream_rejected"].iter().all(|told| traces.contains(told)));
    for (place, text) in [("metrics", metrics), ("traces", traces)] {
        let found = text.lines().find(|line| line.contains("CANARY") || line.contains("SECRET"));
        assert_eq!(found, None, "in {place}");
    }
}

#[tokio::test]
async fn secrets_are_in_no_log_however_much_it_tells() {
    let Told { log, .. } = told("debug,loopgate=trace").await;
    assert!(log.contains("DEBUG"), "it tells much");
    let found: Vec<_> = SECRETS.into_iter().filter(|secret| log.contains(secret)).collect();
    assert_eq!(found, [""; 0]);
}
