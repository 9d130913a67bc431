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

/// What the client is asked is open, and what was said before is not lost, wherever the session goes.
#[tokio::test]
async fn a_copy_of_a_session_whose_run_waits_has_what_was_said_and_says_what_it_leaves_out() {
    let call = Reply::stream().text("Which?").tool_call(0, "a", "pick", "{}").finish("tool_calls").usage(9, 1).done();
    let upstream = Upstream::start([call, Reply::says("Later."), Reply::says("Red.")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let mut asked = ask("Pick one.", &json!({"session_id": "s"}));
    asked["tools"] = json!([{"type": "function", "function": {"name": "pick"}}]);
    let waits = server.post(CHAT, &asked).await.ok();
    let call = waits["choices"][0]["message"]["tool_calls"][0]["id"].clone();

    let mut copy = server.get("/v1/sessions/s/export").await.ok();
    assert_eq!(copy["messages"], json!([]), "a run adds its messages when it ends");
    let run = &copy["unfinished"][0];
    assert_eq!((&run["id"], &run["status"]), (&waits["agent"]["run_id"], &json!("requires_action")), "{copy}");
    assert_eq!((&run["calls"][0]["call_id"], &run["calls"][0]["name"]), (&call, &json!("pick")), "{copy}");
    let roles: Vec<_> = run["messages"].as_array().expect("it has messages").iter().map(|said| &said["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool"], "{copy}");

    copy["id"] = "copy".into();
    let restored = server.post("/v1/sessions/import", &copy).await;
    assert_eq!((restored.status, &restored.body["message_count"]), (201, &json!(3)), "{}", restored.body);
    assert_eq!(restored.body["warnings"][0]["code"], "pending_calls_dropped", "{}", restored.body);
    server.post(CHAT, &ask("And now?", &json!({"session_id": "copy"}))).await.ok();
    let told = upstream.requests().pop().expect("the model was asked")["messages"].to_string();
    assert!(told.contains("Pick one.") && told.contains("The run ended before this call was answered."), "{told}");

    // A server at which the run does not wait knows nothing of its calls; where it waits, it is answered.
    let late = json!({"model": "test", "agent": {"session_id": "copy"},
        "messages": [{"role": "tool", "tool_call_id": call, "content": "red"}]});
    let other = TestServer::start(&upstream.config()).await;
    assert_eq!(other.post("/v1/sessions/import", &copy).await.status, 201);
    let refused = other.post(CHAT, &late).await;
    assert_eq!((refused.status, &refused.body["error"]["code"]), (400, &json!("invalid_value")), "{}", refused.body);
    let answered = server.post(CHAT, &late).await.ok();
    let (answer, session) = (&answered["choices"][0]["message"]["content"], &answered["agent"]["session_id"]);
    assert_eq!((answer, session), (&json!("Red."), &json!("s")));
    let whole = server.get("/v1/sessions/s/export").await.ok();
    assert!(whole["unfinished"].is_null() && whole["messages"].as_array().map(Vec::len) == Some(4), "{whole}");
}

#[tokio::test]
async fn a_copy_says_which_runs_had_not_ended() {
    let gate = Gate::new();
    let held = Reply::stream().text("One").gate(&gate).text(" two.").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([held]).await;
    let server = TestServer::start(&upstream.config()).await;
    let begun = server.respond(server.json(CHAT, &stream("Count", &json!({"session_id": "s"})))).await;
    gate.reached().await;
    let mut copy = server.get("/v1/sessions/s/export?include=runs").await.ok();
    let run = &copy["unfinished"][0];
    assert_eq!(
        (&run["status"], &run["messages"], &copy["runs"][0]["id"]),
        (&json!("in_progress"), &json!([]), &run["id"])
    );
    copy["id"] = "copy".into();
    let restored = server.post("/v1/sessions/import", &copy).await.body;
    assert_eq!(restored["warnings"][0]["code"], "run_dropped", "{restored}");
    // Whatever stands there, the pairs of an import are whole.
    let call = json!({"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    copy["unfinished"][0]["messages"] = json!([{"role": "assistant", "content": null, "tool_calls": [call]}]);
    copy["id"] = "other".into();
    let refused = server.post("/v1/sessions/import", &copy).await;
    assert_eq!(
        (refused.status, &refused.body["error"]["param"]),
        (400, &json!("unfinished[0].messages[0]")),
        "{}",
        refused.body
    );
    gate.open();
    SseReader::of_chunks(begun).rest().await;
}

#[tokio::test]
async fn runs_and_sessions_are_listed_by_what_they_are_of() {
    let upstream = Upstream::start([]).await;
    upstream.otherwise(Reply::says("Hello."));
    let server = TestServer::start(&upstream.config()).await;
    for (user, team, session) in [("ann", "red", "one"), ("ann & co", "blue", "two"), ("bob", "red", "three")] {
        let mut asked = ask("Hi", &json!({"session_id": session}));
        (asked["user"], asked["metadata"]) = (user.into(), json!({"team": team}));
        let said = json!({"id": session, "metadata": {"team": team}});
        server.post("/v1/sessions", &said).await;
        server.post(CHAT, &asked).await.ok();
    }
    for (query, expected) in [
        ("user=ann", vec!["one"]),
        ("user=ann+%26+co", vec!["two"]),
        ("user=", vec![]),
        ("metadata[team]=red", vec!["three", "one"]),
        ("metadata%5Bteam%5D=red&user=bob", vec!["three"]),
        ("metadata[team]=red&metadata[more]=x", vec![]),
        ("agent=default&limit=2", vec!["three", "two"]),
        ("agent=nobody", vec![]),
    ] {
        let runs = server.get(&format!("/v1/runs?{query}")).await.ok();
        let sessions = server.get(&format!("/v1/sessions?{query}")).await.ok();
        let of = |list: &Value, name: &str| -> Vec<String> {
            let data = list["data"].as_array().expect("it is a list");
            data.iter().map(|entry| entry[name].as_str().expect("it has one").to_owned()).collect()
        };
        assert_eq!(of(&runs, "session_id"), expected, "{query}");
        assert_eq!(of(&sessions, "id"), expected, "{query}");
    }
    let session = server.get("/v1/sessions/one").await.ok();
    let run = server.get("/v1/runs?user=ann").await.ok()["data"][0].clone();
    assert_eq!((&session["user"], &session["last_run"]["agent"]), (&json!("ann"), &json!("default")), "{session}");
    assert_eq!((&run["user"], &run["agent_name"]), (&json!("ann"), &json!("default")), "{run}");
    assert_eq!(run["called_model"], session["last_run"]["model"], "{run}");
    let refused = server.get(&format!("/v1/runs?metadata[team]={}", "x".repeat(600))).await;
    assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &json!("metadata.team")), "{}", refused.body);
}
