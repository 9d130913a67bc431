//! Conversations that go on for longer than any model's window, against an upstream that refuses what does not fit.

use serde_json::{Value, json};

use crate::support::http::{HttpServer, Request};
use crate::support::upstream::{asked, declaration, is_list, is_summary};
use crate::support::{Reply, TestServer};

const AGENT: &str = "/v1/agent/completions";
/// What the upstream takes. It counts a token for each three bytes, which is more than the server estimates.
const WINDOW: u64 = 8_000;

/// How many tokens the upstream counts in a request.
fn tokens(body: &Value) -> u64 {
    body["messages"].to_string().len() as u64 / 3
}

/// Refuses what does not fit, as OpenAI does; writes summaries; answers each question after a call of a tool.
fn reply(request: &Request) -> Reply {
    let body = match asked(request) {
        Ok(body) => body,
        Err(reply) => return reply,
    };
    let tokens = tokens(&body);
    if tokens > WINDOW {
        let message = format!(
            "This model's maximum context length is {WINDOW} tokens. However, your messages resulted in {tokens} tokens."
        );
        return Reply::error(400, "context_length_exceeded", &message);
    }
    let last = body["messages"].as_array().and_then(|messages| messages.last()).cloned().unwrap_or_default();
    if is_summary(&body) {
        return Reply::stream().text("They multiply numbers.").finish("stop").usage(tokens, 6).done();
    }
    if last["role"] == "tool" {
        return Reply::stream().text(&"It is so. ".repeat(20)).finish("stop").usage(tokens, 50).done();
    }
    let arguments = json!({"expression": "6 * 7"}).to_string();
    Reply::stream().tool_call(0, "call_x", "calculator", &arguments).finish("tool_calls").usage(tokens, 9).done()
}

async fn start(more: &str) -> (HttpServer, TestServer) {
    let upstream = HttpServer::start(|request| !is_list(request), reply).await;
    let server = TestServer::start(&(declaration(upstream.address()) + more)).await;
    (upstream, server)
}

/// So many turns of a user, in each of which a tool is called.
fn history(turns: usize) -> Vec<Value> {
    let turn = |turn: usize| {
        let id = format!("call_{turn}");
        let call = json!({"id": id, "type": "function", "function": {"name": "calculator", "arguments": "{\"expression\":\"1\"}"}});
        [
            json!({"role": "user", "content": format!("question {turn} {}", "x".repeat(150))}),
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            json!({"role": "tool", "tool_call_id": id, "content": "r".repeat(200)}),
            json!({"role": "assistant", "content": format!("answer {turn}")}),
        ]
    };
    (0..turns).flat_map(turn).collect()
}

fn ask(turn: usize) -> Value {
    let content = format!("And {turn}? {}", "y".repeat(100));
    json!({"model": "test", "messages": [{"role": "user", "content": content}], "agent": {"session_id": "long"}})
}

