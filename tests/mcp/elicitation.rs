//! Servers that ask the user something in the middle of a call: who is asked, who may answer, and what becomes of questions that
//! no user answers.

use serde_json::{Value, json};

use super::requests::{Listening, TOKEN};
use super::{ENDPOINT, config, is_running, told, until};
use crate::support::redis::RedisServer;
use crate::support::sse::outline;
use crate::support::{Answer, Frame, Reply, SseReader, TestServer, Upstream, within};

/// Lets a server ask, long enough for a test.
const ASKS: &str = "elicitation = true\nelicitation_timeout = \"60s\"\n";

/// A server that listens, as the operator declares it.
fn listening(upstream: &Upstream, server: &Listening, more: &str) -> String {
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    format!(
        "{}[mcp.test]\nurl = {url:?}\nheaders = {{ authorization = \"Bearer {TOKEN}\" }}\n{more}[agents.default]\ntools = [\"test__*\"]\n",
        upstream.config()
    )
}

fn form() -> Value {
    let properties = json!({"email": {"type": "string", "format": "email"}, "age": {"type": "integer", "minimum": 0}});
    json!({"message": "\u{1b}[31mWho are you?", "schema": {"type": "object", "properties": properties, "required": ["email"]}})
}

/// A run whose model has the tool ask, and then says that it is done.
fn script(upstream: &Upstream, arguments: &Value) {
    upstream.then(Reply::calls("test__ask", arguments));
    upstream.then(Reply::says("Done."));
}

fn request(more: &Value) -> Value {
    let mut agent = json!({"on_unknown_outcome": "tell_model"});
    for (name, value) in more.as_object().expect("it is an object") {
        agent[name] = value.clone();
    }
    json!({"model": "test", "stream": true, "messages": [{"role": "user", "content": "Go."}], "agent": agent})
}

/// A run that has asked: its stream, its id, and the question.
async fn asked(server: &TestServer) -> (SseReader, String, Value) {
    let mut stream = server.stream(ENDPOINT, &request(&json!({}))).await;
    let before = stream.until(|frame| frame.name == "question.asked").await;
    let run = before[0].json()["run_id"].as_str().expect("it has an id").to_owned();
    let question = before.last().expect("it is there").json();
    (stream, run, question)
}

async fn answer(server: &TestServer, run: &str, body: &Value) -> Answer {
    server.post(&format!("/v1/runs/{run}/answers"), body).await
}

/// What became of a question, among these events.
fn resolved(events: &[Frame]) -> Value {
    let found: Vec<Value> = events.iter().filter(|frame| frame.name == "question.resolved").map(Frame::json).collect();
    assert_eq!(found.len(), 1, "{}", outline(events));
    found[0].clone()
}

async fn shared(upstream: &Upstream, redis: &RedisServer) -> TestServer {
    TestServer::builder(&config(upstream, "", ASKS)).store(&redis.url()).start().await
}

#[tokio::test]
async fn a_user_answers_what_a_server_asks_over_both_transports_and_in_all_revisions() {
    let crm = Listening::with(&[]).await;
    let upstream = Upstream::start([]).await;
    for (config, revision) in [
        (config(&upstream, "", ASKS), "2025-11-25"),
        (config(&upstream, ", \"--modern\"", ASKS), "2026-07-28"),
        (listening(&upstream, &crm, &format!("{ASKS}session = \"run\"\n")), "2025-11-25"),
    ] {
        let server = TestServer::builder(&config).env("LOOPGATE_LOG", "trace").start().await;
        script(&upstream, &form());
        let (stream, run, question) = asked(&server).await;
        assert_eq!(
            (&question["question_id"], &question["server"]),
            (&json!("question_1"), &json!("test")),
            "{question}"
        );
        assert_eq!((&question["name"], &question["message"]), (&json!("test__ask"), &json!("Who are you?")));
        assert_eq!(question["schema"]["properties"]["age"]["type"], "integer", "{question}");
        assert!(question["expires_ms"].is_u64() && question["call_id"].is_string(), "{question}");
        let accept = |said: Value| json!({"question_id": "question_1", "action": "accept", "answer": said});
        for (said, param) in [
            (json!({"email": "nobody"}), "answer.email"),
            (json!({"email": "a@b.test", "age": -1}), "answer.age"),
            (json!({"email": "a@b.test", "key": "x"}), "answer.key"),
            (json!({}), "answer"),
        ] {
            let refused = answer(&server, &run, &accept(said)).await;
            let error = &refused.body["error"];
            assert_eq!(
                (refused.status, &error["param"], &error["code"]),
                (400, &json!(param), &json!("invalid_value"))
            );
        }
        let unknown = answer(&server, &run, &json!({"question_id": "question_2", "action": "decline"})).await;
        assert_eq!((unknown.status, unknown.code()), (404, "call_not_found"));
        let mine = accept(json!({"email": "mine@secret.test", "age": 7}));
        assert_eq!(answer(&server, &run, &mine).await.status, 202);
        let rest = within("the end", stream.rest()).await;
        let end = "question.resolved tool.result step.completed step.started text step.completed run.completed";
        assert_eq!(outline(&rest), end, "{revision}");
        let resolved = resolved(&rest);
        assert_eq!((&resolved["action"], &resolved["answer"]["age"]), (&json!("accept"), &json!(7)), "{resolved}");
        let told = told(&upstream);
        assert!(told.contains("accept") && told.contains("mine@secret.test"), "{revision}: {told}");
        let again = answer(&server, &run, &mine).await;
        assert_eq!((again.status, again.header("idempotent-replayed")), (202, "true"));
        let other = answer(&server, &run, &accept(json!({"email": "c@d.test"}))).await;
        assert_eq!((other.status, other.code()), (409, "run_not_waiting"));
        server.logged("an MCP server listed its tools").await;
        assert!(!server.output().contains("mine@secret.test"), "what a user says is in no log: {}", server.output());
    }
    let declared = crm.got("/params/protocolVersion");
    assert!(!declared.is_empty());
}

