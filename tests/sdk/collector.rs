//! What a collector is sent, read by the classes of OpenTelemetry's own packages for Python.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::{installed, script};
use crate::support::redis::{Signal, durable};
use crate::support::{Gate, Reply, TestServer, ToolServer, Upstream, within};

const ENDPOINT: &str = "/v1/agent/completions";

/// A collector over HTTP and gRPC.
struct Collector {
    process: Child,
    printed: BufReader<ChildStdout>,
    ports: Value,
}

impl Collector {
    async fn start() -> Self {
        let python = installed("LOOPGATE_TEST_PYTHON", "python/bin/python");
        let mut command = Command::new(&python);
        command.arg(script("collector.py")).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("the interpreter starts");
        let mut printed = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut line = String::new();
        within("the collector to listen", printed.read_line(&mut line)).await.expect("it prints its ports");
        Self { process, printed, ports: serde_json::from_str(&line).expect("it prints JSON") }
    }

    /// Everything that it was sent.
    async fn spans(mut self) -> Vec<Value> {
        drop(self.process.stdin.take());
        let mut text = String::new();
        within("the collector's spans", self.printed.read_to_string(&mut text)).await.expect("it prints them");
        serde_json::from_str(&text).expect("it prints JSON")
    }
}

/// A replica stands still while it waits for a tool; another one resumes its run, calls the tool again and ends the run.
async fn traced_takeover(protocol: &str, content: &str) -> (Vec<Value>, Value) {
    let (collector, gate, redis) = (Collector::start().await, Gate::new(), durable().await);
    let tools = ToolServer::start([Reply::plain("lost").gate(&gate), Reply::plain("tool-canary")]).await;
    let upstream =
        Upstream::start([Reply::calls("look", &json!({"note": "argument-canary"})), Reply::says("text-canary")]).await;
    let (name, port) = if protocol == "grpc" { ("grpc", "grpc") } else { ("http/protobuf", "http") };
    let config = format!(
        "{}{}[agents.default]\ntools = [\"look\"]\n[traces]\nprotocol = \"{name}\"\nendpoint = \"http://127.0.0.1:{}\"\n\
         content = \"{content}\"\nheaders_env = \"COLLECTOR\"\n",
        upstream.config(),
        tools.config("look", "read"),
        collector.ports[port]
    );
    let start = || {
        let builder = TestServer::builder(&config).env("COLLECTOR", "api-key=collector%20key");
        builder.env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test").store(&redis.url()).start()
    };
    let (mut frozen, mut other) = (start().await, start().await);
    let body = json!({"model": "test", "stream": true, "messages": [
        {"role": "user", "content": "input-canary, and my password: hunter-canary"}]});
    let mut stream = frozen.stream(ENDPOINT, &body).await;
    let begun = stream.until(|frame| frame.name == "tool.call").await;
    let run = begun[0].json()["run_id"].as_str().expect("it is named").to_owned();
    tools.called(1).await;
    frozen.signal(Signal::STOP);
    other.events(&run, 0).await.until(|frame| frame.name == "run.completed").await;
    let read = other.get(&format!("/v1/runs/{run}/trace")).await.ok();
    frozen.signal(Signal::CONT);
    gate.open();
    for server in [&mut other, &mut frozen] {
        server.sigterm();
        server.drained().await;
    }
    let told: Vec<_> = tools.calls().iter().map(|call| call.headers["traceparent"][36..52].to_owned()).collect();
    let spans = collector.spans().await;
    let made: Vec<_> = spans.iter().filter(|span| span["name"] == "execute_tool look").collect();
    let ids: Vec<_> = made.iter().map(|span| span["id"].as_str().expect("it has an id").to_owned()).collect();
    assert_eq!(told, ids, "each attempt is told its own span");
    assert_eq!(made[0]["attributes"]["error.type"], "interrupted");
    assert_eq!(made[1]["links"], json!([ids[0]]), "the second goes on for the first");
    (spans, read)
}

fn tree(spans: &[Value]) -> Vec<String> {
    let name_of = |id: &Value| spans.iter().find(|span| span["id"] == *id).map_or(&Value::Null, |span| &span["name"]);
    spans.iter().map(|span| format!("{} in {}", span["name"], name_of(&span["parent"]))).collect()
}

#[tokio::test]
async fn a_run_with_tools_and_a_takeover_reads_rightly_in_a_collector() {
    for protocol in ["http", "grpc"] {
        let (spans, read) = traced_takeover(protocol, "off").await;
        let mut seen = tree(&spans);
        seen.sort();
        let expected = [
            "\"chat test\" in \"step 1\"",
            "\"chat test\" in \"step 2\"",
            "\"execute_tool look\" in \"step 1\"",
            "\"execute_tool look\" in \"step 1\"",
            "\"invoke_agent default\" in null",
            "\"resumption\" in \"invoke_agent default\"",
            "\"step 1\" in \"invoke_agent default\"",
            "\"step 1\" in \"resumption\"",
            "\"step 2\" in \"resumption\"",
        ];
        assert_eq!(seen, expected, "{protocol}");
        let root = &spans[0];
        assert_eq!((&root["protocol"], &root["key"]), (&json!(protocol), &json!("collector key")));
        assert_eq!(root["resource"]["service.name"], "loopgate");
        assert_eq!(root["resource"]["deployment.environment.name"], "test");
        let attributes = &root["attributes"];
        assert_eq!(attributes["gen_ai.operation.name"], "invoke_agent");
        assert_eq!(attributes["gen_ai.usage.input_tokens"], 20);
        assert_eq!((&attributes["loopgate.run.status"], &root["status"]), (&json!("completed"), &json!(0)));
        let ids = |spans: &[Value], name: &str| spans.iter().map(|span| span[name].clone()).collect::<Vec<_>>();
        assert_eq!(ids(&spans, "id"), ids(crate::traces::spans(&read), "spanId"), "it is what the server tells");
        let all = json!(spans).to_string();
        assert!(!all.contains("canary"), "{all}");
    }
}

#[tokio::test]
async fn content_is_told_where_that_is_asked_for_but_no_password() {
    let (spans, read) = traced_takeover("http", "full").await;
    let all = json!(spans).to_string();
    for said in ["input-canary", "argument-canary", "tool-canary", "text-canary"] {
        assert!(all.contains(said), "{said}: {all}");
    }
    assert!(!all.contains("hunter") && !read.to_string().contains("canary"), "{all}");
}
