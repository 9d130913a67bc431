//! The log of a server whose standard error is a pipe that is read late, or never.

use std::process::Stdio;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::process::Child;

use crate::support::redis::{Signal, free_port, send_signal};
use crate::support::server::loopgate;
use crate::support::{Reply, TestServer, Upstream, within};

/// So many requests whose lines are so long fill the pipe, and all that the server keeps of its log.
const REQUESTS: usize = 900;
const LONG_PATH: usize = 6_000;

/// A server whose log is not read until it is asked for.
struct Unread {
    child: Child,
    url: String,
    client: Client,
    _directory: TempDir,
}

impl Unread {
    async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let config = "[server]\ndrain_delay = \"1ms\"\n[upstreams.demo]\nkind = \"demo\"\n";
        std::fs::write(directory.path().join("test.toml"), config).expect("it can be written to");
        let listen = format!("127.0.0.1:{}", free_port());
        let mut command = loopgate(directory.path());
        command.args(["serve", "--config", "test.toml", "--listen", &listen, "--store", "memory:"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn().expect("the binary was built with the tests");
        let client = Client::builder().no_proxy().build().expect("the defaults are valid");
        let server = Self { child, url: format!("http://{listen}"), client, _directory: directory };
        let ready = async {
            while server.status("/readyz").await != Some(StatusCode::OK) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within("the server to be ready", ready).await;
        server
    }

    async fn status(&self, path: &str) -> Option<StatusCode> {
        Some(self.client.get(format!("{}{path}", self.url)).send().await.ok()?.status())
    }

    /// Makes it write more lines than it keeps.
    async fn fill(&self) {
        let path = format!("/v1/{}", "x".repeat(LONG_PATH));
        let answers = futures_util::stream::iter(0..REQUESTS).map(|_| self.status(&path)).buffer_unordered(32);
        let statuses: Vec<_> = within("all requests to be answered", answers.collect()).await;
        assert!(statuses.iter().all(|status| *status == Some(StatusCode::NOT_FOUND)), "{statuses:?}");
    }

    /// Tells it to end, and returns all of its log.
    async fn end(mut self) -> Vec<Value> {
        send_signal(&self.child, Signal::TERM);
        let mut log = String::new();
        let mut pipe = self.child.stderr.take().expect("it is piped");
        within("the log to end", pipe.read_to_string(&mut log)).await.expect("it is text");
        log.lines().map(|line| serde_json::from_str(line).expect("it is a line of JSON")).collect()
    }
}

#[tokio::test]
async fn a_reader_of_the_log_that_stops_reading_stops_no_request() {
    let server = Unread::start().await;
    server.fill().await;
    assert_eq!(within("an answer", server.status("/healthz")).await, Some(StatusCode::OK));
    let body = json!({"model": "demo/demo", "messages": [{"role": "user", "content": "What is 2 + 2?"}]});
    let run = server.client.post(format!("{}/v1/agent/completions", server.url));
    let run = run.header("content-type", "application/json").body(body.to_string());
    let run = within("a run", run.send()).await.expect("the server answers");
    assert_eq!(run.status(), StatusCode::OK);

    let log = server.end().await;
    let dropped: Vec<u64> = log.iter().filter_map(|line| line["dropped"].as_u64()).collect();
    assert_eq!(dropped.len(), 1, "it says once how many lines are missing");
    let is_long = |line: &&Value| line["span"]["path"].as_str().is_some_and(|path| path.len() > LONG_PATH);
    let told = log.iter().filter(is_long).count() + usize::try_from(dropped[0]).expect("it is small");
    // The run has two lines of its own, which may be among those that were dropped.
    assert!((REQUESTS..=REQUESTS + 2).contains(&told), "of {REQUESTS} requests {told} are told or counted");
    let bytes: usize = log.iter().map(|line| line.to_string().len()).sum();
    assert!(bytes < 6 << 20, "{bytes} bytes were kept");
    assert!(log.iter().any(|line| line["message"] == "draining"), "its last lines are there");
}

#[tokio::test]
async fn a_server_whose_log_is_not_read_ends_when_it_is_told_to() {
    let mut server = Unread::start().await;
    server.fill().await;
    send_signal(&server.child, Signal::TERM);
    let ended = within("the server to end", server.child.wait()).await.expect("it is a child");
    assert!(ended.success(), "{ended}");
}

#[tokio::test]
async fn every_line_of_a_log_that_is_read_is_there_at_the_end() {
    let server = Unread::start().await;
    let paths: Vec<String> = (0..200).map(|number| format!("/v1/none-{number}")).collect();
    for path in &paths {
        assert_eq!(server.status(path).await, Some(StatusCode::NOT_FOUND));
    }
    let log = server.end().await;
    let told: Vec<&str> = log.iter().filter_map(|line| line["span"]["path"].as_str()).collect();
    assert!(paths.iter().all(|path| told.contains(&path.as_str())), "{told:?}");
}

/// The words of a panic may quote what a caller sent.
#[tokio::test]
async fn a_panic_is_a_line_of_the_log_that_says_where_and_not_what() {
    let upstream = Upstream::start([Reply::says("Hello")]).await;
    let builder = TestServer::builder(&upstream.config()).env("LOOPGATE_FAILPOINT", "model.answered:1:panic");
    let server = builder.start().await;
    let body = json!({"model": "test", "messages": [{"role": "user", "content": "Go."}]});
    server.post("/v1/agent/completions", &body).await;
    let line: Value = serde_json::from_str(&server.logged("a thread panicked").await).expect("it is a line of JSON");
    assert!(line["at"].as_str().is_some_and(|at| at.contains("failpoint.rs")), "{line}");
    server.logged("the driver of the run panicked").await;
    assert!(!server.output().contains("was reached"), "{}", server.output());
}

#[tokio::test]
async fn a_model_call_that_failed_and_is_repeated_is_a_line_of_the_log_with_its_cause() {
    let upstream = Upstream::start([Reply::error(503, "overloaded", "Not now."), Reply::says("Hello")]).await;
    let server = TestServer::start(&upstream.config()).await;
    let body = json!({"model": "test", "messages": [{"role": "user", "content": "Go."}]});
    let answer = server.post("/v1/agent/completions", &body).await;
    let line: Value = serde_json::from_str(&server.logged("a model call failed").await).expect("it is a line of JSON");
    assert_eq!((&line["level"], &line["attempt"]), (&json!("WARN"), &json!(1)), "{line}");
    assert_eq!(line["run"].as_str(), answer.headers["x-loopgate-run-id"].to_str().ok(), "{line}");
    assert!(line["cause"].as_str().is_some_and(|cause| cause.contains("503")), "{line}");
    answer.ok();
}

/// They come every second, from each proxy.
#[tokio::test]
async fn probes_that_succeed_do_not_fill_the_log() {
    let config = "[server]\ndrain_delay = \"10s\"\n[upstreams.demo]\nkind = \"demo\"\n";
    let server = TestServer::start(config).await;
    for path in ["/readyz", "/healthz", "/metrics", "/v1/models"] {
        server.respond(server.request(reqwest::Method::GET, path)).await;
    }
    server.logged("/v1/models").await;
    let log = server.output();
    for path in ["/readyz", "/healthz", "/metrics"] {
        assert!(!log.contains(path), "{path}: {log}");
    }
    server.sigterm();
    server.logged("draining").await;
    server.respond(server.request(reqwest::Method::GET, "/readyz")).await;
    assert!(server.logged("/readyz").await.contains("503"), "one that fails is told");
}
