//! A server of tools: kept running and connected, asked for its tools, and called.
//!
//! One task looks after each server. It starts the server, asks for its tools, asks again when they change or the list is old,
//! and starts the server again when it dies: at once the first time, then after longer and longer pauses. Calls wait for a
//! server that starts; they fail at once while one that failed is left alone.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::config::{McpServerConfig, PinPolicy};
use crate::telemetry::metrics::McpMetrics;
use crate::tools::Tool;
use crate::tools::mcp::auth::sweep;
use crate::tools::mcp::definition::Definition;
use crate::tools::mcp::shared::Shared;
use crate::tools::mcp::start::McpClients;
use crate::tools::mcp::tool::McpTool;
use crate::tools::mcp::watch_over::watch_over;
use crate::tools::registry::RegisteredTool;
use crate::tools::source::ToolSource;
use crate::types::offer::ToolDefinition;
use crate::types::{Effect, RunId};

/// How long the processes of servers may take to end with this one: twice what each is given, and a little more.
const END_WITHIN: Duration = Duration::from_secs(5);

/// What all servers of a process share. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct McpServers {
    tasks: TaskTracker,
    ending: CancellationToken,
    /// Counts the changes of the tools of all servers.
    changes: watch::Sender<u64>,
    metrics: McpMetrics,
}

/// A server. Dropping it ends its connections and its process.
#[derive(Debug)]
pub struct McpServer {
    shared: Arc<Shared>,
    is_awaited: bool,
    _stop: DropGuard,
}

impl McpServers {
    /// Servers whose failures are counted so.
    #[must_use]
    pub fn new(metrics: McpMetrics) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Servers that end with these, and of which nobody is told anything else.
    pub(super) fn apart(&self) -> Self {
        Self { tasks: self.tasks.clone(), ending: self.ending.clone(), ..Self::default() }
    }

    /// Has work of theirs be done in the background, until they end.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let ending = self.ending.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = ending.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Starts a server in the background. One that listens by HTTP is reached with `clients`. Whether it is waited for is kept for
    /// those who ask.
    #[must_use]
    pub fn start(&self, config: &McpServerConfig, clients: McpClients, is_awaited: bool) -> Arc<McpServer> {
        let stop = self.ending.child_token();
        let shared =
            Arc::new(Shared::new(config, clients, self.tasks.clone(), self.changes.clone(), self.metrics.clone()));
        if config.access.is_apart() {
            self.tasks.spawn(sweep(shared.sessions.clone(), config.access.session_idle, stop.clone()));
        }
        self.tasks.spawn(watch_over(shared.clone(), stop.clone()));
        Arc::new(McpServer { shared, is_awaited, _stop: stop.drop_guard() })
    }

    /// Tells of each change of the tools of a server.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Ends all servers. Returns once their processes have ended.
    pub async fn close(&self) {
        self.ending.cancel();
        self.tasks.close();
        if tokio::time::timeout(END_WITHIN, self.tasks.wait()).await.is_err() {
            tracing::warn!("MCP servers did not end in time");
        }
    }
}

impl McpServer {
    /// What it was started with.
    #[must_use]
    pub fn config(&self) -> &McpServerConfig {
        &self.shared.config
    }

    /// What it says of them.
    #[must_use]
    pub fn definitions(&self) -> Arc<[Definition]> {
        self.shared.state.borrow().definitions.clone()
    }

    /// Whether it is waited for: it has neither listed its tools nor failed to.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        let state = self.shared.state.borrow();
        self.is_awaited && state.tools.is_none() && state.trouble.is_none()
    }

    /// Why it cannot be called now, if that is so.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.shared.state.borrow().trouble.as_ref().map(|trouble| trouble.why.clone())
    }

    /// How it is doing: `up`, `starting`, `failing` or `disabled`.
    #[must_use]
    pub fn standing(&self) -> &'static str {
        let state = self.shared.state.borrow();
        match (&state.connection, &state.trouble) {
            (Some(_), _) => "up",
            (None, Some(trouble)) => {
                if trouble.is_disabled {
                    "disabled"
                } else {
                    "failing"
                }
            }
            (None, None) => "starting",
        }
    }

    /// What it listed that cannot be offered, by its own names, each with the reason; what was cut off has no name.
    #[must_use]
    pub fn left_out(&self) -> Arc<[(String, String)]> {
        self.shared.state.borrow().left_out.clone()
    }

    /// Tries it again now, if it is left alone because it failed.
    pub fn retry(&self) {
        self.shared.retry.notify_waiters();
    }

    /// Returns once it has listed its tools, or could not be started the first time.
    pub async fn first_try(&self) {
        let mut state = self.shared.state.subscribe();
        // The sender lives as long as this server.
        let _ = state.wait_for(|state| state.tools.is_some() || state.trouble.is_some()).await;
    }
}

impl ToolSource for McpServer {
    fn name(&self) -> &str {
        &self.shared.config.name
    }

    fn tools(&self) -> Option<Arc<[Arc<RegisteredTool>]>> {
        self.shared.state.borrow().tools.clone()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    fn pending(&self, offered: &ToolDefinition, effect: Effect) -> Option<Arc<dyn Tool>> {
        let shared = Arc::downgrade(&self.shared);
        let tool = McpTool::pending(offered, effect, &self.shared.config, shared)?;
        Some(Arc::new(tool))
    }

    fn run_ended(&self, run: &RunId) {
        self.shared.sessions.end_run(run);
    }

    fn pins(&self) -> &PinPolicy {
        &self.shared.config.pins
    }
}
