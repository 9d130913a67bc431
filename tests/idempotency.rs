//! One request, one run: however often it comes, wherever the server was killed meanwhile.

use futures_util::future::join_all;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::sse::{outline, text_of};
use crate::support::{Gate, Reply, SseReader, TestServer, ToolServer, Upstream};

const ENDPOINTS: [&str; 2] = ["/v1/agent/completions", "/v1/chat/completions"];

fn ask(content: &str) -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": content}]})
}

fn with(mut body: Value, name: &str, value: impl Into<Value>) -> Value {
    body[name] = value.into();
    body
}

fn keyed(server: &TestServer, path: &str, key: &str, body: &Value) -> RequestBuilder {
    server.json(path, body).header("idempotency-key", key)
}

#[tokio::test]
async fn an_idempotency_key_is_visible_ascii() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    let long = "x".repeat(256);
    for path in [ENDPOINTS[0], ENDPOINTS[1], "/v1/sessions"] {
        for key in ["", &long, "a b", "é"] {
            let body = if path == "/v1/sessions" { json!({}) } else { ask("Hi") };
            let request = server.json(path, &body).header("idempotency-key", key.as_bytes());
            let answer = server.send(request).await;
            assert_eq!((answer.status, answer.code()), (400, "invalid_value"), "{path} {key:?}");
            assert_eq!(answer.body["error"]["param"], "idempotency-key");
        }
    }
    let run = "/v1/runs/run_019a0000000070008000000000000000";
    let others = ["/v1/sessions/s/fork", "/v1/sessions/import"].map(str::to_owned);
    for path in others.into_iter().chain([format!("{run}/messages")]) {
        let answer = server.send(keyed(&server, &path, "a b", &json!({}))).await;
        assert_eq!((answer.status, answer.code()), (400, "invalid_value"), "{path}");
        assert_eq!(answer.body["error"]["param"], "idempotency-key");
    }
    // Cancelling may be repeated as it is: a key says nothing there.
    for path in ["/v1/sessions/s/cancel", &format!("{run}/cancel")] {
        for key in ["k", "a b"] {
            assert_eq!(server.send(keyed(&server, path, key, &json!({}))).await.status, 404, "{path} {key:?}");
        }
    }
}

/// Fifty at once, half of them streams, and ten that mean another session: they are refused.
#[tokio::test]
async fn parallel_duplicates_are_one_run() {
    let gate = Gate::new();
    let upstream = Upstream::start([
        Reply::calls("note", &json!({"note": "x"})),
        Reply::stream().text("One ").gate(&gate).text("run.").finish("stop").usage(10, 5).done(),
    ])
    .await;
    let tools = ToolServer::start([]).await;
    let config =
        format!("{}{}[agents.default]\ntools = [\"note\"]\n", upstream.config(), tools.config("note", "write"));
    let server = TestServer::start(&config).await;
    let in_session = |name: &str| with(ask("Hi"), "agent", json!({"session_id": name}));

    let first = with(in_session("s"), "stream", true);
    let mut stream = SseReader::new(server.respond(keyed(&server, ENDPOINTS[0], "k", &first)).await);
    let mut seen = stream.until(|frame| frame.text().is_some()).await;

    let mut duplicates = JoinSet::new();
    for number in 0..50 {
        let body = match number % 10 {
            9 => in_session("other"),
            n if n % 2 == 0 => with(in_session("s"), "stream", true),
            _ => in_session("s"),
        };
        let request = keyed(&server, ENDPOINTS[0], "k", &body);
        duplicates.spawn(async move {
            let response = request.send().await.expect("the server answers");
            let status = response.status().as_u16();
            let header =
                |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap_or_default().to_owned());
            let headers = ["x-loopgate-run-id", "idempotent-replayed", "x-should-retry"].map(header);
            (number, status, headers, response.text().await.expect("the answer is whole"))
        });
    }
    gate.reached().await;
    // The refused do not wait for the run.
    let mut refused = Vec::new();
    while refused.len() < 5 {
        refused.push(duplicates.join_next().await.expect("some are left").expect("none panics"));
    }
    for (number, status, headers, body) in refused {
        assert_eq!((number % 10, status), (9, 422), "{body}");
        assert!(body.contains("idempotency_key_reused"), "{body}");
        assert_eq!(headers[2].as_deref(), Some("false"), "repeating it cannot help");
    }
    gate.open();
    seen.extend(stream.rest().await);
    assert_eq!(text_of(&seen), "One run.");
    let run = seen[0].json()["run_id"].as_str().map(str::to_owned);
    let all = duplicates.join_all().await;
    assert_eq!(all.len(), 45);
    let whole = all.iter().find(|(number, ..)| number % 2 == 0).map(|(.., body)| body.clone());
    for (number, status, headers, body) in all {
        assert_eq!((status, &headers[0]), (200, &run), "{number}: {body}");
        if number % 2 == 0 {
            assert_eq!(Some(&body), whole.as_ref(), "{number}");
        } else {
            assert!(body.contains("One run."), "{number}: {body}");
        }
    }
    assert_eq!((upstream.requests().len(), tools.calls().len()), (2, 1));

    let request = keyed(&server, ENDPOINTS[0], "k", &first);
    let response = server.respond(request).await;
    assert_eq!(response.headers()["idempotent-replayed"], "true");
    let replayed = SseReader::new(response).rest().await;
    assert_eq!(replayed, seen, "event for event what the first one saw");
    upstream.then(Reply::says("Other"));
    let elsewhere = server.send(keyed(&server, ENDPOINTS[1], "k", &in_session("other"))).await;
    assert_eq!(elsewhere.status, 200, "each endpoint has keys of its own: {}", elsewhere.body);
}

