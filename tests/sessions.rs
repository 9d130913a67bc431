//! Sessions and streams from outside: cut, resumed, cancelled, carried from one server to another.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::support::sse::text_of;
use crate::support::{Frame, Gate, Reply, SseReader, TestServer, Upstream};

const CHAT: &str = "/v1/chat/completions";

fn ask(content: &str, agent: &Value) -> Value {
    json!({"model": "test", "messages": [{"role": "user", "content": content}], "agent": agent})
}

fn stream(content: &str, agent: &Value) -> Value {
    let mut request = ask(content, agent);
    request["stream"] = true.into();
    request["stream_options"] = json!({"include_usage": true});
    request
}

/// A run that calls a tool and answers in pieces.
fn replies() -> [Reply; 2] {
    let call = Reply::calls("calculator", &json!({"expression": "6 * 7"}));
    [call, Reply::stream().text("It ").text("is ").text("42.").finish("stop").usage(10, 5).done()]
}

/// The run's stream after event `after`, in a mode.
async fn resume(server: &TestServer, run: &str, mode: &str, after: u64) -> Vec<Frame> {
    let path = format!("/v1/runs/{run}/events?include_usage=true&events={mode}");
    let request = server.request(Method::GET, &path).header("last-event-id", after);
    reader(server.respond(request).await, mode).rest().await
}

fn reader(response: Response, mode: &str) -> SseReader {
    if mode == "native" { SseReader::new(response) } else { SseReader::of_chunks(response) }
}

#[tokio::test]
async fn streams_of_every_mode_go_on_after_any_event() {
    for mode in ["native", "extension", "none"] {
        let upstream = Upstream::start(replies()).await;
        let mut server = TestServer::start(&upstream.config()).await;
        let response = server.respond(server.json(CHAT, &stream("What?", &json!({"events": mode})))).await;
        let run = response.headers()["x-loopgate-run-id"].to_str().expect("it is plain").to_owned();
        let whole = reader(response, mode).rest().await;
        let last = whole.iter().filter_map(|frame| frame.id).max().expect("there are numbers");
        assert_eq!(whole[whole.len() - 1].data, "[DONE]");
        server.kill9().await;
        server.restart().await;
        assert_eq!(resume(&server, &run, mode, 0).await, whole, "{mode}");
        for (at, id) in whole.iter().enumerate().filter_map(|(at, frame)| Some((at, frame.id?))) {
            if id < last {
                assert_eq!(resume(&server, &run, mode, id).await, whole[at + 1..], "{mode} after {id}");
            }
        }
        let path = format!("/v1/runs/{run}/events?events={mode}&after={last}");
        assert_eq!(server.get(&path).await.status, 204, "{mode}");
    }
}

#[tokio::test]
async fn a_cut_stream_of_chunks_goes_on_while_the_run_is_live() {
    let gate = Gate::new();
    let held = Reply::stream().text("One, ").gate(&gate).text("two.").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held]).await;
    let server = TestServer::start(&upstream.config()).await;
    let response = server.respond(server.json(CHAT, &stream("Count", &json!({})))).await;
    let run = response.headers()["x-loopgate-run-id"].to_str().expect("it is plain").to_owned();
    let mut reader = SseReader::of_chunks(response);
    let seen = reader.until(|frame| frame.text().is_some_and(|text| !text.is_empty())).await;
    gate.reached().await;
    drop(reader);
    let path = format!("/v1/runs/{run}/events?events=none&include_usage=true");
    let request = server.request(Method::GET, &path).header("last-event-id", seen[seen.len() - 1].id.unwrap_or(0));
    let rest = SseReader::of_chunks(server.respond(request).await);
    gate.open();
    let rest = rest.rest().await;
    assert_eq!(text_of(&seen) + &text_of(&rest), "One, two.");
    assert_eq!([seen, rest].concat(), resume(&server, &run, "none", 0).await);
}

#[tokio::test]
async fn unknown_stream_modes_are_refused() {
    let upstream = Upstream::start(replies()).await;
    let server = TestServer::start(&upstream.config()).await;
    let run = server.post(CHAT, &ask("What?", &json!({}))).await.ok()["agent"]["run_id"].as_str().map(str::to_owned);
    let run = run.expect("it has an id");
    for query in ["events=all", "events=", "include_usage=yes", "events=none&stream=false"] {
        let answer = server.get(&format!("/v1/runs/{run}/events?{query}")).await;
        assert_eq!((answer.status, answer.code()), (400, "invalid_value"), "{query}");
    }
}

