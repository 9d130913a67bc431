//! Agents that tenants keep in the store: made, changed and used over HTTP, on several replicas.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::redis::RedisServer;
use crate::support::{Answer, Gate, Reply, TestServer, Upstream, within};

const CHAT: &str = "/v1/chat/completions";

const KEYS: &str = r#"
    [agents.fixed]
    model = "test"
    system = "You are fixed."

    [keys.admin]
    tenant = "acme"
    key_env = "ADMIN"
    scopes = ["agents", "run", "read"]

    [keys.web]
    tenant = "acme"
    key_env = "WEB"

    [keys.other]
    key_env = "OTHER"
    scopes = ["agents", "run", "read"]

    [keys.bound]
    tenant = "acme"
    key_env = "BOUND"
    agents = ["fixed"]
"#;

async fn server(upstream: &Upstream, redis: &RedisServer) -> TestServer {
    let config = [&upstream.config(), KEYS].concat();
    let builder = TestServer::builder(&config).store(&redis.url());
    let keys = ["ADMIN", "WEB", "OTHER", "BOUND"];
    keys.iter().fold(builder, |builder, key| builder.env(key, key)).start().await
}

/// A request with a key that is the name of its variable.
async fn send(server: &TestServer, key: &str, method: Method, path: &str, body: Option<&Value>) -> Answer {
    let request = match body {
        Some(body) => server.json(path, body).bearer_auth(key).build().expect("it is a request"),
        None => server.request(method.clone(), path).bearer_auth(key).build().expect("it is a request"),
    };
    let mut request = request;
    *request.method_mut() = method;
    Answer::read(reqwest::Client::new().execute(request).await.expect("it is answered")).await
}

async fn put(server: &TestServer, name: &str, settings: &Value) -> Answer {
    send(server, "ADMIN", Method::PUT, &format!("/v1/agents/{name}"), Some(settings)).await
}

async fn get(server: &TestServer, path: &str) -> Answer {
    send(server, "ADMIN", Method::GET, path, None).await
}

async fn ask(server: &TestServer, key: &str, model: &str) -> Answer {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
    send(server, key, Method::POST, CHAT, Some(&body)).await
}

/// The first message that the upstream was sent with the request of this number.
fn system(upstream: &Upstream, number: usize) -> Value {
    upstream.requests()[number]["messages"][0]["content"].clone()
}

#[tokio::test]
async fn an_agent_that_is_put_is_used_here_at_once_and_elsewhere_within_seconds() {
    let redis = RedisServer::start().await;
    let upstream = Upstream::start((0..60).map(|_| Reply::says("Yes."))).await;
    let (one, mut two) = (server(&upstream, &redis).await, server(&upstream, &redis).await);
    let made = put(&one, "clerk", &json!({"model": "test", "system": "You are a clerk."})).await;
    assert_eq!((made.header("etag"), &made.body["changed_by"]), ("\"1\"", &json!("admin")), "{}", made.body);
    let made = made.ok();
    assert_eq!((&made["id"], &made["origin"], &made["version"]), (&json!("clerk"), &json!("store"), &json!(1)));
    assert_eq!(made["effective"]["limits"]["max_iterations"], 20, "{made}");

    let answer = ask(&one, "WEB", "clerk").await.ok();
    assert_eq!(system(&upstream, 0), "You are a clerk.");
    let run = get(&one, &format!("/v1/runs/{}", answer["agent"]["run_id"].as_str().expect("it has an id"))).await.ok();
    assert_eq!((&run["model"], &run["agent_version"]), (&json!("clerk"), &json!(1)));
    let listed = get(&two, "/v1/models").await.ok();
    assert!(listed["data"].as_array().expect("a list").iter().any(|model| model["id"] == "clerk"), "{listed}");

    ask(&two, "WEB", "clerk").await.ok();
    put(&one, "clerk", &json!({"model": "test", "system": "You are a judge."})).await.ok();
    ask(&one, "WEB", "clerk").await.ok();
    assert_eq!(system(&upstream, 2), "You are a judge.");
    let changed = async {
        while system(&upstream, upstream.requests().len() - 1) != "You are a judge." || upstream.requests().len() < 4 {
            ask(&two, "WEB", "clerk").await.ok();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), changed).await.expect("the other replica hears of it within 5 s");

    two.kill9().await;
    two.restart().await;
    ask(&two, "WEB", "clerk").await.ok();
    assert_eq!(system(&upstream, upstream.requests().len() - 1), "You are a judge.", "it outlives processes");
}

