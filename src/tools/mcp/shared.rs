//! What a server's tools and the task that looks after it know of it.

use tokio::sync::{Semaphore, watch};
use tokio_util::task::TaskTracker;

use crate::config::McpServerConfig;
use crate::net::client::HttpClient;
use crate::tools::mcp::state::State;

/// What a server's tools and its task know of it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: McpServerConfig,
    pub(super) client: HttpClient,
    pub(super) tasks: TaskTracker,
    pub(super) state: watch::Sender<State>,
    /// Counts the changes of its tools, and of those of other servers.
    pub(super) changes: watch::Sender<u64>,
    pub(super) calls: Semaphore,
}

impl Shared {
    /// A server of which nothing is known yet.
    pub(super) fn new(
        config: &McpServerConfig,
        client: HttpClient,
        tasks: TaskTracker,
        changes: watch::Sender<u64>,
    ) -> Self {
        let most = usize::try_from(config.max_concurrent_calls).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self {
            config: config.clone(),
            client,
            tasks,
            state: watch::Sender::default(),
            changes,
            calls: Semaphore::new(most),
        }
    }
}
