//! Servers for tests: `tests/mcp/server.py`, which speaks both transports and has faults to order.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use url::Url;

use crate::config::{
    McpAccess, McpCommand, McpEffects, McpEndpoint, McpProtocol, McpServerConfig, McpTransport, PinPolicy, Secret,
};
use crate::net::guard::Policy;
use crate::tools::mcp::{McpClients, McpServer, McpServers};
use crate::tools::testing::context;
use crate::tools::{CallContext, RegisteredTool, ToolSource, invoke};
use crate::types::ToolOutcome;

/// How long anything may take.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A server of this name that is nowhere.
pub(crate) fn config(name: &str) -> McpServerConfig {
    let url = Url::parse("http://127.0.0.1:9/mcp").expect("it is a URL");
    McpServerConfig {
        name: name.to_owned(),
        transport: McpTransport::Http(McpEndpoint { url, headers: Vec::new() }),
        effects: McpEffects::default(),
        tools: vec!["*".to_owned()],
        exclude: Vec::new(),
        timeout: None,
        start_timeout: Duration::from_secs(15),
        refresh: Duration::from_secs(300),
        protocol: McpProtocol::Auto,
        max_response: 1 << 20,
        max_concurrent_calls: 16,
        access: McpAccess::default(),
        elicitation: None,
        pins: PinPolicy::default(),
    }
}

/// The same, started as a process with these options.
pub(crate) fn process(options: &[&str]) -> McpServerConfig {
    let env = ["PATH", "HOME"].into_iter().filter_map(|name| Some((name.to_owned(), Secret::new(var(name)?))));
    let arguments = [script().display().to_string()].into_iter().chain(options.iter().map(ToString::to_string));
    let command = McpCommand {
        program: "python3".to_owned(),
        arguments: arguments.collect(),
        env: env.chain([("TOKEN".to_owned(), Secret::new("sk-of-the-server"))]).collect(),
        secrets: vec![Secret::new("sk-of-the-server")],
        directory: None,
    };
    McpServerConfig { transport: McpTransport::Stdio(command), ..config("test") }
}

fn var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.py")
}

/// The same server, listening. Dropping it kills it.
pub(crate) struct Listening {
    process: Child,
    options: Vec<String>,
    pub(crate) port: u16,
}

impl Listening {
    /// Starts one with these options.
    pub(crate) async fn start(options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let (process, port) = listen(0, &options).await;
        Self { process, options, port }
    }

    /// Kills it.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }

    /// Starts it again at the same port.
    pub(crate) async fn restart(&mut self) {
        (self.process, self.port) = listen(self.port, &self.options).await;
    }

    /// How it is reached at a path.
    pub(crate) fn config(&self, path: &str) -> McpServerConfig {
        let url = Url::parse(&format!("http://127.0.0.1:{}{path}", self.port)).unwrap();
        McpServerConfig { transport: McpTransport::Http(McpEndpoint { url, headers: Vec::new() }), ..config("test") }
    }
}

async fn listen(port: u16, options: &[String]) -> (Child, u16) {
    let mut command = Command::new("python3");
    command.arg(script()).arg("--http").arg(port.to_string()).args(options);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
    let port = timeout(SOON, said.next_line()).await.unwrap().unwrap().expect("it says where it listens");
    (process, port.parse().unwrap())
}

/// Starts looking after a server.
pub(crate) fn started(config: &McpServerConfig) -> (McpServers, Arc<McpServer>) {
    let servers = McpServers::default();
    let server = servers.start(config, McpClients::new(&Policy::default()).unwrap(), true);
    (servers, server)
}

/// The same, once its tools are listed or it failed.
pub(crate) async fn tried(config: &McpServerConfig) -> (McpServers, Arc<McpServer>) {
    let (servers, server) = started(config);
    timeout(SOON, server.first_try()).await.expect("it is tried in time");
    (servers, server)
}

/// One of its tools.
pub(crate) fn tool(server: &McpServer, name: &str) -> Arc<RegisteredTool> {
    let tools = server.tools().unwrap_or_else(|| panic!("no tools: {:?}", server.trouble()));
    let found = tools.iter().find(|tool| tool.spec().name == name);
    found.cloned().unwrap_or_else(|| panic!("{name} is none of {tools:?}"))
}

/// What comes of a call.
pub(crate) async fn call(server: &McpServer, name: &str, arguments: Value) -> ToolOutcome {
    call_in(server, name, arguments, context(SOON)).await
}

/// What comes of a call in these surroundings.
pub(crate) async fn call_in(server: &McpServer, name: &str, arguments: Value, context: CallContext) -> ToolOutcome {
    let arguments = to_raw_value(&arguments).unwrap();
    timeout(2 * SOON, invoke(tool(server, name), arguments, context)).await.expect("it is answered in time")
}
