//! Chat interfaces: what the AI SDK's chat and the agent of AG-UI make of a run.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{calls_calculator, node_program, python_program, run, with};
use crate::support::{Gate, Reply, TestServer, Upstream, within};

/// What the upstream was asked.
async fn client(case: &str, replies: &[Reply], expected: Value) -> Vec<Value> {
    run(node_program("ui.mjs"), case, replies, "", &expected).await
}

/// A turn that calls a tool of the server and one of the client.
fn calls_both() -> Reply {
    let calls = Reply::stream().tool_call(0, "call_1", "calculator", r#"{"expression":"6 * 7"}"#).tool_call(
        1,
        "call_2",
        "get_weather",
        r#"{"city":"Oslo"}"#,
    );
    calls.finish("tool_calls").usage(10, 5).done()
}

fn calls_weather() -> Reply {
    Reply::calls("get_weather", &json!({"city": "Bergen"}))
}

/// What was said to the model in a request, by role.
fn roles(request: &Value) -> Vec<&str> {
    let messages = request["messages"].as_array().expect("there are messages");
    messages.iter().map(|message| message["role"].as_str().unwrap_or_default()).collect()
}

fn chat(parts: impl Into<Value>, ends: &[&str]) -> Value {
    json!({"parts": parts.into(), "status": "ready", "ends": ends})
}

#[tokio::test]
async fn a_chat_of_the_ai_sdk() {
    let parts = json!([[["step-start"], ["text", "Hello"]], [["step-start"], ["text", "Still here."]]]);
    let statuses = json!([["GET", 204, null], ["POST", 200, "v1"], ["POST", 200, "v1"]]);
    let expected = with(chat(parts, &["stop", "stop"]), &json!({"statuses": statuses}));
    let asked = client("text", &[Reply::says("Hello"), Reply::says("Still here.")], expected).await;
    assert_eq!(roles(&asked[1]), ["user", "assistant", "user"], "the session has the conversation");
}

#[tokio::test]
async fn a_chat_with_tools_of_the_server_and_thinking() {
    let thinking = Reply::stream().reasoning("Hm.").text("It is 42.").finish("stop").usage(10, 5).done();
    let tool = json!(["dynamic-tool", "calculator", "output-available", "42", true]);
    let parts = json!([[["step-start"], tool, ["step-start"], ["reasoning", "Hm."], ["text", "It is 42."]]]);
    client("said", &[calls_calculator(), thinking], chat(parts, &["stop"])).await;
}

