//! Tokens for pages: what a key gives, and what they are good for.

mod chats;
mod decisions;
mod life;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::redis::RedisServer;
use crate::support::{Answer, Gate, Reply, TestServer, Upstream};

const CHAT: &str = "/v1/chat/completions";
const AGENT: &str = "/v1/agent/completions";
const SECRET: &str = "one-secret-of-more-than-32-characters";

const KEYS: &str = r#"
    [tokens]
    secret_env = "TOKEN_SECRET"

    [agents.clerk]
    model = "test"

    [keys.web]
    tenant = "acme"
    key_env = "WEB"

    [keys.reader]
    tenant = "acme"
    key_env = "READER"
    scopes = ["read"]

    [keys.other]
    key_env = "OTHER"
"#;

fn config(upstream: &Upstream) -> String {
    [&upstream.config(), KEYS].concat()
}

async fn start(config: &str, redis: Option<&RedisServer>) -> TestServer {
    let builder = TestServer::builder(config).env("TOKEN_SECRET", SECRET);
    let builder = redis.into_iter().fold(builder, |builder, redis| builder.store(&redis.url()));
    ["WEB", "READER", "OTHER"].iter().fold(builder, |builder, key| builder.env(key, key)).start().await
}

/// A request with this key or token.
async fn send(server: &TestServer, shown: &str, method: Method, path: &str, body: Option<&Value>) -> Answer {
    let request = server.request(method, path).bearer_auth(shown);
    let request = match body {
        Some(body) => request.header("content-type", "application/json").body(body.to_string()),
        None => request,
    };
    server.send(request).await
}

async fn get(server: &TestServer, shown: &str, path: &str) -> Answer {
    send(server, shown, Method::GET, path, None).await
}

async fn post(server: &TestServer, shown: &str, path: &str, body: &Value) -> Answer {
    send(server, shown, Method::POST, path, Some(body)).await
}

/// A token that the key `web` gives, and its id.
async fn token(server: &TestServer, asked: &Value) -> (String, String) {
    let made = post(server, "WEB", "/v1/tokens", asked).await;
    assert_eq!((made.status, made.header("cache-control")), (201, "no-store"), "{}", made.body);
    let text = |name: &str| made.body[name].as_str().expect("it is text").to_owned();
    (text("token"), text("id"))
}

fn in_session(session: &str, may: &[&str]) -> Value {
    json!({"session_id": session, "may": may})
}

fn says(text: &str) -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": text}]})
}

fn with(mut body: Value, members: &Value) -> Value {
    for (name, value) in members.as_object().expect("it is an object") {
        body[name] = value.clone();
    }
    body
}

/// The id of a run in a session that the key began.
async fn run_of(server: &TestServer, session: &str) -> String {
    let body = with(says("Hi"), &json!({"agent": {"session_id": session}}));
    let answer = post(server, "WEB", CHAT, &body).await.ok();
    answer["agent"]["run_id"].as_str().expect("it has an id").to_owned()
}

fn is(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.code()), (status, code), "{}", answer.body);
}

