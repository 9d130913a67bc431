//! The real binary, started with a configuration in a directory of its own.

mod answer;
mod memory_limit;
mod output;
mod process;

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;
use tempfile::TempDir;

use self::process::Process;
use super::redis::{Signal, free_port, send_signal};
use super::{SseReader, within};

pub(crate) use answer::Answer;
pub(crate) use process::loopgate;

/// Names a server that was built with optimizations, as `scripts/prove` does.
const OPTIMIZED: &str = "LOOPGATE_TEST_OPTIMIZED";

/// How to start a server.
#[derive(Debug, Default, Clone)]
pub(crate) struct Builder {
    config: String,
    files: Vec<(String, String)>,
    env: Vec<(String, String)>,
    place: Place,
}

/// Where a server listens and keeps its things, in all of its lives.
#[derive(Debug, Default, Clone)]
struct Place {
    /// A free port for each life without it.
    port: Option<u16>,
    /// The store; one of its own without it.
    store: Option<String>,
    /// The server's program; without it the one that was built with the tests.
    program: Option<PathBuf>,
    /// The memory that it may need, in bytes.
    memory: Option<u64>,
}

impl Builder {
    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Puts a file into the server's directory.
    pub(crate) fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Keeps to one port, so that others find it again after a restart.
    pub(crate) fn keep_port(mut self) -> Self {
        self.place.port = Some(free_port());
        self
    }

    /// Uses this store.
    pub(crate) fn store(mut self, url: &str) -> Self {
        self.place.store = Some(url.to_owned());
        self
    }

    /// Takes a server that was built with optimizations, if that `is_needed`.
    pub(crate) fn optimized(mut self, is_needed: bool) -> Self {
        if is_needed {
            let program = std::env::var_os(OPTIMIZED);
            self.place.program = Some(program.unwrap_or_else(|| panic!("{OPTIMIZED} must name the server")).into());
        }
        self
    }

    /// Has it killed if it needs more memory than so many bytes, where the tests have the right to that.
    pub(crate) fn memory(mut self, bytes: u64) -> Self {
        self.place.memory = Some(bytes);
        self
    }

    /// Starts it and waits until it is ready.
    pub(crate) async fn start(self) -> TestServer {
        let directory = tempfile::tempdir().expect("a directory can be made");
        for (name, text) in self.files.iter().map(|(name, text)| (name.as_str(), text)).chain([(CONFIG, &self.config)])
        {
            std::fs::write(directory.path().join(name), text).expect("it can be written to");
        }
        let process = Process::start(&directory, &self.place, &self.env).await;
        let process = process.unwrap_or_else(|failure| panic!("{failure}"));
        let client = Client::builder().no_proxy().build().expect("the defaults are valid");
        TestServer { directory, place: self.place, env: self.env, process, client, key: None }
    }
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct TestServer {
    directory: TempDir,
    place: Place,
    env: Vec<(String, String)>,
    process: Process,
    client: Client,
    key: Option<String>,
}

impl TestServer {
    /// Starts a server with this configuration and the embedded store.
    pub(crate) async fn start(config: &str) -> Self {
        Self::builder(config).start().await
    }

    /// The same, with more to be set.
    pub(crate) fn builder(config: &str) -> Builder {
        Builder { config: without_delay(config), ..Builder::default() }
    }

    /// Writes a file of the server's directory.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).expect("it can be written to");
    }

    /// Takes the configuration's file away.
    pub(crate) fn remove_config(&self) {
        std::fs::remove_file(self.directory.path().join(CONFIG)).expect("it was there");
    }

    /// Writes another configuration and lets the server read it. Returns what it logs of that.
    pub(crate) async fn reload(&self, config: &str) -> String {
        self.write(CONFIG, &without_delay(config));
        self.hang_up().await
    }

    /// Lets the server read its configuration again. Returns what it logs of that.
    pub(crate) async fn hang_up(&self) -> String {
        let before = self.output().len();
        self.signal(Signal::HUP);
        within("the configuration to be read", self.process.output.read_config(before)).await
    }