/// The client makes its own call and no other, twice in a message; the message goes on each time.
#[tokio::test]
async fn a_chat_that_calls_tools_of_the_client() {
    let of_server = json!(["dynamic-tool", "calculator", "output-available", "42", true]);
    let of_client =
        |city: &str| json!(["tool-get_weather", null, "output-available", {"in": city, "sky": "rain"}, false]);
    let parts = json!([[
        ["step-start"],
        of_server,
        of_client("Oslo"),
        ["step-start"],
        of_client("Bergen"),
        ["step-start"],
        ["text", "Rain."],
    ]]);
    let expected = with(chat(parts, &["tool-calls", "tool-calls", "stop"]), &json!({"ids": 2}));
    let asked = client("client_tool", &[calls_both(), calls_weather(), Reply::says("Rain.")], expected).await;
    assert_eq!(roles(&asked[2]), ["user", "assistant", "tool", "tool", "assistant", "tool"]);
    assert_eq!(asked[1]["messages"][3]["content"], r#"{"in":"Oslo","sky":"rain"}"#);
}

#[tokio::test]
async fn a_chat_in_which_a_call_is_approved() {
    let tool = json!(["dynamic-tool", "calculator", "output-available", "42", true]);
    let parts = json!([[["step-start"], tool, ["step-start"], ["text", "It is 42."]]]);
    let expected = with(chat(parts, &["tool-calls", "stop"]), &json!({"asked": 1, "ids": 2}));
    client("approved", &[calls_calculator(), Reply::says("It is 42.")], expected).await;
}

#[tokio::test]
async fn a_chat_in_which_a_call_is_denied() {
    let tool = json!(["dynamic-tool", "calculator", "output-denied", null, true]);
    let parts = json!([[["step-start"], tool, ["step-start"], ["text", "Then not."]]]);
    let expected = with(chat(parts, &["tool-calls", "stop"]), &json!({"asked": 1, "ids": 2}));
    let asked = client("denied", &[calls_calculator(), Reply::says("Then not.")], expected).await;
    assert_eq!(asked[1]["messages"][2]["content"], "The call was not made: it was denied. I say so.");
}

#[tokio::test]
async fn a_chat_that_ends_at_a_limit() {
    let tool = json!(["dynamic-tool", "calculator", "output-available", "42", true]);
    let text = "The run stopped at its limit of model calls before the answer was complete.";
    client("limited", &[calls_calculator()], chat(json!([[["step-start"], tool, ["text", text]]]), &["length"])).await;
}

#[tokio::test]
async fn a_chat_that_fails() {
    let refused = || Reply::error(400, "bad", "No such thing.");
    let shown = json!({"parts": [[["step-start"]]], "status": "error", "ends": [null]});
    let error = "upstream scripted answered 400: No such thing.";
    client("failed", &[refused()], with(shown, &json!({"error": error}))).await;
    let unknown = json!({"status": "error", "code": "model_not_found", "answered": 404});
    client("refused", &[], unknown).await;
}

#[tokio::test]
async fn a_chat_that_is_cancelled() {
    let parts = json!([[["step-start"], ["text", "First."]]]);
    let expected = json!({"parts": parts, "status": "ready", "ends": [null]});
    client("cancelled", &[Reply::stream().text("First.").stall()], expected).await;
}

/// The page is loaded again in the middle of an answer: the new one has all of it.
#[tokio::test]
async fn a_chat_that_is_joined_in_the_middle_of_an_answer() {
    let gate = Gate::new();
    let answer = Reply::stream().text("Half ").gate(&gate).text("whole.").finish("stop").usage(10, 5).done();
    let upstream = Upstream::start([calls_calculator(), answer]).await;
    let server = TestServer::start(&upstream.config()).await;
    let mut command = node_program("ui.mjs");
    command.args(["resumed", server.url()]).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().expect("the interpreter starts");
    let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
    let joined = within("the second reader", lines.next_line()).await.expect("it can be read");
    assert_eq!(joined.as_deref(), Some("joined"));
    gate.open();
    let seen = within("the answer", lines.next_line()).await.expect("it can be read").expect("it goes on");
    let tool = json!(["dynamic-tool", "calculator", "output-available", "42", true]);
    let parts = json!([[["step-start"], tool, ["step-start"], ["text", "Half whole."]]]);
    let seen: Value = serde_json::from_str(&seen).expect("it is JSON");
    assert_eq!(seen, chat(parts, &["stop"]));
    assert_eq!(upstream.requests().len(), 2);
}

/// Two tenants may call their chats the same.
#[tokio::test]
async fn a_chat_is_its_tenants() {
    let upstream = Upstream::start([Reply::stream().text("First.").stall(), Reply::says("Second.")]).await;
    let keys =
        "[keys.one]\nkey_env = \"KEY_ONE\"\ntenant = \"one\"\n[keys.two]\nkey_env = \"KEY_TWO\"\ntenant = \"two\"\n";
    let config = format!("{}{keys}", upstream.config());
    let server = TestServer::builder(&config).env("KEY_ONE", "lg_one").env("KEY_TWO", "lg_two").start().await;
    let parts = json!([{"type": "text", "text": "Hi"}]);
    let body = json!({"id": "chat-1", "model": "test", "messages": [{"id": "m1", "role": "user", "parts": parts}]});
    let send = async |key: &str| server.respond(server.json("/v1/agent/ui", &body).bearer_auth(key)).await;
    let join = async |key: &str| {
        let request = server.request(reqwest::Method::GET, "/v1/agent/ui/chat-1/stream").bearer_auth(key);
        server.respond(request).await.status().as_u16()
    };
    let first = send("lg_one").await;
    assert_eq!((join("lg_one").await, join("lg_two").await), (200, 204));
    let second = within("the stream", send("lg_two").await.text()).await.expect("it is whole");
    assert!(second.contains("Second."), "{second}");
    assert_eq!(roles(&upstream.requests()[1]), ["user"]);
    drop(first);
}

fn agent(messages: impl Into<Value>, steps: u32, outcome: &str, usage: u32) -> Value {
    json!({"messages": messages.into(), "steps": steps, "outcome": outcome, "usage": usage, "ids": [true, true]})
}

fn calculates() -> Value {
    json!(["assistant", null, [["calculator", {"expression": "6 * 7"}]]])
}

#[tokio::test]
async fn a_thread_of_ag_ui() {
    let messages = json!([
        ["user", "Hi", []],
        ["assistant", "Hello", []],
        ["user", "And now?", []],
        ["assistant", "Still here.", []],
    ]);
    let replies = [Reply::says("Hello"), Reply::says("Still here.")];
    let asked = client("ag_text", &replies, agent(messages, 1, "success", 15)).await;
    assert_eq!(asked[0]["messages"][0]["content"], "The place: Oslo");
    assert_eq!(roles(&asked[1]), ["user", "assistant", "user"], "the session has the conversation");
}

#[tokio::test]
async fn an_agent_of_ag_ui_with_tools_of_the_server_and_thinking() {
    let thinking = Reply::stream().reasoning("Hm.").text("It is 42.").finish("stop").usage(10, 5).done();
    let messages = json!([
        ["user", "Hi", []],
        calculates(),
        ["tool", "42", []],
        ["reasoning", "Hm.", []],
        ["assistant", "It is 42.", []],
    ]);
    client("ag_said", &[calls_calculator(), thinking], agent(messages, 2, "success", 30)).await;
}

#[tokio::test]
async fn an_agent_of_ag_ui_that_calls_a_tool_of_the_client() {
    let calls = json!([["calculator", {"expression": "6 * 7"}], ["get_weather", {"city": "Oslo"}]]);
    let messages = json!([
        ["user", "Hi", []],
        ["assistant", null, calls],
        ["tool", "42", []],
        ["tool", "rain", []],
        ["assistant", "Rain.", []],
    ]);
    let expected = with(agent(messages, 1, "success", 15), &json!({"pending": 1}));
    let asked = client("ag_client_tool", &[calls_both(), Reply::says("Rain.")], expected).await;
    assert_eq!(roles(&asked[1]), ["user", "assistant", "tool", "tool"]);
}

#[tokio::test]
async fn an_agent_of_ag_ui_whose_call_is_approved_or_denied() {
    let first = json!({"first": ["interrupt", "tool_call"]});
    let messages = |result: &str, answer: &str| {
        json!([["user", "Hi", []], calculates(), ["tool", result, []], ["assistant", answer, []]])
    };
    let expected = with(agent(messages("42", "It is 42."), 1, "success", 15), &first);
    client("ag_approved", &[calls_calculator(), Reply::says("It is 42.")], expected).await;
    let denied = messages("The call was not made: it was denied.", "Then not.");
    client("ag_denied", &[calls_calculator(), Reply::says("Then not.")], with(agent(denied, 1, "success", 15), &first))
        .await;
}

#[tokio::test]
async fn how_runs_of_ag_ui_end() {
    let text = "The run stopped at its limit of model calls before the answer was complete.";
    let messages = json!([["user", "Hi", []], calculates(), ["tool", "42", []], ["assistant", text, []]]);
    client("ag_limited", &[calls_calculator()], agent(messages, 1, "success", 15)).await;
    let failed = json!({
        "messages": [["user", "Hi", []]], "steps": 1, "outcome": null,
        "error": ["request_rejected", "upstream scripted answered 400: No such thing."],
    });
    client("ag_said", &[Reply::error(400, "bad", "No such thing.")], failed).await;
    let cancelled = agent(json!([["user", "Hi", []], ["assistant", "First.", []]]), 1, "cancelled", 0);
    client("ag_cancelled", &[Reply::stream().text("First.").stall()], cancelled).await;
}

/// Whether a validator of the protocol finds anything in what these requests were answered, one after another.
#[tokio::test]
async fn what_agents_of_ag_ui_read_is_valid() {
    let thinking = Reply::stream().reasoning("Hm.").text("Let me see. ").tool_call(
        0,
        "call_1",
        "calculator",
        r#"{"expression":"1 / 0"}"#,
    );
    let replies = [
        thinking.finish("tool_calls").usage(10, 5).done(),
        Reply::says("It is 42."),
        calls_weather(),
        calls_calculator(),
        Reply::says("It is 42."),
        Reply::error(400, "bad", "No such thing."),
    ];
    let upstream = Upstream::start(replies).await;
    let server = TestServer::start(&upstream.config()).await;
    let hello = json!([{"id": "m1", "role": "user", "content": "Hi"}]);
    let tools = json!([{"name": "get_weather", "description": "Tells it.", "parameters": {"type": "object"}}]);
    let asks = json!({"model": "test", "agent": {"policy": {"ask": ["calculator"]}}});
    let input = |more: Value| {
        let input = json!({
            "threadId": "thread-1", "runId": "r1", "messages": hello, "tools": [], "context": [], "state": {},
            "forwardedProps": {"model": "test"},
        });
        with(input, &more)
    };
    let read = async |body: Value| {
        let answer = within("an answer", server.json("/v1/agent/ag-ui", &body).send()).await.expect("it is answered");
        let stream = within("the stream", answer.text()).await.expect("it is whole");
        let directory = tempfile::tempdir().expect("a directory can be made");
        let recorded = directory.path().join("stream.sse");
        std::fs::write(&recorded, &stream).expect("it can be written");
        let mut command = python_program("ag_ui.py");
        let done = within("the validator", command.arg(&recorded).output()).await.expect("it starts");
        assert!(
            done.status.success(),
            "{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
        stream
    };
    assert!(read(input(json!({}))).await.contains("REASONING_MESSAGE_CONTENT"));
    assert!(read(input(json!({"tools": tools}))).await.contains("pendingToolCallIds"));
    let asked = read(input(json!({"forwardedProps": asks}))).await;
    let id = asked.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("it is asked for");
    let resume = json!([{"interruptId": id, "status": "resolved", "payload": {"approved": true}}]);
    assert!(read(input(json!({"messages": [], "resume": resume}))).await.contains("TOOL_CALL_RESULT"));
    assert!(read(input(json!({}))).await.contains("RUN_ERROR"));
}
