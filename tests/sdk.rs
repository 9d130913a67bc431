//! The official OpenAI clients for Python and Node against the real binary: what their users see is the
//! same for both, and what they would see of OpenAI itself.

#[cfg(feature = "run-code")]
mod code;
mod collector;
mod conformance;
mod conversations;
mod description;
mod frameworks;
mod matrix;
mod mcp;
mod messages;
mod responses;
mod specs;
mod split;
mod ui;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{Gate, Proxy, Reply, TestServer, ToolServer, Upstream, within};

/// Runs one case of `tests/sdk/client.*` with both clients. Each gets a server of its own, whose upstream
/// has these replies. Returns what the upstream was asked by each.
async fn both(case: &str, replies: &[Reply], more_config: &str, expected: Value) -> [Vec<Value>; 2] {
    both_of("client", case, replies, more_config, &expected).await
}

/// The programs of `tests/sdk` that drive the clients of an API, in Python and in Node.
fn clients(name: &str) -> [Command; 2] {
    [python_program(&format!("{name}.py")), node_program(&format!("{name}.mjs"))]
}

fn python_program(name: &str) -> Command {
    let mut command = Command::new(installed("LOOPGATE_TEST_PYTHON", "python/bin/python"));
    command.arg(script(name));
    command
}

fn node_program(name: &str) -> Command {
    let modules = installed("LOOPGATE_TEST_NODE_MODULES", "node/node_modules");
    let mut command = Command::new("node");
    command.arg(script(name)).env("LOOPGATE_TEST_NODE_MODULES", modules);
    command
}

/// Runs one case with both clients of an API, which see the same. Returns what the upstream was asked by each.
async fn both_of(name: &str, case: &str, replies: &[Reply], config: &str, expected: &Value) -> [Vec<Value>; 2] {
    let [python, node] = clients(name);
    [run(python, case, replies, config, expected).await, run(node, case, replies, config, expected).await]
}

async fn python(case: &str, replies: &[Reply], more_config: &str, expected: &Value) -> Vec<Value> {
    run(python_program("client.py"), case, replies, more_config, expected).await
}

async fn node(case: &str, replies: &[Reply], more_config: &str, expected: &Value) -> Vec<Value> {
    run(node_program("client.mjs"), case, replies, more_config, expected).await
}

async fn run(command: Command, case: &str, replies: &[Reply], more_config: &str, expected: &Value) -> Vec<Value> {
    let upstream = Upstream::start(replies.iter().cloned()).await;
    let config = format!("{}{more_config}", upstream.config());
    let server = TestServer::builder(&config).env("LOOPGATE_TEST_KEY", "lg_secret").start().await;
    let seen = seen(command, case, server.url(), &server).await;
    assert_eq!(seen, *expected, "{case}");
    upstream.requests()
}

/// What the client prints, which calls the server at `url`.
async fn seen(mut command: Command, case: &str, url: &str, server: &TestServer) -> Value {
    command.arg(case).arg(url).stdin(Stdio::null()).kill_on_drop(true);
    let done = within(case, command.output()).await.expect("the interpreter starts");
    let said = String::from_utf8_lossy(&done.stdout);
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}:\n{said}{complaint}\n{}", server.output());
    serde_json::from_str(&said).expect("it prints JSON")
}

/// What `scripts/test` has installed, by the variable that names it or at its usual place.
pub(crate) fn installed(variable: &str, path: &str) -> PathBuf {
    let usual = || Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("sdk").join(path);
    let path = std::env::var_os(variable).map_or_else(usual, PathBuf::from);
    let found = path.exists();
    assert!(found, "the clients are not at {}: run scripts/test, which installs them", path.display());
    path
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk").join(name)
}

#[tokio::test]
async fn a_chat() {
    let expected = json!({
        "content": "Hello", "finish_reason": "stop", "total_tokens": 15, "status": "completed", "has_request_id": true,
    });
    both("chat", &[Reply::says("Hello")], "", expected).await;
}

#[tokio::test]
async fn a_chat_whose_tools_run_on_the_server() {
    let replies = [Reply::calls("calculator", &json!({"expression": "6 * 7"})), Reply::says("It is 42.")];
    let expected = json!({
        "content": "It is 42.", "finish_reason": "stop", "total_tokens": 30, "status": "completed",
        "has_request_id": true,
    });
    for requests in both("chat", &replies, "", expected).await {
        let messages = requests[1]["messages"].as_array().expect("there are messages");
        assert_eq!(messages.last().expect("there are some")["content"], "42");
    }
}

