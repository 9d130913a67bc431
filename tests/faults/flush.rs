//! A server that dies while a model writes into memory what matters in messages that are to be replaced: it is written once, by whoever
//! goes on, all that the model was asked is charged, and the conversation is shortened.

use std::time::Duration;

use loopgate::failpoint::OF_FLUSHES;
use serde_json::{Value, json};

use super::dies_within;
use crate::support::http::{HttpServer, Request};
use crate::support::upstream::{asked, declaration, is_list, is_summary};
use crate::support::{Reply, TestServer, within};

/// How long a server may take to come to the place at which it is to die.
const REACHED: Duration = Duration::from_secs(20);
/// What a call of the model takes, as the upstream counts.
const TAKES: u64 = 15;

const AGENT: &str =
    "[memory]\n[agents.default]\ntools = [\"memory_write\"]\ncontext = { flush = { enabled = true } }\n";

/// Whether a request asks a model to write down what matters.
fn is_flush(body: &Value) -> bool {
    body["messages"][0]["content"].as_str().is_some_and(|told| told.starts_with("You keep the memory of an assistant."))
}

/// Adds a line to a note, and has nothing more to write then.
fn reply(request: &Request) -> Reply {
    let body = match asked(request) {
        Ok(body) => body,
        Err(reply) => return reply,
    };
    let said = body["messages"].as_array().map_or(0, Vec::len);
    if is_flush(&body) && said == 2 {
        let arguments = json!({"name": "log", "content": "They count.", "mode": "append"});
        return Reply::calls("memory_write", &arguments);
    }
    let text = match () {
        () if is_flush(&body) => "NO_REPLY",
        () if is_summary(&body) => "They counted.",
        () => "So it is.",
    };
    Reply::stream().text(text).finish("stop").usage(10, 5).done()
}

fn history() -> Vec<Value> {
    let said = |turn: usize| {
        let (role, word) = if turn.is_multiple_of(2) { ("user", "question") } else { ("assistant", "answer") };
        json!({"role": role, "content": format!("{word} {turn} {}", "x".repeat(100))})
    };
    (0..60).map(said).collect()
}

/// Asks for the session to be shortened, which is done once. Returns what came of it if the server lives to tell it.
async fn compact(server: &TestServer) -> Option<Value> {
    let request = server.json("/v1/sessions/long/compact", &json!({"model": "test", "user": "ann"}));
    let answer = request.header("idempotency-key", "the-compaction").send().await.ok()?;
    let is_ok = answer.status() == 200;
    let done: Value = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
    is_ok.then_some(done)
}

async fn dies_at(point: &str) {
    let upstream = HttpServer::start(|request| !is_list(request), reply).await;
    let config = format!("{}{AGENT}", declaration(upstream.address()));
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
    assert_eq!((&done["compacted"], &done["compaction"]["method"]), (&json!(true), &json!("llm")), "{point}: {done}");
    let flush = &done["flush"];
    assert_eq!(
        (&flush["writes"], &flush["error"], &flush["messages"]),
        (&json!(1), &Value::Null, &json!(54)),
        "{done}"
    );
    let note = server.get("/v1/memory/documents/log?user=ann&agent=default").await.ok();
    assert_eq!((&note["content"], &note["version"]), (&json!("They count."), &json!(1)), "{point}: {note}");
    let asked = upstream.requests().iter().filter(|request| is_flush(&request.json())).count();
    // What was not recorded is asked for again; what was recorded is not.
    let is_lost = matches!(point, "flush.before_call" | "flush.answered");
    assert!(asked == 2 || (is_lost && asked <= 3), "{point}: the model was asked {asked} times");
    let charged = done["usage"]["total_tokens"].as_u64().expect("it is a number");
    assert!(charged >= 3 * TAKES, "{point}: {charged} tokens are charged for {asked} calls");
    let session = server.get("/v1/sessions/long").await.ok();
    assert_eq!(session["usage"]["total_tokens"], done["usage"]["total_tokens"], "{point}");
    assert_eq!((&session["compactions"], &session["message_count"]), (&json!(1), &json!(60)), "{point}");
}

#[tokio::test]
async fn a_server_that_dies_while_a_model_writes_down_what_matters_writes_it_once() {
    for point in OF_FLUSHES {
        dies_at(point).await;
    }
}