#[tokio::test]
async fn a_duplicate_gets_the_same_answer() {
    let upstream = Upstream::start([Reply::says("Hello")]).await;
    let server = TestServer::start(&upstream.config()).await;
    for endpoint in ENDPOINTS {
        if endpoint == ENDPOINTS[1] {
            upstream.then(Reply::says("Hello"));
        }
        let first = server.send(keyed(&server, endpoint, "k", &ask("Hi"))).await;
        assert_eq!(first.header("idempotent-replayed"), "");
        // Another order and other white space ask for the same.
        let same = r#"{ "messages": [ {"content": "Hi", "role": "user"} ], "model": "test" }"#;
        let request = server.request(Method::POST, endpoint).header("content-type", "application/json").body(same);
        let again = server.send(request.header("idempotency-key", "k")).await;
        assert_eq!(again.header("idempotent-replayed"), "true");
        assert_eq!((again.status, &again.body), (200, &first.body));
        let other = server.send(keyed(&server, endpoint, "k", &ask("Ho"))).await;
        assert_eq!((other.status, other.code()), (422, "idempotency_key_reused"));
        assert_eq!(other.header("x-should-retry"), "false");
    }
    upstream.then(Reply::says("Later"));
    let background = with(ask("Go"), "agent", json!({"background": true}));
    let accepted = server.send(keyed(&server, ENDPOINTS[0], "b", &background)).await;
    assert_eq!((accepted.status, &accepted.body["status"]), (202, &json!("queued")));
    let run = accepted.body["id"].as_str().expect("it has an id").to_owned();
    server.events(&run, 0).await.rest().await;
    let again = server.send(keyed(&server, ENDPOINTS[0], "b", &background)).await;
    assert_eq!((again.status, &again.body["id"]), (202, &accepted.body["id"]));
    assert_eq!(again.body["status"], "completed", "the run as it is");
}

/// A failure is an answer too: under a key it stays what it is, and clients are told so.
#[tokio::test]
async fn a_failure_is_repeated_without_asking_the_model_again() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::error(400, "bad", "no"));
    let server = TestServer::start(&upstream.config()).await;
    let first = server.send(keyed(&server, ENDPOINTS[0], "k", &ask("Hi"))).await;
    assert!(first.status >= 400, "{}", first.body);
    let asked = upstream.requests().len();
    let again = server.send(keyed(&server, ENDPOINTS[0], "k", &ask("Hi"))).await;
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!((again.header("x-should-retry"), again.header("idempotent-replayed")), ("false", "true"));
    assert_eq!(upstream.requests().len(), asked);
}