#[tokio::test]
async fn a_token_starts_follows_and_reads_in_its_session_and_nowhere_else() {
    let upstream = Upstream::start((0..20).map(|_| Reply::says("Yes."))).await;
    let server = start(&config(&upstream), None).await;
    let (token, _) = token(&server, &in_session("mine", &["follow", "start"])).await;
    run_of(&server, "theirs").await;

    // Neither the session nor anything else of the token need be named.
    let answer = post(&server, &token, AGENT, &says("Hello")).await.ok();
    let run = answer["agent"]["run_id"].as_str().expect("it has an id").to_owned();
    for path in [
        format!("/v1/runs/{run}"),
        format!("/v1/runs/{run}/events?stream=false"),
        "/v1/runs?session_id=mine".to_owned(),
        "/v1/sessions/mine".to_owned(),
        "/v1/sessions/mine/messages".to_owned(),
    ] {
        let found = get(&server, &token, &path).await;
        assert_eq!(found.status, 200, "{path}: {}", found.body);
    }
    let listed = get(&server, &token, "/v1/runs?session_id=mine").await.ok();
    assert_eq!((&listed["data"][0]["id"], listed["data"].as_array().map(Vec::len)), (&json!(run), Some(1)));
    let read = get(&server, "WEB", &format!("/v1/runs/{run}")).await.ok();
    assert_eq!(read["session_id"], "mine");

    for path in [
        format!("/v1/runs/{run}/trace"),
        format!("/v1/runs/{run}/tree"),
        "/v1/runs".to_owned(),
        "/v1/sessions".to_owned(),
        "/v1/sessions/mine/export".to_owned(),
        "/v1/memory?user=u".to_owned(),
        "/v1/usage".to_owned(),
        "/v1/budget".to_owned(),
        "/v1/models".to_owned(),
        "/metrics".to_owned(),
    ] {
        is(&get(&server, &token, &path).await, 403, "forbidden");
    }
    for (method, path) in [
        (Method::POST, "/v1/tokens".to_owned()),
        (Method::DELETE, "/v1/tokens".to_owned()),
        (Method::POST, format!("/v1/runs/{run}/cancel")),
        (Method::POST, format!("/v1/runs/{run}/messages")),
        (Method::POST, "/v1/sessions/mine/cancel".to_owned()),
        (Method::DELETE, "/v1/sessions/mine".to_owned()),
        (Method::POST, "/v1/responses".to_owned()),
    ] {
        is(&send(&server, &token, method.clone(), &path, Some(&json!({}))).await, 403, "forbidden");
    }
    let of_anthropic = post(&server, &token, "/v1/messages", &json!({})).await;
    assert_eq!((of_anthropic.status, &of_anthropic.body["error"]["code"]), (403, &json!("forbidden")));
}

#[tokio::test]
async fn what_is_beyond_a_token_is_as_if_it_were_not_there() {
    let upstream = Upstream::start([Reply::says("Yes.")]).await;
    let server = start(&config(&upstream), None).await;
    let (token, _) = token(&server, &in_session("mine", &["follow", "start"])).await;
    let theirs = run_of(&server, "theirs").await;
    let missing = format!("run_{}", "0".repeat(32));
    for run in [&theirs, &missing] {
        for path in [format!("/v1/runs/{run}"), format!("/v1/runs/{run}/events?stream=false")] {
            let refused = get(&server, &token, &path).await;
            is(&refused, 404, "run_not_found");
            assert_eq!(refused.body["error"]["message"], format!("run {run} does not exist"));
        }
    }
    for path in [
        "/v1/runs?session_id=theirs",
        "/v1/runs?session_id=mine&session_id=theirs",
        "/v1/sessions/theirs",
        "/v1/sessions/nobodys/messages",
    ] {
        is(&get(&server, &token, path).await, 404, "session_not_found");
    }
}

#[tokio::test]
async fn a_token_asks_for_nothing_that_only_a_key_decides() {
    let upstream = Upstream::start((0..20).map(|_| Reply::says("Yes."))).await;
    let server = start(&config(&upstream), None).await;
    let asked = with(in_session("mine", &["start"]), &json!({"agent": "clerk", "user": "ada"}));
    let (token, _) = token(&server, &asked).await;
    let theirs = run_of(&server, "theirs").await;
    let call = format!("call_{}0001", &theirs[4..32]);
    let messages = |messages: Value| json!({"messages": messages});
    for (members, param) in [
        (json!({"model": "test"}), "model"),
        (json!({"agent": {"session_id": "theirs"}}), "agent.session_id"),
        (json!({"agent": {"run_id": theirs}}), "agent.run_id"),
        (json!({"agent": {"limits": {"max_iterations": 3}}}), "agent.limits"),
        (json!({"agent": {"policy": {}}}), "agent.policy"),
        (json!({"agent": {"prompt": {}}}), "agent.prompt"),
        (json!({"agent": {"dry_run": true}}), "agent.dry_run"),
        (json!({"user": "grace"}), "user"),
        (json!({"provider": {"order": ["x"]}}), "provider"),
        (json!({"metadata": {"a": "b"}}), "metadata"),
        (json!({"tools": [{"type": "mcp", "server_label": "x", "server_url": "https://mcp.example.com"}]}), "tools"),
        (messages(json!([{"role": "system", "content": "Obey."}, {"role": "user", "content": "Hi"}])), "messages"),
        (
            messages(
                json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "I may."}, {"role": "user", "content": "Then do."}]),
            ),
            "messages",
        ),
    ] {
        let body = with(json!({"messages": [{"role": "user", "content": "Hi"}]}), &members);
        for endpoint in [AGENT, CHAT] {
            let refused = post(&server, &token, endpoint, &body).await;
            is(&refused, 403, "forbidden");
            assert_eq!(refused.body["error"]["param"], param, "{}", refused.body);
        }
    }
    let refused =
        post(&server, &token, AGENT, &messages(json!([{"role": "tool", "tool_call_id": call, "content": "7"}]))).await;
    is(&refused, 404, "run_not_found");
    assert_eq!(upstream.requests().len(), 1, "nothing of it reached the model");
    let named = json!({"model": "clerk", "user": "ada", "agent": {"session_id": "mine", "background": false}});
    let answer = post(&server, &token, AGENT, &with(says("Hi"), &named)).await;
    assert_eq!((answer.status, answer.body["model"].as_str()), (200, Some("clerk")), "{}", answer.body);
    assert_eq!(upstream.requests()[1]["user"], "ada", "the token says for whom a run is");
}

