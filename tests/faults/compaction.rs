//! A server that dies while a session's conversation is shortened: it is done once, by whoever goes on, all that the model was asked is
//! charged, and nothing that was said is lost.

use std::time::Duration;

use loopgate::failpoint::OF_COMPACTION;
use reqwest::Method;
use serde_json::{Value, json};

use super::cluster::TestCluster;
use super::{dies_within, scaled};
use crate::support::cluster::KEY;
use crate::support::cluster::plan::{Plan, Tool};
use crate::support::http::{HttpServer, Request};
use crate::support::redis::durable;
use crate::support::upstream::{asked, declaration, is_list, is_summary};
use crate::support::{Reply, TestServer, within};

/// How long a server may take to come to the place at which it is to die.
const REACHED: Duration = Duration::from_secs(20);
/// How many messages the session has.
const MESSAGES: usize = 60;
/// What a summary takes, as the upstream counts.
const TAKES: u64 = 500;

fn reply(request: &Request) -> Reply {
    let body = match asked(request) {
        Ok(body) => body,
        Err(reply) => return reply,
    };
    let text = if is_summary(&body) { "They counted." } else { "So it is." };
    Reply::stream().text(text).finish("stop").usage(TAKES - 10, 10).done()
}

fn history() -> Vec<Value> {
    let said = |turn: usize| {
        let (role, word) = if turn.is_multiple_of(2) { ("user", "question") } else { ("assistant", "answer") };
        json!({"role": role, "content": format!("{word} {turn} {}", "x".repeat(100))})
    };
    (0..MESSAGES).map(said).collect()
}

/// Places at which a run may die that does nothing but shorten, with those that all runs come to.
fn points() -> impl Iterator<Item = &'static str> {
    let of_all = [
        "run.before_create",
        "run.indexed",
        "run.created",
        "run.before_end",
        "run.ended",
        "run.released",
        "run.counted",
    ];
    OF_COMPACTION.iter().copied().chain(of_all)
}

/// Asks for the session to be shortened, which is done once. Returns what came of it if the server lives to tell it.
async fn compact(server: &TestServer) -> Option<Value> {
    let body = json!({"model": "test"});
    let request = server.json("/v1/sessions/long/compact", &body).header("idempotency-key", "the-compaction");
    let answer = request.send().await.ok()?;
    let is_ok = answer.status() == 200;
    let done: Value = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
    is_ok.then_some(done)
}