#[tokio::test]
async fn a_refused_request_is_not_kept() {
    let upstream = Upstream::start([Reply::says("Hello")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let refused = [
        with(ask("Hi"), "temperature", 9),
        with(ask("Hi"), "model", "nonsense"),
        with(ask("Hi"), "agent", json!({"limits": {"token_budget": 1}})),
        with(ask("Hi"), "agent", json!({"run_id": "run_019a0000000070008000000000000000"})),
    ];
    for body in refused {
        let answer = server.send(keyed(&server, ENDPOINTS[0], "k", &body)).await;
        assert!((400..500).contains(&answer.status) && answer.status != 422, "{body} {}", answer.body);
    }
    server.send(keyed(&server, ENDPOINTS[0], "k", &ask("Hi"))).await.ok();
}

#[tokio::test]
async fn a_session_is_created_once() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    let body = json!({"metadata": {"a": "b"}});
    let create = async |key: &str, body: &Value| server.send(keyed(&server, "/v1/sessions", key, body)).await;
    let first = create("k", &body).await;
    let again = create("k", &body).await;
    assert_eq!((first.status, again.status, &again.body), (201, 201, &first.body));
    assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), ("", "true"));
    assert_ne!(create("other", &body).await.body["id"], first.body["id"]);
    assert_eq!(create("k", &json!({})).await.status, 422);
}

#[tokio::test]
async fn a_session_is_copied_once() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    let messages = json!([{"role": "user", "content": "Hi"}]);
    for id in ["s", "t"] {
        server.post("/v1/sessions", &json!({"id": id, "messages": messages})).await.ok();
    }
    let send = async |path: &str, body: &Value| server.send(keyed(&server, path, "k", body)).await;
    let fork = "/v1/sessions/s/fork";
    let first = send(fork, &json!({"at": 1})).await;
    let again = send(fork, &json!({ "at": 1 })).await;
    assert_eq!((first.status, again.status, &again.body), (201, 201, &first.body));
    assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), ("", "true"));
    let other = send(fork, &json!({"at": 0})).await;
    assert_eq!((other.status, other.code()), (422, "idempotency_key_reused"));
    let elsewhere = send("/v1/sessions/t/fork", &json!({"at": 1})).await;
    assert_eq!((elsewhere.status, elsewhere.header("idempotent-replayed")), (201, ""), "another path, another key");
    assert_eq!(server.send(server.request(Method::DELETE, "/v1/sessions/s")).await.status, 200);
    let again = send(fork, &json!({"at": 1})).await;
    assert_eq!((again.status, &again.body), (201, &first.body), "though its source is gone");

    // A refused request leaves its key unused.
    let fork = "/v1/sessions/t/fork";
    let send_new = async |body: &Value| server.send(keyed(&server, fork, "new", body)).await;
    assert_eq!(send_new(&json!({"at": 9})).await.status, 400);
    assert_eq!(send_new(&json!({"id": "t"})).await.code(), "version_conflict");
    assert_eq!(send_new(&json!({"id": "u"})).await.ok()["id"], "u");
    assert_eq!(send_new(&json!({"id": "u"})).await.header("idempotent-replayed"), "true");

    let exported = server.get("/v1/sessions/t/export").await.ok();
    let import = "/v1/sessions/import";
    assert_eq!(send(import, &exported).await.code(), "version_conflict", "it is there, though not by this request");
    assert_eq!(server.send(server.request(Method::DELETE, "/v1/sessions/t")).await.status, 200);
    let first = send(import, &exported).await;
    let again = send(import, &exported).await;
    assert_eq!((first.status, again.status, &again.body), (201, 201, &first.body));
    assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), ("", "true"));
    assert_eq!(send(import, &with(exported, "id", "v")).await.code(), "idempotency_key_reused");
}