/// All messages that the session has.
async fn exported(server: &TestServer) -> Vec<Value> {
    let exported = server.get("/v1/sessions/long/export").await.ok();
    exported["messages"].as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_session_of_thousands_of_messages_goes_on_and_loses_none() {
    let declared = format!("\n[models.test]\ncontext_window = {WINDOW}\n");
    let (upstream, server) = start(&declared).await;
    server.post("/v1/sessions", &json!({"id": "long", "messages": history(750)})).await.ok();
    let (mut sizes, mut refused) = (Vec::new(), 0);
    for turn in 0..150 {
        let known = upstream.requests().len();
        let answer = server.post(AGENT, &ask(turn)).await.ok();
        assert_eq!(answer["agent"]["stop_reason"], "done", "turn {turn}: {answer}");
        let sent: Vec<Value> = upstream.requests()[known..].iter().map(Request::json).collect();
        refused += sent.iter().filter(|body| tokens(body) > WINDOW).count();
        sizes.push(sent.iter().map(|body| body.to_string().len()).sum::<usize>());
    }
    assert_eq!(refused, 0, "nothing was sent that does not fit");
    assert_eq!(exported(&server).await.len(), 750 * 4 + 150 * 4);
    let average = |turns: &[usize]| turns.iter().sum::<usize>() / turns.len();
    let (early, late) = (average(&sizes[30..80]), average(&sizes[100..150]));
    assert!(late < early * 5 / 4, "what a turn sends does not grow: {early} and {late} bytes");
    let summaries = upstream.requests().iter().filter(|request| is_summary(&request.json())).count();
    assert!((2..40).contains(&summaries), "{summaries}");
    let fork = server.post("/v1/sessions/long/fork", &json!({"id": "fork"})).await.ok();
    assert_eq!(fork["message_count"], 750 * 4 + 150 * 4, "{fork}");
}

#[tokio::test]
async fn a_window_that_is_declared_too_large_or_not_at_all_costs_no_client_an_answer() {
    for declared in ["", "\n[models.test]\ncontext_window = 128000\n"] {
        let (upstream, server) = start(declared).await;
        server.post("/v1/sessions", &json!({"id": "long", "messages": history(40)})).await.ok();
        let mut refused = 0;
        for turn in 0..40 {
            let known = upstream.requests().len();
            let answer = server.post(AGENT, &ask(turn)).await.ok();
            assert_eq!(answer["agent"]["stop_reason"], "done", "turn {turn}: {answer}");
            let sent: Vec<Value> = upstream.requests()[known..].iter().map(Request::json).collect();
            refused += sent.iter().filter(|body| tokens(body) > WINDOW).count();
        }
        assert_eq!(refused, 1, "once was enough to learn it");
        assert_eq!(exported(&server).await.len(), 40 * 4 + 40 * 4);
    }
}

#[tokio::test]
async fn a_stream_tells_how_its_conversation_was_shortened() {
    let declared =
        format!("\n[models.test]\ncontext_window = {WINDOW}\n[agents.default.context]\ncompaction = \"local\"\n");
    let (_upstream, server) = start(&declared).await;
    server.post("/v1/sessions", &json!({"id": "long", "messages": history(60)})).await.ok();
    let mut request = ask(1);
    request["stream"] = true.into();
    let frames = server.stream(AGENT, &request).await.rest().await;
    let compacted = frames.iter().find(|frame| frame.name == "context.compacted").expect("it is told").json();
    assert_eq!(
        (&compacted["method"], &compacted["version"], &compacted["step"]),
        (&json!("local"), &json!(1), &json!(1))
    );
    assert!(compacted["before_tokens"].as_u64() > compacted["after_tokens"].as_u64(), "{compacted}");
    assert!(compacted["covers"].as_u64() > Some(100), "{compacted}");
    let mut off = ask(2);
    off["agent"]["context"] = json!({"compaction": "off"});
    off["agent"]["session_id"] = json!("other");
    off["messages"] =
        json!(history(120).into_iter().chain([json!({"role": "user", "content": "So?"})]).collect::<Vec<_>>());
    let refused = server.post(AGENT, &off).await;
    assert_eq!((refused.status, refused.code()), (400, "context_length_exceeded"));
    off["agent"]["context"] = json!({"compaction": "llm"});
    let refused = server.post(AGENT, &off).await;
    assert_eq!((refused.status, refused.code()), (400, "invalid_value"), "{}", refused.body);
}

#[tokio::test]
async fn a_session_is_shortened_on_request_once_for_each_key() {
    let (upstream, server) = start("\n[agents.helper]\nmodel = \"test\"\ntools = [\"calculator\"]\n").await;
    server.post("/v1/sessions", &json!({"id": "long", "agent": "helper", "messages": history(40)})).await.ok();
    let body = json!({"model": "test", "keep_last": 4});
    let compact = |key: &'static str| {
        let request = server.json("/v1/sessions/long/compact", &body).header("idempotency-key", key);
        async {
            let answer = request.send().await.expect("it is answered");
            assert_eq!(answer.status(), 200);
            let is_replayed = answer.headers().contains_key("idempotent-replayed");
            let body = answer.bytes().await.expect("it is whole");
            (serde_json::from_slice::<Value>(&body).expect("it is JSON"), is_replayed)
        }
    };
    let (done, _) = compact("one").await;
    assert_eq!((&done["object"], &done["compacted"]), (&json!("session.compaction"), &json!(true)), "{done}");
    assert_eq!(
        (&done["compaction"]["method"], &done["compaction"]["version"], &done["status"]),
        (&json!("llm"), &json!(1), &json!("completed"))
    );
    assert!(
        done["compaction"]["removed_messages"].as_u64() > Some(100)
            && done["usage"]["total_tokens"].as_u64() > Some(100),
        "{done}"
    );
    assert!(done["compaction"]["after_tokens"].as_u64() < done["compaction"]["before_tokens"].as_u64(), "{done}");
    assert_eq!(compact("one").await, (done.clone(), true));
    let summaries = || upstream.requests().iter().filter(|request| is_summary(&request.json())).count();
    assert_eq!(summaries(), 1);
    let run = done["id"].as_str().expect("it has one");
    let found = server.get(&format!("/v1/runs/{run}")).await.ok();
    assert_eq!((&found["status"], &found["session_id"]), (&json!("completed"), &json!("long")));
    assert_eq!(found["agent"]["report"]["compactions"][0]["method"], "llm", "{found}");
    let session = server.get("/v1/sessions/long").await.ok();
    assert_eq!((&session["compactions"], &session["message_count"]), (&json!(1), &json!(160)), "{session}");
    assert_eq!(session["usage"], done["usage"]);
    let nothing = server.post("/v1/sessions/long/compact", &json!({"model": "test"})).await.ok();
    assert_eq!((&nothing["compacted"], nothing["compaction"].is_null()), (&json!(false), true), "{nothing}");
    assert_eq!(summaries(), 1, "there is nothing to be summarised");
    let accepted = server.post("/v1/sessions/long/compact", &json!({"model": "test", "background": true})).await;
    assert_eq!((accepted.status, accepted.body["object"].as_str()), (202, Some("run")));
    let exported = server.get("/v1/sessions/long/export").await.ok();
    assert_eq!(exported["session"]["summary"]["text"], "They multiply numbers.");
    // A dump has the runs with their reports, and says what its agent has; a restoration says what is otherwise.
    let mut dump = server.get("/v1/sessions/long/export?include=runs").await.ok();
    assert_eq!(dump["runs"].as_array().map(Vec::len), Some(3), "{}", dump["runs"]);
    assert_eq!(dump["runs"][2]["agent"]["report"]["compactions"][0]["version"], 1);
    assert!(
        dump["environment"]["tools"].as_array().is_some_and(|tools| tools.contains(&json!("calculator"))),
        "{dump}"
    );
    dump["id"] = json!("restored");
    let restored = server.post("/v1/sessions/import", &dump).await.ok();
    assert!(restored["warnings"].is_null() && restored["compactions"] == 1, "{restored}");
    dump["id"] = json!("changed");
    dump["environment"] = json!({"model": "scripted/other", "tools": ["calculator", "gone"]});
    let changed = server.post("/v1/sessions/import", &dump).await.ok();
    let codes: Vec<&str> =
        changed["warnings"].as_array().into_iter().flatten().filter_map(|told| told["code"].as_str()).collect();
    assert!(codes.contains(&"model_changed") && codes.contains(&"tool_removed"), "{changed}");
}