#[tokio::test]
async fn a_sessions_runs_are_cancelled_together() {
    let gate = Gate::new();
    let upstream = Upstream::start([Reply::stream().text("Wait").gate(&gate).done()]).await;
    upstream.otherwise(Reply::says("Hello"));
    let server = TestServer::start(&upstream.config()).await;
    let mut live = server.stream("/v1/agent/completions", &stream("A", &json!({"session_id": "s"}))).await;
    let run = live.until(|frame| frame.name == "run.started").await[0].json()["run_id"].clone();
    gate.reached().await;
    let cancelled = server.post("/v1/sessions/s/cancel", &json!({})).await.ok();
    assert_eq!((&cancelled["object"], &cancelled["data"][0]["id"]), (&json!("list"), &run));
    assert_eq!((&cancelled["data"][0]["status"], &cancelled["has_more"]), (&json!("cancelled"), &json!(false)));
    live.until(|frame| frame.name == "run.cancelled").await;
    assert_eq!(server.post("/v1/sessions/s/cancel", &json!({})).await.ok()["data"], json!([]));
    let answer = server.post("/v1/agent/completions", &ask("B", &json!({"session_id": "s"}))).await.ok();
    assert_eq!(answer["agent"]["status"], "completed");
}

/// What the messages of a request say.
fn contents(request: &Value) -> Vec<&str> {
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    messages.iter().map(|message| message["content"].as_str().unwrap_or_default()).collect()
}

#[tokio::test]
async fn a_conversation_forks_and_moves_to_another_server() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello"));
    let (here, there) = (TestServer::start(&upstream.config()).await, TestServer::start(&upstream.config()).await);
    for question in ["A", "B"] {
        here.post(CHAT, &ask(question, &json!({"session_id": "s"}))).await.ok();
    }
    let forked = here.post("/v1/sessions/s/fork", &json!({"at": 2, "id": "f"})).await;
    assert_eq!((forked.status, &forked.body["message_count"], &forked.body["runs"]), (201, &json!(2), &json!(0)));
    here.post(CHAT, &ask("C", &json!({"session_id": "f"}))).await.ok();
    here.post(CHAT, &ask("D", &json!({"session_id": "s"}))).await.ok();
    let exported = here.get("/v1/sessions/f/export").await.ok();
    let imported = there.post("/v1/sessions/import", &exported).await;
    assert_eq!((imported.status, &imported.body["runs"]), (201, &json!(1)));
    assert_eq!(there.get("/v1/sessions/f/export").await.ok(), exported);
    there.post(CHAT, &ask("E", &json!({"session_id": "f"}))).await.ok();
    let requests = upstream.received(5).await;
    assert_eq!(contents(&requests[2]), ["A", "Hello", "C"]);
    assert_eq!(contents(&requests[3]), ["A", "Hello", "B", "Hello", "D"]);
    assert_eq!(contents(&requests[4]), ["A", "Hello", "C", "Hello", "E"]);
}

/// `at` may fall between a call and its result, where no conversation can end.
#[tokio::test]
async fn a_fork_within_a_call_names_the_places_that_work_or_takes_the_one_before() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    let call = json!({"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let messages = json!([
        {"role": "user", "content": "A"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "B"},
        {"role": "assistant", "content": "C"},
    ]);
    assert_eq!(server.post("/v1/sessions", &json!({"id": "s", "messages": messages})).await.status, 201);
    let fork = async |query: &str, at: u64, key: &str| {
        let request = server.json(&format!("/v1/sessions/s/fork{query}"), &json!({"at": at}));
        server.send(request.header("idempotency-key", key)).await
    };
    let refused = fork("", 2, "k").await;
    assert_eq!((refused.status, refused.code()), (400, "invalid_value"), "{}", refused.body);
    assert_eq!(refused.body["error"]["param"], "at");
    let message = refused.body["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains('1') && message.contains('3'), "{message}");
    let rounded = fork("?round=down", 2, "k").await;
    assert_eq!((rounded.status, &rounded.body["message_count"]), (201, &json!(1)), "{}", rounded.body);
    let again = fork("?round=down", 2, "k").await;
    assert_eq!((&again.body["id"], again.header("idempotent-replayed")), (&rounded.body["id"], "true"));
    let whole = fork("", 3, "k").await;
    assert_eq!((whole.status, &whole.body["message_count"]), (201, &json!(3)), "the key is that of another route");
    for other in ["?round=up", "?round="] {
        let refused = fork(other, 2, "l").await;
        assert_eq!((refused.status, refused.code()), (400, "invalid_value"), "{other}");
        assert_eq!(refused.body["error"]["param"], "round");
    }
}

#[tokio::test]
async fn a_session_of_an_agent_that_does_not_exist_is_refused() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&upstream.config()).await;
    let refused = server.post("/v1/sessions", &json!({"id": "s", "agent": "nobody"})).await;
    assert_eq!((refused.status, refused.code()), (404, "model_not_found"));
    assert_eq!(refused.body["error"]["param"], "agent");
    server.post("/v1/sessions", &json!({"id": "s", "agent": "test"})).await.ok();
}