#[tokio::test]
async fn a_command_to_a_live_run_is_applied_once() {
    let gate = Gate::new();
    let held = Reply::stream().text("One").gate(&gate).finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held, Reply::says("Two")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let mut stream = server.stream(ENDPOINTS[0], &with(ask("Hi"), "stream", true)).await;
    let run = stream.next().await.expect("it begins").json()["run_id"].as_str().expect("its id").to_owned();
    gate.reached().await;
    let path = format!("/v1/runs/{run}/messages");
    let told = json!({"messages": [{"role": "user", "content": "rather this"}]});
    let first = server.send(keyed(&server, &path, "k", &told)).await;
    let again = server.send(keyed(&server, &path, "k", &told)).await;
    assert_eq!((first.status, again.status, &again.body), (202, 202, &first.body));
    assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), ("", "true"));
    let other = json!({"messages": [{"role": "user", "content": "that"}]});
    let refused = server.send(keyed(&server, &path, "k", &other)).await;
    assert_eq!((refused.status, refused.code()), (422, "idempotency_key_reused"));
    gate.open();
    stream.rest().await;
    let heard = upstream.requests().last().expect("it was asked").to_string();
    assert_eq!((upstream.requests().len(), heard.matches("rather this").count()), (2, 1), "{heard}");
    let late = server.send(keyed(&server, &path, "k", &told)).await;
    assert_eq!((late.status, late.header("idempotent-replayed")), (202, "true"));
    assert_eq!(late.body["status"], "completed", "the run as it stands");
    assert_eq!(server.send(keyed(&server, &path, "late", &told)).await.code(), "run_not_waiting");
}

/// A server that is killed between a request's arrival and its run's start: the same request starts or finds one
/// run.
#[tokio::test]
async fn a_kill_at_the_start_makes_no_second_run() {
    let points = ["claim.recorded", "run.before_create", "run.indexed", "run.created"];
    join_all(points.map(killed_at)).await;
}

async fn killed_at(point: &str) {
    let upstream = Upstream::start([Reply::says("First"), Reply::says("Hello")]).await;
    let config = upstream.config();
    // The second request of each process dies.
    let mut server = TestServer::builder(&config).env("LOOPGATE_FAILPOINT", &format!("{point}:2")).start().await;
    server.send(keyed(&server, ENDPOINTS[0], "a", &ask("A"))).await.ok();
    let lost = keyed(&server, ENDPOINTS[0], "b", &ask("B")).send().await;
    assert!(lost.is_err(), "{point}: the server is dead");
    server.ended().await;
    server.restart().await;
    let answer = server.send(keyed(&server, ENDPOINTS[0], "b", &with(ask("B"), "stream", false))).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "Hello", "{point}");
    let runs = server.get("/v1/runs").await.ok();
    assert_eq!(runs["data"].as_array().map(Vec::len), Some(2), "{point}: {runs}");
    assert_eq!(upstream.requests().len(), 2, "{point}");
}

/// What OpenAI's libraries do when they hear nothing: send it again, and say so.
#[tokio::test]
async fn a_retried_attempt_joins_its_run() {
    let gate = Gate::new();
    let held = Reply::stream().text("O").gate(&gate).text("ne").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held, Reply::says("Two")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let attempt = |count: &str, body: &Value| server.json(ENDPOINTS[1], body).header("x-stainless-retry-count", count);
    let streamed = with(ask("Hi"), "stream", true);
    let mut lost = SseReader::of_chunks(server.respond(attempt("0", &streamed)).await);
    lost.until(|frame| frame.text().is_some()).await;
    gate.reached().await;
    drop(lost);
    let joined = SseReader::of_chunks(server.respond(attempt("1", &streamed)).await);
    gate.open();
    let joined = joined.rest().await;
    assert_eq!(text_of(&joined), "One", "{}", outline(&joined));
    let after = server.respond(attempt("2", &streamed)).await;
    assert_eq!(after.headers()["idempotent-replayed"], "true");
    assert_eq!(SseReader::of_chunks(after).rest().await, joined);
    let anew = SseReader::of_chunks(server.respond(attempt("0", &streamed)).await).rest().await;
    assert_eq!(text_of(&anew), "Two", "a first attempt is another request");
}