#[tokio::test]
async fn a_stream_that_is_read_carelessly() {
    let replies = [
        Reply::stream().text("Let me see. ").tool_call(0, "call_1", "calculator", r#"{"expression":"1+1"}"#),
        Reply::stream().text("It ").text("is 2.").finish("stop").usage(10, 5).done(),
    ];
    let [first, second] = replies;
    let replies = [first.finish("tool_calls").usage(10, 5).done(), second];
    let expected = json!({"text": "Let me see. It is 2.", "finish_reason": "stop", "ids": 1});
    both("stream", &replies, "", expected).await;
}

#[tokio::test]
async fn a_stream_with_usage() {
    let replies = [Reply::calls("calculator", &json!({"expression": "6 * 7"})), Reply::says("42")];
    both("stream_usage", &replies, "", json!({"text": "42", "total_tokens": 30, "usages": 1})).await;
}

#[tokio::test]
async fn the_streaming_helpers() {
    let replies = [Reply::calls("calculator", &json!({"expression": "6 * 7"})), Reply::says("42")];
    both("helper", &replies, "", json!({"content": "42", "finish_reason": "stop"})).await;
}

/// The model calls one of the server's tools and one of the client's in the same turn. The client knows
/// nothing of the server's, yet the model sees both results.
#[tokio::test]
async fn tools_of_client_and_server_together() {
    let calls = Reply::stream().tool_call(0, "call_1", "calculator", r#"{"expression":"6 * 7"}"#).tool_call(
        1,
        "call_2",
        "get_weather",
        r#"{"city":"Oslo"}"#,
    );
    let replies = [calls.finish("tool_calls").usage(10, 5).done(), Reply::says("42, and rain.")];
    let expected = json!({"content": "42, and rain.", "called": [["get_weather", {"city": "Oslo"}]]});
    for case in ["client_tools", "client_tools_streamed"] {
        for requests in both(case, &replies, "", expected.clone()).await {
            let messages = requests[1]["messages"].as_array().expect("there are messages");
            let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap_or_default()).collect();
            assert_eq!(roles, ["user", "assistant", "tool", "tool"], "{case}");
            assert_eq!((&messages[2]["content"], &messages[3]["content"]), (&json!("42"), &json!("rain")), "{case}");
        }
    }
}

#[tokio::test]
async fn a_chat_whose_call_is_approved() {
    let expected = json!({"asked": ["calculator"], "content": "It is 42."});
    both("approval", &[calls_calculator(), Reply::says("It is 42.")], "", expected).await;
}