    /// Sends this key with every request from now on.
    pub(crate) fn use_key(&mut self, key: &str) {
        self.key = Some(key.to_owned());
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> &str {
        &self.process.url
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> &str {
        self.process.url.trim_start_matches("http://")
    }

    /// What it has written so far, logs and all.
    pub(crate) fn output(&self) -> String {
        self.process.output.text()
    }

    /// The first line of its log that contains `words`, once it is there.
    pub(crate) async fn logged(&self, words: &str) -> String {
        within("a line of the log", self.process.output.line(words)).await
    }

    /// A request to be sent, for those who need more than the methods below.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.process.url));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// Sends a request and reads its JSON answer.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Answer {
        Answer::read(self.respond(request).await).await
    }

    /// `GET path`.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// `POST path` with a JSON body.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(self.json(path, body)).await
    }

    /// `POST path` with a JSON body, answered by a stream.
    pub(crate) async fn stream(&self, path: &str, body: &Value) -> SseReader {
        SseReader::new(self.respond(self.json(path, body)).await)
    }

    /// The events of a run after event `after`.
    pub(crate) async fn events(&self, run: &str, after: u64) -> SseReader {
        let request = self.request(Method::GET, &format!("/v1/runs/{run}/events"));
        SseReader::new(self.respond(request.header("last-event-id", after)).await)
    }

    /// `POST path` with a JSON body, not sent yet.
    pub(crate) fn json(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path).header("content-type", "application/json").body(body.to_string())
    }

    /// Sends a request and returns as soon as the head of the answer is there.
    pub(crate) async fn respond(&self, request: RequestBuilder) -> Response {
        within("an answer", request.send()).await.expect("the server answers")
    }

    /// Kills it with a signal that it cannot catch.
    pub(crate) async fn kill9(&mut self) {
        self.process.child.kill().await.expect("it is running");
    }

    /// Starts it again, in the same directory.
    pub(crate) async fn restart(&mut self) {
        self.try_restart().await.unwrap_or_else(|failure| panic!("{failure}"));
    }

    /// Starts it again, in the same directory; if it dies before it is ready, says so.
    pub(crate) async fn try_restart(&mut self) -> Result<(), String> {
        self.process = Process::start(&self.directory, &self.place, &self.env).await?;
        Ok(())
    }

    /// The environment of its next life.
    pub(crate) fn next_env(&mut self, env: &[(&str, &str)]) {
        self.env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    }

    /// Asks it to end.
    pub(crate) fn sigterm(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        send_signal(&self.process.child, signal);
    }

    /// The most memory that its process ever had resident, in bytes.
    pub(crate) fn most_memory(&self) -> u64 {
        self.process.most_memory()
    }

    /// Whether it is killed if it needs more memory than [`Builder::memory`] says: else that is only to be looked at.
    pub(crate) fn has_memory_limit(&self) -> bool {
        self.process.memory.is_some()
    }

    /// How much memory its process has resident now, in bytes.
    pub(crate) fn resident_memory(&self) -> u64 {
        self.process.resident_memory()
    }

    /// How much of that is its own, in bytes: nothing of its binary.
    pub(crate) fn own_memory(&self) -> u64 {
        self.process.own_memory()
    }

    /// The most that ever was its own, in bytes.
    pub(crate) fn most_own_memory(&self) -> u64 {
        self.process.most_own_memory()
    }

    /// Whether it has ended, by itself or by force.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.child.try_wait().expect("a child can be asked").is_some()
    }

    /// Returns once it has ended by itself; draining may take it `drain_timeout` and a little more.
    pub(crate) async fn drained(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(Duration::from_secs(40), self.process.child.wait()).await;
        ended.expect("a server that was asked to end does so").expect("it was not waited for yet")
    }

    /// Returns once it has ended by itself.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        within("the server to end", self.process.child.wait()).await.expect("it was not waited for yet")
    }
}

/// The configuration's file, in the server's directory.
const CONFIG: &str = "test.toml";
const NO_DELAY: &str = "\n[server]\ndrain_delay = \"0s\"\n";

/// The configuration of a server that has no load balancer to wait for when it is stopped.
fn without_delay(config: &str) -> String {
    if config.contains("[server]") { config.to_owned() } else { format!("{config}{NO_DELAY}") }
}