/// A client that names its request comes back for the answer, so its run goes on without it.
#[tokio::test]
async fn a_named_run_outlives_its_client() {
    let gate = Gate::new();
    let reply = Reply::stream().text("Hel").gate(&gate).text("lo").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([reply]).await;
    let server = TestServer::start(&upstream.config()).await;
    let body = with(with(ask("Hi"), "stream", true), "agent", json!({"reconnect_grace_ms": 1}));
    let mut stream = SseReader::new(server.respond(keyed(&server, ENDPOINTS[0], "k", &body)).await);
    let seen = stream.until(|frame| frame.text().is_some()).await;
    let run = seen[0].json()["run_id"].as_str().expect("it has an id").to_owned();
    drop(stream);
    // The run of another client, which names no request, shows that so much time has passed.
    upstream.then(Reply::stream().text("x").stall());
    let mut other = server.stream(ENDPOINTS[0], &body).await;
    let seen = other.until(|frame| frame.text().is_some()).await;
    drop(other);
    ended(&server, seen[0].json()["run_id"].as_str().expect("it has an id")).await;
    assert_eq!(server.get(&format!("/v1/runs/{run}")).await.ok()["status"], "in_progress");
    gate.open();
    let answer = server.send(keyed(&server, ENDPOINTS[0], "k", &with(body, "stream", false))).await;
    assert_eq!(answer.ok()["choices"][0]["message"]["content"], "Hello");
}

/// What nobody read and nothing was done for is no result to give again.
#[tokio::test]
async fn a_named_run_that_ended_with_its_client_is_begun_anew() {
    let upstream = Upstream::start([Reply::stream().text("Hel").stall()]).await;
    let server = TestServer::start(&upstream.config()).await;
    let agent = json!({"reconnect_grace_ms": 1, "on_disconnect": "cancel"});
    let body = with(with(ask("Hi"), "stream", true), "agent", agent);
    let mut stream = SseReader::new(server.respond(keyed(&server, ENDPOINTS[0], "k", &body)).await);
    let seen = stream.until(|frame| frame.text().is_some()).await;
    let run = seen[0].json()["run_id"].as_str().expect("it has an id").to_owned();
    drop(stream);
    assert_eq!(ended(&server, &run).await, "cancelled");
    upstream.then(Reply::says("Hello"));
    for replayed in ["", "true"] {
        let again = server.send(keyed(&server, ENDPOINTS[0], "k", &with(body.clone(), "stream", false))).await;
        assert_eq!(again.header("idempotent-replayed"), replayed);
        assert_ne!(again.header("x-loopgate-run-id"), run);
        assert_eq!(again.ok()["choices"][0]["message"]["content"], "Hello");
    }
}

/// What the tool did would be done twice.
#[tokio::test]
async fn a_named_run_that_called_a_tool_is_not_begun_anew_when_its_client_has_gone() {
    // The client goes while the tool is at work, and after it has answered.
    for is_answered in [false, true] {
        let answer = if is_answered { Reply::plain("paid") } else { Reply::plain("").stall() };
        let tools = ToolServer::start([answer]).await;
        let then = is_answered.then(|| Reply::stream().text("Pai").stall());
        let upstream = Upstream::start([Reply::calls("pay", &json!({}))].into_iter().chain(then)).await;
        let agent = "[agents.default]\ntools = [\"pay\"]\n";
        let config = format!("{}{}{agent}", upstream.config(), tools.config("pay", "write"));
        let server = TestServer::start(&config).await;
        let agent = json!({"reconnect_grace_ms": 1, "on_disconnect": "cancel", "on_unknown_outcome": "tell_model"});
        let body = with(with(ask("Pay."), "stream", true), "agent", agent);
        let mut stream = SseReader::new(server.respond(keyed(&server, ENDPOINTS[0], "k", &body)).await);
        tools.called(1).await;
        let seen = stream.until(|frame| frame.name == "tool.call").await;
        if is_answered {
            stream.until(|frame| frame.text().is_some()).await;
        }
        let run = seen[0].json()["run_id"].as_str().expect("it has an id").to_owned();
        drop(stream);
        assert_eq!(ended(&server, &run).await, "cancelled");
        let again = server.send(keyed(&server, ENDPOINTS[0], "k", &with(body, "stream", false))).await;
        let replayed = (again.header("idempotent-replayed"), again.header("x-loopgate-run-id"));
        assert_eq!(replayed, ("true", run.as_str()), "{is_answered}: {}", again.body);
        assert_eq!(tools.calls().len(), 1, "{is_answered}");
    }
}

/// The status of a run once it has ended.
async fn ended(server: &TestServer, run: &str) -> String {
    for _ in 0..1000 {
        let status =
            server.get(&format!("/v1/runs/{run}")).await.ok()["status"].as_str().unwrap_or_default().to_owned();
        if !["queued", "in_progress"].contains(&status.as_str()) {
            return status;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the run {run} does not end");
}