#[tokio::test]
async fn a_server_asks_nothing_unless_the_operator_lets_it() {
    let file = tempfile::NamedTempFile::new().expect("it can be made");
    let journal = || std::fs::read_to_string(file.path()).expect("it is there");
    let options = format!(", \"--journal\", {:?}", file.path().display().to_string());
    let upstream = Upstream::start([]).await;
    let declares = |journal: &str| journal.contains("\"capabilities\": {\"elicitation\": {\"form\": {");
    for (more, arguments) in [("", form()), (ASKS, json!({"url": "https://elsewhere.test/"}))] {
        std::fs::write(file.path(), "").expect("it can be written");
        let server = TestServer::start(&config(&upstream, &options, more)).await;
        script(&upstream, &arguments);
        let events = within("the end", server.stream(ENDPOINT, &request(&json!({}))).await.rest()).await;
        assert!(!outline(&events).contains("question"), "{}", outline(&events));
        assert!(told(&upstream).contains("decline"), "{}", told(&upstream));
        assert_eq!(declares(&journal()), !more.is_empty(), "{}", journal());
    }
}

#[tokio::test]
async fn another_replica_tells_of_a_question_and_takes_its_answer_for_a_run_without_readers() {
    let redis = crate::support::redis::durable().await;
    let upstream = Upstream::start([]).await;
    let (one, two) = (shared(&upstream, &redis).await, shared(&upstream, &redis).await);
    script(&upstream, &form());
    let mut request = request(&json!({"background": true}));
    request["stream"] = false.into();
    let accepted = one.post(ENDPOINT, &request).await;
    let run = accepted.body["id"].as_str().unwrap_or_else(|| panic!("{}", accepted.body)).to_owned();
    let mut events = two.events(&run, 0).await;
    events.until(|frame| frame.name == "question.asked").await;
    let declined = answer(&two, &run, &json!({"question_id": "question_1", "action": "decline"})).await;
    assert_eq!(declined.status, 202, "{}", declined.body);
    let rest = within("the end", events.rest()).await;
    assert_eq!(resolved(&rest)["action"], "decline");
    assert!(outline(&rest).ends_with("run.completed"), "{}", outline(&rest));
    assert!(told(&upstream).contains("decline"), "{}", told(&upstream));
}

#[tokio::test]
async fn a_question_that_no_client_can_see_is_declined_in_time_and_the_call_goes_on() {
    let upstream = Upstream::start([]).await;
    let more = "elicitation = true\nelicitation_timeout = \"300ms\"\n";
    let server = TestServer::start(&config(&upstream, "", more)).await;
    script(&upstream, &form());
    let request = json!({"model": "test", "messages": [{"role": "user", "content": "Go."}]});
    let answered = within("the answer", server.post("/v1/chat/completions", &request)).await.ok();
    assert_eq!(answered["choices"][0]["message"]["content"], "Done.", "{answered}");
    assert!(told(&upstream).contains("decline"), "{}", told(&upstream));
    let run = answered["agent"]["run_id"].as_str().expect("it has an id");
    let events = server.events(run, 0).await.rest().await;
    let resolved = resolved(&events);
    assert_eq!((&resolved["action"], &resolved["reason"]), (&json!("decline"), &json!("expired")));
    let late = answer(&server, run, &json!({"question_id": "question_1", "action": "decline"})).await;
    assert_eq!((late.status, late.code()), (410, "call_expired"));
}