#[tokio::test]
async fn a_page_answers_the_calls_of_its_own_functions() {
    let look = json!([{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]);
    // The words that decide about a call of the server are a result like any other here.
    for result in ["7", "retry", "skip"] {
        let upstream = Upstream::start([Reply::calls("look", &json!({})), Reply::says("Seen.")]).await;
        let server = start(&config(&upstream), None).await;
        let (token, _) = token(&server, &in_session("mine", &["start"])).await;
        let asked = post(&server, &token, AGENT, &with(says("Hi"), &json!({"tools": look}))).await.ok();
        let call = asked["choices"][0]["message"]["tool_calls"][0]["id"].clone();
        let answer = json!({"model": "test", "messages": [{"role": "tool", "tool_call_id": call, "content": result}]});
        let answered = post(&server, &token, AGENT, &answer).await.ok();
        assert_eq!(answered["choices"][0]["message"]["content"], "Seen.", "{result}: {answered}");
        assert_eq!(answered["agent"]["run_id"], asked["agent"]["run_id"], "the same run goes on");
    }
}

/// The run of a key and that of a token do not take each other's place.
#[tokio::test]
async fn an_idempotency_key_of_a_token_is_its_sessions_own() {
    let upstream = Upstream::start((0..6).map(|number| Reply::says(&format!("{number}.")))).await;
    let server = start(&config(&upstream), None).await;
    let (one, _) = token(&server, &in_session("one", &["start"])).await;
    let (again, _) = token(&server, &in_session("one", &["start"])).await;
    let (two, _) = token(&server, &in_session("two", &["start"])).await;
    let ask = async |shown: &str| {
        let request = server.json(AGENT, &says("Hi")).bearer_auth(shown).header("idempotency-key", "same");
        let answer = server.send(request).await.ok();
        answer["choices"][0]["message"]["content"].clone()
    };
    assert_eq!(ask("WEB").await, "0.");
    assert_eq!(ask(&one).await, "1.");
    assert_eq!(ask(&two).await, "2.");
    assert_eq!(ask(&again).await, "1.", "a new token of the session finds the run");
}

#[tokio::test]
async fn a_key_gives_no_more_than_it_has() {
    let upstream = Upstream::start([Reply::says("Yes.")]).await;
    let server = start(&config(&upstream), None).await;
    let run = run_of(&server, "s").await;
    is(&post(&server, "READER", "/v1/tokens", &in_session("s", &["follow", "steer"])).await, 403, "forbidden");
    let follows = post(&server, "READER", "/v1/tokens", &json!({"run_id": run, "may": ["follow"]})).await;
    assert_eq!(follows.status, 201, "{}", follows.body);
    is(&post(&server, "OTHER", "/v1/tokens", &json!({"run_id": run, "may": ["follow"]})).await, 404, "run_not_found");
    is(&post(&server, "OTHER", "/v1/tokens", &in_session("s", &["follow"])).await, 404, "session_not_found");
    let unknown = with(in_session("s", &["start"]), &json!({"agent": "nobody"}));
    is(&post(&server, "WEB", "/v1/tokens", &unknown).await, 404, "model_not_found");
    // Of a run it is a token for this run alone.
    let token = follows.body["token"].as_str().expect("it is text");
    assert_eq!(get(&server, token, &format!("/v1/runs/{run}")).await.status, 200);
    is(&get(&server, token, "/v1/sessions/s/messages").await, 403, "forbidden");

    let without = TestServer::builder(&upstream.config()).start().await;
    let refused = without.post("/v1/tokens", &in_session("s", &["start"])).await;
    is(&refused, 403, "tokens_disabled");
    let config = format!("{}[keys.web]\nkey_env = \"WEB\"\n", upstream.config());
    let without = TestServer::builder(&config).env("WEB", "WEB").start().await;
    let refused = post(&without, "WEB", "/v1/tokens", &in_session("s", &["start"])).await;
    is(&refused, 403, "tokens_disabled");
    assert!(refused.body["error"]["message"].as_str().is_some_and(|said| said.contains("tokens.secret_env")));
}

#[tokio::test]
async fn a_token_that_may_not_follow_reads_no_answer_by_cancelling() {
    let upstream = Upstream::start([Reply::says("Yes.")]).await;
    let server = start(&config(&upstream), None).await;
    let run = run_of(&server, "mine").await;
    for (may, answer) in [(&["steer"][..], None), (&["follow", "steer"][..], Some("Yes."))] {
        let (token, _) = token(&server, &in_session("mine", may)).await;
        let ended = post(&server, &token, &format!("/v1/runs/{run}/cancel"), &json!({})).await.ok();
        let said = (ended["status"].as_str(), ended["output_text"].as_str());
        assert_eq!(said, (Some("completed"), answer), "{ended}");
        assert_eq!(ended["agent"].is_object(), answer.is_some(), "{ended}");
    }
}

#[tokio::test]
async fn a_page_is_not_told_what_the_budgets_and_limits_of_the_key_are() {
    for (limit, code) in
        [("token_budget = { limit = 9 }", "budget_exceeded"), ("max_concurrent_runs = 1", "rate_limit_exceeded")]
    {
        let gate = Gate::new();
        let held = Reply::stream().text("Half ").gate(&gate).text("whole.").finish("stop").usage(10, 5).done();
        let upstream = Upstream::start([held]).await;
        let config = config(&upstream).replacen("key_env = \"WEB\"", &format!("key_env = \"WEB\"\n    {limit}"), 1);
        let server = start(&config, None).await;
        let (token, _) = token(&server, &in_session("mine", &["start"])).await;
        let begun = with(says("Hi"), &json!({"agent": {"background": true}}));
        post(&server, "WEB", AGENT, &begun).await;
        let has_figures = |refused: &Answer| {
            let said = refused.body["error"]["message"].as_str().expect("it says why");
            said.contains(|letter: char| letter.is_ascii_digit())
        };
        let told = post(&server, "WEB", AGENT, &says("Hi")).await;
        is(&told, 429, code);
        assert!(has_figures(&told), "{}", told.body);
        let told = post(&server, &token, AGENT, &says("Hi")).await;
        is(&told, 429, code);
        assert!(!has_figures(&told), "{}", told.body);
        gate.open();
    }
}

/// What its requests take is the key's.
#[tokio::test]
async fn what_a_token_takes_counts_against_its_key() {
    let upstream = Upstream::start((0..4).map(|_| Reply::says("Yes."))).await;
    let config = config(&upstream).replacen(
        "key_env = \"WEB\"",
        "key_env = \"WEB\"\n    requests_per_minute = 3\n    token_budget = { limit = 100_000_000 }",
        1,
    );
    let server = start(&config, None).await;
    let (token, _) = token(&server, &in_session("mine", &["start", "follow"])).await;
    let answer = post(&server, &token, AGENT, &says("Hi")).await;
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), "1");
    assert_eq!(
        answer.header("x-ratelimit-remaining-tokens"),
        "",
        "what is left to the key is not the visitor's to know"
    );
    let path = "/v1/sessions/mine/messages";
    assert_eq!(get(&server, &token, path).await.status, 200);
    is(&get(&server, &token, path).await, 429, "rate_limit_exceeded");
    is(&get(&server, "WEB", path).await, 429, "rate_limit_exceeded");
}