#[tokio::test]
async fn a_chat_with_an_answer_of_a_schema() {
    for requests in both("structured", &[Reply::says(r#"{"n":42}"#)], "", json!({"n": 42})).await {
        assert_eq!(requests[0]["response_format"]["type"], "json_schema");
    }
}

#[tokio::test]
async fn a_chat_that_ends_at_a_limit() {
    let expected = json!({"finish_reason": "length", "stop_reason": "max_iterations"});
    both("limited", &[calls_calculator()], "", expected).await;
}

/// The client's own way to ask for what has no function of its own.
#[tokio::test]
async fn a_chat_in_the_background() {
    both("background", &[Reply::says("Hello")], "", json!({"status": "completed", "content": "Hello"})).await;
    let waits = [Reply::stream().text("Hel").stall()];
    both("cancelled", &waits, "", json!({"status": "cancelled", "again": "cancelled"})).await;
    both("resumed", &[calls_calculator(), Reply::says("It is 42.")], "", json!({"text": "It is 42."})).await;
}

#[tokio::test]
async fn a_session() {
    let expected = json!({"sessions": ["sdk-session", "sdk-session"], "contents": ["Hello", "Again"]});
    for requests in both("session", &[Reply::says("Hello"), Reply::says("Again")], "", expected).await {
        let contents: Vec<_> =
            requests[1]["messages"].as_array().into_iter().flatten().map(|message| &message["content"]).collect();
        assert_eq!(contents, ["Hi", "Hello", "And now?"]);
    }
}

#[tokio::test]
async fn events_in_the_extension() {
    let replies = [Reply::calls("calculator", &json!({"expression": "6 * 7"})), Reply::says("42")];
    let events = [
        "run.started",
        "step.started",
        "tool.call",
        "tool.result",
        "step.completed",
        "step.started",
        "step.completed",
        "run.completed",
    ];
    both("extension", &replies, "", json!({"text": "42", "events": events})).await;
}

#[tokio::test]
async fn the_list_of_models() {
    let agent = "[agents.researcher]\nmodel = \"scripted/test\"\n";
    let expected = json!({"ids": ["researcher", "scripted/test"], "one": "scripted/test"});
    both("models", &[], agent, expected).await;
}

#[tokio::test]
async fn an_unknown_model() {
    let expected = json!({
        "error": "NotFoundError", "status": 404, "code": "model_not_found", "type": "invalid_request_error",
        "param": "model", "has_request_id": true, "attempts": 1,
    });
    both("unknown_model", &[], "", expected).await;
}

#[tokio::test]
async fn a_wrong_key() {
    let expected = json!({
        "error": "AuthenticationError", "status": 401, "code": "invalid_api_key", "type": "authentication_error",
        "param": null, "has_request_id": true, "attempts": 1,
    });
    both("unauthorized", &[], "[keys.test]\nkey_env = \"LOOPGATE_TEST_KEY\"\n", expected).await;
}

/// Both clients repeat every 429 twice, unless they are told that it cannot help.
#[tokio::test]
async fn an_empty_budget_is_not_asked_for_again() {
    let expected = json!({
        "error": "RateLimitError", "status": 429, "code": "budget_exceeded", "type": "insufficient_quota",
        "param": null, "has_request_id": true, "attempts": 1,
    });
    both("quota", &[], "", expected).await;
}

#[tokio::test]
async fn a_lost_connection_costs_no_second_run() {
    send_again("client", json!({"content": "Noted.", "attempts": 2})).await;
}

/// The connection breaks once the run is under way. Both clients of an API send the request again by themselves; the
/// tool has run by then, and does not run again.
async fn send_again(name: &str, expected: Value) {
    for client in clients(name) {
        let gate = Gate::new();
        let upstream = Upstream::start([
            Reply::calls("note", &json!({"note": "x"})),
            Reply::stream().gate(&gate).text("Noted.").finish("stop").usage(10, 5).done(),
        ])
        .await;
        let tools = ToolServer::start([]).await;
        let agent = "[agents.default]\ntools = [\"note\"]\n";
        let config = format!("{}{}{agent}", upstream.config(), tools.config("note", "write"));
        let server = TestServer::start(&config).await;
        let proxy = Proxy::start(server.address().parse().expect("it is an address")).await;
        let url = proxy.url();
        let fault = async {
            gate.reached().await;
            proxy.cut();
            proxy.accepted(2).await;
            gate.open();
        };
        let (seen, ()) = tokio::join!(seen(client, "repeated", &url, &server), fault);
        assert_eq!(seen, expected);
        assert_eq!((upstream.requests().len(), tools.calls().len()), (2, 1));
    }
}

/// What a client sees, with more members.
fn with(mut seen: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("it is an object") {
        seen[name] = value.clone();
    }
    seen
}

fn calls_calculator() -> Reply {
    Reply::calls("calculator", &json!({"expression": "6 * 7"}))
}

/// The server has asked the upstream as often as it may. Clients that asked for another run would pay as often again.
#[tokio::test]
async fn a_failure_that_the_server_tried_again_is_not_multiplied() {
    let broken = || Reply::stream().text("Hel").cut();
    let replies = [broken(), broken(), broken(), Reply::says("Hello")];
    let expected = json!({
        "error": "InternalServerError", "status": 502, "code": "provider_error", "type": "provider_error",
        "param": null, "has_request_id": true, "attempts": 1,
    });
    both("provider_failure", &replies, "", expected).await;
}

/// Both clients take a stream that just ends for a success.
#[tokio::test]
async fn a_stream_that_breaks_is_an_error() {
    let broken = [Reply::stream().text("Hel").cut()];
    let expected = |has_request_id| {
        json!({
            "error": "APIError", "status": null, "code": "provider_error", "type": "provider_error", "param": null,
            "has_request_id": has_request_id, "attempts": 1, "text": "Hel",
        })
    };
    python("broken_stream", &broken, "", &expected(false)).await;
    node("broken_stream", &broken, "", &expected(true)).await;
}
