//! What a server's tools and the task that looks after it know of it.

use std::sync::{Arc, OnceLock};

use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::task::TaskTracker;

use crate::config::McpServerConfig;
use crate::telemetry::metrics::McpMetrics;
use crate::tools::mcp::auth::{Sessions, Tokens};
use crate::tools::mcp::start::McpClients;
use crate::tools::mcp::state::State;

/// What a server's tools and its task know of it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: McpServerConfig,
    pub(super) clients: McpClients,
    pub(super) tasks: TaskTracker,
    pub(super) state: watch::Sender<State>,
    /// Counts the changes of its tools, and of those of other servers.
    pub(super) changes: watch::Sender<u64>,
    pub(super) calls: Semaphore,
    /// Ends a pause in which it is left alone.
    pub(super) retry: Notify,
    pub(super) metrics: McpMetrics,
    /// The connections of tenants, users and runs, where these have their own.
    pub(super) sessions: Arc<Sessions>,
    /// The tokens that it is shown where it sees no difference between callers.
    pub(super) own_tokens: OnceLock<Arc<Tokens>>,
}

impl Shared {
    /// A server of which nothing is known yet.
    pub(super) fn new(
        config: &McpServerConfig,
        clients: McpClients,
        tasks: TaskTracker,
        changes: watch::Sender<u64>,
        metrics: McpMetrics,
    ) -> Self {
        let most = usize::try_from(config.max_concurrent_calls).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self {
            config: config.clone(),
            clients,
            tasks,
            state: watch::Sender::default(),
            changes,
            calls: Semaphore::new(most),
            retry: Notify::new(),
            metrics,
            sessions: Arc::default(),
            own_tokens: OnceLock::new(),
        }
    }
}