async fn dies_at(point: &str) {
    let upstream = HttpServer::start(|request| !is_list(request), reply).await;
    let config = declaration(upstream.address());
    let mut server = TestServer::builder(&config).keep_port().start().await;
    server.post("/v1/sessions", &json!({"id": "long", "messages": history()})).await.ok();
    server.kill9().await;
    server.next_env(&[("LOOPGATE_FAILPOINT", point)]);
    server.restart().await;
    // The server may die before it answers.
    let _ = compact(&server).await;
    assert!(dies_within(&mut server, REACHED).await, "the server does not come to {point}");
    server.next_env(&[]);
    server.restart().await;
    let done = within("the conversation to be shortened", async {
        loop {
            if let Some(done) = compact(&server).await {
                return done;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!((&done["compacted"], &done["compaction"]["version"]), (&json!(true), &json!(1)), "{point}: {done}");
    assert_eq!(done["compaction"]["method"], "llm", "{point}: {done}");
    let asked = upstream.requests().iter().filter(|request| is_summary(&request.json())).count();
    // What was not recorded is asked for again; what was recorded is not.
    let is_lost = matches!(point, "compaction.before_call" | "compaction.answered");
    assert!(asked == 1 || (is_lost && asked <= 2), "{point}: the model was asked {asked} times");
    let session = server.get("/v1/sessions/long").await.ok();
    assert_eq!((&session["compactions"], &session["message_count"]), (&json!(1), &json!(MESSAGES)), "{point}");
    assert_eq!(session["usage"]["total_tokens"], done["usage"]["total_tokens"], "{point}");
    let charged = done["usage"]["total_tokens"].as_u64().expect("it is a number");
    assert!(charged >= TAKES, "{point}: {charged} tokens are charged for {asked} calls");
    let exported = server.get("/v1/sessions/long/export").await.ok();
    assert_eq!(exported["messages"].as_array().map(Vec::len), Some(MESSAGES), "{point}");
    // The session goes on with it.
    let body = json!({
        "model": "test", "messages": [{"role": "user", "content": "And now?"}], "agent": {"session_id": "long"}
    });
    server.post("/v1/agent/completions", &body).await.ok();
    let told = upstream.requests().pop().expect("the model was asked").json();
    let count = told["messages"].as_array().map_or(0, Vec::len);
    assert!(told.to_string().contains("They counted.") && count < 15, "{point}: {count} messages are sent");
}

#[tokio::test]
async fn a_server_that_dies_while_it_shortens_a_conversation_does_it_once() {
    for point in points() {
        dies_at(point).await;
    }
}

/// What the model says in a live run: it uses a tool first, so that the conversation is shortened in the middle of the run.
fn reply_with_a_call(request: &Request) -> Reply {
    let body = match asked(request) {
        Ok(body) if !is_summary(&body) => body,
        _ => return reply(request),
    };
    let has_called =
        body["messages"].as_array().is_some_and(|said| said.iter().any(|message| message["role"] == "tool"));
    if has_called {
        return reply(request);
    }
    let arguments = json!({"expression": "6 * 7"}).to_string();
    let call = Reply::stream().tool_call(0, "call_upstream", "calculator", &arguments);
    // By what the upstream counts it is known how long the conversation is.
    call.finish("tool_calls").usage(2_000, 10).done()
}

/// Asks in the session. Returns what came of it if the server lives to tell it.
async fn ask(server: &TestServer) -> Option<Value> {
    let said = json!([{"role": "user", "content": "And now?"}]);
    let body = json!({"model": "test", "messages": said, "agent": {"session_id": "long", "include_report": true}});
    let request = server.json("/v1/agent/completions", &body).header("idempotency-key", "the-question");
    let answer = request.send().await.ok()?;
    let is_ok = answer.status() == 200;
    let done: Value = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
    is_ok.then_some(done)
}

async fn dies_in_a_live_run_at(point: &str) {
    let upstream = HttpServer::start(|request| !is_list(request), reply_with_a_call).await;
    // The user's question is one message more than there are, and fits. What the model calls is two more, which do not.
    let triggers = format!("[agents.default]\ncontext = {{ triggers = {{ messages = {} }} }}\n", MESSAGES + 1);
    let config = format!("{}{triggers}", declaration(upstream.address()));
    let mut server = TestServer::builder(&config).keep_port().start().await;
    server.post("/v1/sessions", &json!({"id": "long", "messages": history()})).await.ok();
    server.kill9().await;
    server.next_env(&[("LOOPGATE_FAILPOINT", point)]);
    server.restart().await;
    // The server may die before it answers.
    let _ = ask(&server).await;
    assert!(dies_within(&mut server, REACHED).await, "the server does not come to {point}");
    server.next_env(&[]);
    server.restart().await;
    let done = within("the run to end", async {
        loop {
            if let Some(done) = ask(&server).await {
                return done;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let agent = &done["agent"];
    assert_eq!((&agent["status"], &agent["tool_calls"]), (&json!("completed"), &json!(1)), "{point}: {done}");
    let compactions = &agent["report"]["compactions"];
    assert_eq!((compactions.as_array().map(Vec::len), &compactions[0]["method"]), (Some(1), &json!("llm")), "{done}");
    let asked = upstream.requests().iter().filter(|request| is_summary(&request.json())).count();
    let is_lost = matches!(point, "compaction.before_call" | "compaction.answered");
    assert!(asked == 1 || (is_lost && asked <= 2), "{point}: the model was asked {asked} times");
    let session = server.get("/v1/sessions/long").await.ok();
    let expected = (&json!(1), &json!(MESSAGES + 4), &done["usage"]["total_tokens"]);
    let found = (&session["compactions"], &session["message_count"], &session["usage"]["total_tokens"]);
    assert_eq!(found, expected, "{point}: {session}");
    let sent = upstream.requests().pop().expect("the model was asked").json();
    assert!(sent.to_string().contains("They counted.") && sent.to_string().contains("42"), "{point}: {sent}");
}

#[tokio::test]
async fn a_server_that_dies_while_a_live_run_shortens_its_conversation_goes_on_with_the_run() {
    for point in OF_COMPACTION {
        dies_in_a_live_run_at(point).await;
    }
}

/// Runs of a few sessions, one after the other in each, whose conversations are shortened in the background again and again.
fn talks(name: &str, sessions: u64, runs: u64) -> Vec<(Plan, Option<String>)> {
    let plan = |session: u64, run: u64| {
        let plan = Plan::new(format!("{name}-{session}-{run}")).with_tools(2, &[Tool::Look, Tool::Put]);
        (plan.with_text(3, 20).with_delay(20), Some(format!("{name}-s{session}")))
    };
    (0..runs)
        .flat_map(|run| (0..sessions).map(move |session| (session, run)))
        .map(|(session, run)| plan(session, run))
        .collect()
}

/// Waits until no run is under way any more, those included that no client knows.
async fn at_rest(server: &TestServer) {
    within("all runs to end", async {
        let mut quiet = 0;
        while quiet < 5 {
            let request = server.request(Method::GET, "/v1/runs?status=in_progress").bearer_auth(KEY);
            let answer = server.respond(request).await.bytes().await.expect("it is whole");
            let under_way: Value = serde_json::from_slice(&answer).expect("it is JSON");
            let is_quiet = under_way["data"].as_array().is_some_and(Vec::is_empty) && under_way["has_more"] == false;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn sessions_that_are_shortened_in_the_background_survive_takeovers() {
    let redis = durable().await;
    let triggers = "keep_last = 4, triggers = { messages = 16, after_run = true }";
    // Whichever replica asks first dies of it, and then the others at any time, where none has died so yet.
    let stores: Vec<String> = vec![format!("{}?db=0", redis.url()); 3];
    let places = ["compaction.answered", "compaction.before_call", "compaction.answered"];
    let mut cluster = TestCluster::configured("compactions", &stores, triggers, &places).await;
    let jobs = talks("compactions", scaled(3, 8), scaled(6, 12));
    let in_flight = cluster.launch(jobs).await;
    within("a summary to end a replica", async {
        while !cluster.replicas.iter_mut().any(TestServer::has_ended) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    for replica in &mut cluster.replicas {
        if !replica.has_ended() {
            replica.kill9().await;
        }
        replica.next_env(&[]);
        replica.restart().await;
    }
    for turn in 0..scaled(1, 5) {
        tokio::time::sleep(Duration::from_millis(300 + cluster.seed.below(700))).await;
        let victim = turn % cluster.replicas.len();
        cluster.replicas[victim].kill9().await;
        cluster.replicas[victim].restart().await;
    }
    let traces = in_flight.finished().await;
    at_rest(&cluster.replicas[2]).await;
    assert!(cluster.services.model.summaries() > 2, "summaries are asked for");
    cluster.judge(traces).await;
}
