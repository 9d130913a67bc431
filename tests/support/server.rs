//! The real binary, started with a configuration in a directory of its own.

use std::fmt::Write;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::redis::{Signal, free_port, send_signal};
use super::{MAX_WAIT, SseReader, within};

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

/// A JSON answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body; `null` if it is empty.
    pub(crate) body: Value,
}

impl Answer {
    /// Reads a response whose body is JSON or empty.
    pub(crate) async fn read(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = within("the rest of an answer", response.text()).await.expect("the answer is whole");
        let body = if text.is_empty() { Ok(Value::Null) } else { serde_json::from_str(&text) };
        let body = body.unwrap_or_else(|error| panic!("{status} with a body that is not JSON ({error}): {text}"));
        Self { status, headers, body }
    }

    /// A header's value, or `""`.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body, after a check that all went well.
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.body);
        self.body
    }

    /// The error's code, after a check that the error has the one shape that is promised.
    pub(crate) fn code(&self) -> &str {
        let error = self.body["error"].as_object().unwrap_or_else(|| panic!("{} {}", self.status, self.body));
        for key in ["message", "type", "param", "code"] {
            assert!(error.contains_key(key), "the error has no {key}: {}", self.body);
        }
        assert!(error["message"].as_str().is_some_and(|message| message.len() > 5), "{}", self.body);
        assert!(error["type"].is_string(), "{}", self.body);
        assert!(error["param"].is_string() || error["param"].is_null(), "{}", self.body);
        assert!(!self.header("x-request-id").is_empty(), "the answer has no request id: {}", self.body);
        error["code"].as_str().unwrap_or_else(|| panic!("the code is no string: {}", self.body))
    }
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

/// The binary, to be started in a directory, with nothing of the environment that would configure it.
pub(crate) fn loopgate(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loopgate"));
    for (name, _) in std::env::vars_os() {
        let upper = name.to_string_lossy().to_uppercase();
        if upper.starts_with("OPENAI_") || upper.starts_with("LOOPGATE_") || upper.ends_with("_PROXY") {
            command.env_remove(name);
        }
    }
    command.current_dir(directory);
    command
}

/// One life of the server.
#[derive(Debug)]
struct Process {
    child: Child,
    url: String,
    output: Output,
    _readers: JoinSet<()>,
}

impl Process {
    /// Starts one and waits until it is ready; or says how it died before.
    async fn start(directory: &TempDir, place: &Place, env: &[(String, String)]) -> Result<Self, String> {
        let listen = format!("127.0.0.1:{}", place.port.unwrap_or(0));
        let mut command = loopgate(directory.path());
        command.args(["serve", "--config", CONFIG, "--listen", &listen]);
        if let Some(store) = &place.store {
            command.args(["--store", store]);
        }
        command.envs(env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the binary was built with the tests");
        let output = Output::default();
        let mut readers = JoinSet::new();
        readers.spawn(output.clone().collect(child.stdout.take().expect("it is piped")));
        readers.spawn(output.clone().collect(child.stderr.take().expect("it is piped")));
        let ready = async {
            let url = output.url().await;
            wait_until_ready(&url, &output).await;
            url
        };
        let url = tokio::select! {
            url = ready => url,
            status = child.wait() => {
                // What it said last may still be on its way.
                while readers.join_next().await.is_some() {}
                return Err(format!("the server did not start, {status:?}:\n{}", output.text()));
            }
        };
        Ok(Self { child, url, output, _readers: readers })
    }
}

async fn wait_until_ready(url: &str, output: &Output) {
    let client = Client::builder().no_proxy().build().expect("the defaults are valid");
    let deadline = tokio::time::Instant::now() + MAX_WAIT;
    loop {
        let answer = client.get(format!("{url}/readyz")).send().await;
        if answer.is_ok_and(|answer| answer.status() == 200) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "the server is not ready:\n{}", output.text());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What a process writes, both streams together.
#[derive(Debug, Clone)]
struct Output {
    text: Arc<Mutex<String>>,
    changed: Arc<watch::Sender<()>>,
}

impl Default for Output {
    fn default() -> Self {
        Self { text: Arc::default(), changed: Arc::new(watch::Sender::new(())) }
    }
}

impl Output {
    fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn collect(self, from: impl AsyncRead + Unpin) {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
            writeln!(text, "{line}").expect("a string takes it");
            drop(text);
            self.changed.send_replace(());
        }
    }

    /// What is written from byte `from` on until the configuration was read, or refused.
    async fn read_config(&self, from: usize) -> String {
        let mut changed = self.changed.subscribe();
        loop {
            let text = self.text()[from..].to_owned();
            if text.contains("the configuration was read again") || text.contains("goes on by the old one") {
                return text;
            }
            changed.changed().await.expect("we hold a sender");
        }
    }

    /// The address that it says it listens on.
    async fn url(&self) -> String {
        let mut changed = self.changed.subscribe();
        let named = async {
            loop {
                if let Some(url) = find_url(&self.text()) {
                    return url;
                }
                changed.changed().await.expect("we hold a sender");
            }
        };
        let named = tokio::time::timeout(MAX_WAIT, named).await;
        named.unwrap_or_else(|_| panic!("the server names no address:\n{}", self.text()))
    }
}

fn find_url(text: &str) -> Option<String> {
    const BEFORE: &str = "http://127.0.0.1:";
    text.match_indices(BEFORE).find_map(|(at, _)| {
        let port: String = text[at + BEFORE.len()..].chars().take_while(char::is_ascii_digit).collect();
        // A port of 0 is what was asked for, not where it is.
        (!port.is_empty() && port != "0").then(|| format!("{BEFORE}{port}"))
    })
}