#[tokio::test]
async fn a_run_that_is_cancelled_answers_no_question_and_its_server_is_not_taken_for_another_run() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&config(&upstream, "", ASKS)).await;
    let pid = super::call(&server, &upstream, "test__pid", json!({})).await;
    upstream.then(Reply::calls("test__ask", &form()));
    let (stream, run, _) = asked(&server).await;
    server.post(&format!("/v1/runs/{run}/cancel"), &json!({})).await.ok();
    let rest = within("the end", stream.rest()).await;
    assert_eq!(outline(&rest), "question.resolved tool.result step.completed run.cancelled");
    let resolved = resolved(&rest);
    assert_eq!((&resolved["action"], &resolved["reason"]), (&json!("cancel"), &json!("run_stopped")));
    let late = answer(&server, &run, &json!({"question_id": "question_1", "action": "accept", "answer": {}})).await;
    assert_eq!((late.status, late.code()), (410, "call_expired"));
    // What the call may still ask would be shown to the user of the next.
    until("the end of the process", || !is_running(&pid)).await;
    script(&upstream, &form());
    let (stream, run, _) = asked(&server).await;
    assert_eq!(answer(&server, &run, &json!({"question_id": "question_1", "action": "decline"})).await.status, 202);
    within("the end", stream.rest()).await;
    assert!(told(&upstream).contains("decline"), "{}", told(&upstream));
}

#[tokio::test]
async fn calls_over_one_connection_wait_for_each_other_so_that_each_user_is_asked_by_their_own() {
    let upstream = Upstream::start([]).await;
    let server = TestServer::start(&config(&upstream, "", ASKS)).await;
    upstream.then(Reply::calls("test__ask", &json!({"message": "First?"})));
    let (first, run, question) = asked(&server).await;
    assert_eq!(question["message"], "First?");
    upstream.then(Reply::calls("test__ask", &json!({"message": "Second?"})));
    let mut second = server.stream(ENDPOINT, &request(&json!({}))).await;
    let before = second.until(|frame| frame.name == "tool.call").await;
    let other = before[0].json()["run_id"].as_str().expect("it has an id").to_owned();
    let unasked = answer(&server, &other, &json!({"question_id": "question_1", "action": "decline"})).await;
    assert_eq!((unasked.status, unasked.code()), (404, "call_not_found"), "it waits for the first call");
    upstream.then(Reply::says("Done."));
    upstream.then(Reply::says("Done."));
    let decline = json!({"question_id": "question_1", "action": "decline"});
    assert_eq!(answer(&server, &run, &decline).await.status, 202);
    within("the end of the first", first.rest()).await;
    let asked = second.until(|frame| frame.name == "question.asked").await;
    assert_eq!(asked.last().expect("it is there").json()["message"], "Second?");
    assert_eq!(answer(&server, &other, &decline).await.status, 202);
    within("the end of the second", second.rest()).await;
}

#[tokio::test]
async fn of_a_call_whose_replica_dies_with_its_question_open_the_outcome_is_unknown() {
    let redis = crate::support::redis::durable().await;
    let upstream = Upstream::start([]).await;
    let (mut one, two) = (shared(&upstream, &redis).await, shared(&upstream, &redis).await);
    script(&upstream, &form());
    let (_stream, run, question) = asked(&one).await;
    one.kill9().await;
    let events = two.events(&run, question["seq"].as_u64().expect("it has one")).await;
    let rest = within("the end", events.rest()).await;
    let end = "run.resumed tool.result step.completed step.started text step.completed run.completed";
    assert_eq!(outline(&rest), end);
    assert!(told(&upstream).contains("Whether it took effect is unknown"), "{}", told(&upstream));
    let late = answer(&two, &run, &json!({"question_id": "question_1", "action": "decline"})).await;
    assert_eq!((late.status, late.code()), (410, "call_expired"));
}

#[tokio::test]
async fn a_server_that_shuts_down_waits_for_no_user() {
    let upstream = Upstream::start([]).await;
    let mut server = TestServer::start(&config(&upstream, "", ASKS)).await;
    script(&upstream, &form());
    let (stream, ..) = asked(&server).await;
    server.sigterm();
    let rest = within("the end", stream.rest()).await;
    let resolved = resolved(&rest);
    assert_eq!((&resolved["action"], &resolved["reason"]), (&json!("cancel"), &json!("shutdown")));
    assert!(outline(&rest).ends_with("run.completed"), "{}", outline(&rest));
    assert!(told(&upstream).contains("cancel"), "{}", told(&upstream));
    server.ended().await;
}