#[tokio::test]
async fn a_run_keeps_the_version_that_it_began_with() {
    let redis = RedisServer::start().await;
    let gate = Gate::new();
    let call = Reply::calls("calculator", &json!({"expression": "1 + 1"}));
    let held = Reply::stream()
        .text("Hm. ")
        .gate(&gate)
        .tool_call(0, "call_1", "calculator", r#"{"expression": "1"}"#)
        .finish("tool_calls")
        .usage(9, 1)
        .done();
    let upstream = Upstream::start([held, Reply::says("Old."), call, Reply::says("New.")]).await;
    let server = server(&upstream, &redis).await;
    put(&server, "clerk", &json!({"model": "test", "system": "One.", "tools": ["calculator"]})).await.ok();
    let (old, ()) = tokio::join!(ask(&server, "WEB", "clerk"), async {
        gate.reached().await;
        put(&server, "clerk", &json!({"model": "test", "system": "Two.", "tools": ["calculator"]})).await.ok();
        gate.open();
    });
    let new = ask(&server, "WEB", "clerk").await.ok();
    let systems: Vec<_> = (0..4).map(|number| system(&upstream, number)).collect();
    assert_eq!(systems, ["One.", "One.", "Two.", "Two."]);
    for (answer, version) in [(old.ok(), 1), (new, 2)] {
        let run = answer["agent"]["run_id"].as_str().expect("it has an id").to_owned();
        assert_eq!(get(&server, &format!("/v1/runs/{run}")).await.ok()["agent_version"], version);
    }
}

#[tokio::test]
async fn versions_are_kept_compared_and_restored_also_of_an_agent_that_was_deleted() {
    let redis = RedisServer::start().await;
    let upstream = Upstream::start([Reply::says("Yes.")]).await;
    let server = server(&upstream, &redis).await;
    let path = "/v1/agents/clerk";
    let with = async |header: (&str, &str), method: Method, body: Option<&Value>| {
        let request = server.request(method, path).bearer_auth("ADMIN").header(header.0, header.1);
        let request = match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        };
        Answer::read(server.respond(request).await).await
    };
    let first = json!({"model": "test", "system": "One."});
    assert_eq!(with(("if-match", "*"), Method::PUT, Some(&first)).await.code(), "agent_not_found");
    with(("if-none-match", "*"), Method::PUT, Some(&first)).await.ok();
    let again = with(("if-none-match", "*"), Method::PUT, Some(&first)).await.ok();
    assert_eq!(again["version"], 1, "the same request again changes nothing");
    let other = json!({"model": "test", "system": "Two."});
    let refused = with(("if-none-match", "*"), Method::PUT, Some(&other)).await;
    assert_eq!((refused.status, refused.code()), (409, "version_conflict"));
    assert_eq!(with(("if-match", "\"7\""), Method::PUT, Some(&other)).await.code(), "version_conflict");
    let patch = json!({"system": null, "limits": {"max_iterations": 3}});
    let patched = with(("if-match", "\"1\""), Method::PATCH, Some(&patch)).await.ok();
    assert_eq!(patched["settings"], json!({"model": "test", "limits": {"max_iterations": 3}}));
    assert_eq!(with(("if-match", "\"1\""), Method::DELETE, None).await.code(), "version_conflict");
    let deleted = with(("if-match", "\"2\""), Method::DELETE, None).await.ok();
    assert_eq!((&deleted["deleted"], &deleted["version"]), (&json!(true), &json!(3)));
    assert_eq!(get(&server, path).await.code(), "agent_not_found");
    assert_eq!(ask(&server, "WEB", "clerk").await.code(), "model_not_found");
    assert_eq!(with(("if-match", "*"), Method::PATCH, Some(&patch)).await.code(), "agent_not_found");

    let versions = get(&server, &format!("{path}/versions")).await.ok();
    let seen: Vec<_> = versions["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| (one["version"].clone(), one["deleted"] == true))
        .collect();
    assert_eq!(seen, [(json!(3), true), (json!(2), false), (json!(1), false)]);
    let restored = send(&server, "ADMIN", Method::POST, &format!("{path}/versions/1/restore"), None).await.ok();
    assert_eq!((&restored["settings"], &restored["version"]), (&first, &json!(4)));
    for gone in ["3", "9", "x"] {
        let refused = send(&server, "ADMIN", Method::POST, &format!("{path}/versions/{gone}/restore"), None).await;
        assert_eq!((refused.status, refused.code()), (404, "agent_not_found"), "{gone}");
    }
    ask(&server, "WEB", "clerk").await.ok();
    assert_eq!(system(&upstream, 0), "One.");
}

#[tokio::test]
async fn settings_are_read_as_those_of_the_file_are_and_the_files_agents_stay() {
    let redis = RedisServer::start().await;
    let upstream = Upstream::start([]).await;
    let server = server(&upstream, &redis).await;
    for (name, settings, param, says) in [
        ("clerk", json!({"modle": "test"}), "modle", "did you mean `model`?"),
        ("clerk", json!({"model": "nowhere/x"}), "model", "nowhere"),
        ("clerk", json!({"model": "test", "tools": ["calculate"]}), "tools", "did you mean `calculator`?"),
        ("clerk", json!({"model": "test", "limits": {"timeout": 3}}), "limits.timeout", "expected"),
        ("clerk", json!({"model": "test", "limits": {"timeout": "9h"}}), "limits.timeout", "300s"),
        ("clerk", json!({"model": "test", "limits": {"timeout": null}}), "limits.timeout", "leave it out"),
        ("clerk", json!({"model": "test", "limits": [1]}), "limits", "expected a table"),
        ("clerk", json!({"model": 3}), "model", "expected a string"),
    ] {
        let refused = put(&server, name, &settings).await;
        let error = &refused.body["error"];
        assert_eq!((refused.status, refused.code(), &error["param"]), (400, "invalid_value", &json!(param)), "{error}");
        assert!(error["message"].as_str().expect("a sentence").contains(says), "{error}");
    }
    assert_eq!(put(&server, "a%20b", &json!({"model": "test"})).await.code(), "invalid_value");
    assert_eq!(put(&server, "clerk", &json!([1])).await.status, 400);
    let long = json!({"model": "test", "system": "x".repeat(65_536)});
    assert_eq!(put(&server, "clerk", &long).await.status, 413);
    let half = "x".repeat(40_000);
    put(&server, "long", &json!({"model": "test", "system": half})).await.ok();
    let patched = send(&server, "ADMIN", Method::PATCH, "/v1/agents/long", Some(&json!({"description": half}))).await;
    assert_eq!((patched.status, patched.code()), (413, "payload_too_large"), "patches add up");
    assert_eq!(get(&server, "/v1/agents/long").await.ok()["version"], 1);
    send(&server, "ADMIN", Method::DELETE, "/v1/agents/long", None).await.ok();
    for name in ["fixed", "default"] {
        let refused = put(&server, name, &json!({"model": "test"})).await;
        assert_eq!((refused.status, refused.code()), (409, "agent_read_only"), "{name}");
        let refused = send(&server, "ADMIN", Method::DELETE, &format!("/v1/agents/{name}"), None).await;
        assert_eq!((refused.status, refused.code()), (409, "agent_read_only"), "{name}");
    }
    let fixed = get(&server, "/v1/agents/fixed").await.ok();
    assert_eq!(
        (&fixed["origin"], &fixed["effective"]["system"]),
        (&json!("file"), &json!("You are fixed.")),
        "{fixed}"
    );
    assert_eq!(fixed["effective"]["limits"]["timeout"], "300s", "{fixed}");
    put(&server, "clerk", &json!({"model": "test"})).await.ok();
    let listed = get(&server, "/v1/agents").await.ok();
    let names: Vec<_> = listed["data"].as_array().expect("a list").iter().map(|one| one["id"].clone()).collect();
    assert_eq!(names, ["default", "fixed", "clerk"]);

    // The file takes the name later.
    server.reload(&[&upstream.config(), KEYS, "[agents.clerk]\nmodel = \"test\"\n"].concat()).await;
    for path in ["/v1/agents", "/v1/models"] {
        let listed = get(&server, path).await.ok();
        let clerks = listed["data"].as_array().expect("a list").iter().filter(|one| one["id"] == "clerk").count();
        assert_eq!(clerks, 1, "{listed}");
    }
    assert_eq!(put(&server, "clerk", &json!({"model": "test"})).await.code(), "agent_read_only");
    send(&server, "ADMIN", Method::DELETE, "/v1/agents/clerk", None).await.ok();
    let again = send(&server, "ADMIN", Method::DELETE, "/v1/agents/clerk", None).await;
    assert_eq!((again.status, again.code()), (409, "agent_read_only"), "what is left is the file's");
}

#[tokio::test]
async fn an_agent_is_its_tenants_and_changed_by_keys_that_may() {
    let redis = RedisServer::start().await;
    let upstream = Upstream::start([]).await;
    let server = server(&upstream, &redis).await;
    put(&server, "clerk", &json!({"model": "test"})).await.ok();
    for (method, body) in [(Method::PUT, Some(json!({"model": "test"}))), (Method::GET, None), (Method::DELETE, None)] {
        let refused = send(&server, "WEB", method.clone(), "/v1/agents/clerk", body.as_ref()).await;
        assert_eq!((refused.status, refused.code()), (403, "forbidden"), "{method}");
    }
    assert_eq!(send(&server, "OTHER", Method::GET, "/v1/agents/clerk", None).await.code(), "agent_not_found");
    assert_eq!(ask(&server, "OTHER", "clerk").await.code(), "model_not_found");
    assert_eq!(ask(&server, "BOUND", "clerk").await.code(), "forbidden");
    let listed = send(&server, "BOUND", Method::GET, "/v1/models", None).await.ok();
    assert!(listed["data"].as_array().expect("a list").iter().all(|model| model["id"] != "clerk"), "{listed}");

    // The file gets an agent of the same name, which goes before it.
    let config = [&upstream.config(), KEYS, "\n[agents.clerk]\nmodel = \"test\"\nsystem = \"Of the file.\"\n"].concat();
    server.reload(&config).await;
    let of_file = get(&server, "/v1/agents/clerk").await.ok();
    assert_eq!(of_file["origin"], "file");
    // Then one is gone that the agent of the store names.
    server.reload(&[&upstream.config(), KEYS].concat()).await;
    put(&server, "clerk", &json!({"model": "test", "tools": ["calculator"], "fallbacks": ["scripted/test"]})).await;
    let gone = [&upstream.config().replace("scripted", "elsewhere"), KEYS].concat();
    put(&server, "lost", &json!({"model": "scripted/test"})).await.ok();
    server.reload(&gone).await;
    let refused = ask(&server, "WEB", "lost").await;
    assert_eq!((refused.status, refused.code()), (404, "model_not_found"), "{}", refused.body);
    assert!(refused.body["error"]["message"].as_str().expect("a sentence").contains("as the server is configured now"));
    let shown = get(&server, "/v1/agents/lost").await.ok();
    assert!(shown["mistake"].as_str().is_some_and(|what| what.contains("scripted")), "{shown}");
}

#[tokio::test]
async fn changes_at_the_same_time_each_become_a_version() {
    let redis = RedisServer::start().await;
    let upstream = Upstream::start([]).await;
    let (one, two) = (server(&upstream, &redis).await, server(&upstream, &redis).await);
    let changes = (0..12).map(|number| {
        let server = if number % 2 == 0 { &one } else { &two };
        async move {
            put(server, &format!("agent{}", number % 3), &json!({"model": "test", "system": number.to_string()})).await
        }
    });
    let made = within("all changes", futures_util::future::join_all(changes)).await;
    let mut versions: Vec<_> = made.into_iter().filter_map(|answer| answer.ok()["version"].as_u64()).collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=12).collect::<Vec<_>>(), "no number is given twice or left out");
    for server in [&one, &two] {
        let listed = get(server, "/v1/agents").await.ok();
        assert_eq!(listed["data"].as_array().map(Vec::len), Some(5), "{listed}");
    }
}

#[tokio::test]
async fn a_delegate_that_cannot_be_used_keeps_no_agent_from_its_work() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::start([]).await);
    upstream.otherwise(Reply::says("Done."));
    let server = server(&upstream, &redis).await;
    put(&server, "clerk", &json!({"model": "test", "limits": {"timeout": "300s"}})).await.ok();
    put(&server, "boss", &json!({"model": "test", "delegates": ["clerk"], "limits": {"timeout": "50s"}})).await.ok();
    assert_eq!(ask(&server, "WEB", "boss").await.status, 200);
    assert!(upstream.requests()[0]["tools"].to_string().contains("clerk"));
    let shorter = "[agents.default.limits]\ntimeout = \"100s\"\n";
    server.reload(&[&upstream.config(), KEYS, shorter].concat()).await;
    assert_ne!(ask(&server, "WEB", "clerk").await.status, 200, "it may take longer than any agent of the file");
    assert_eq!(ask(&server, "WEB", "boss").await.status, 200);
    let tools = upstream.requests().last().expect("it was asked")["tools"].to_string();
    assert!(!tools.contains("clerk"), "{tools}");
}
