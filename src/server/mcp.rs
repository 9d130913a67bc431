//! The MCP servers of the configuration, which outlive it: one that a new configuration does not change keeps its connection
//! and the list of its tools.

use std::sync::Arc;

use crate::config::Settings;
use crate::net::client::{CannotConnect, HttpClient};
use crate::tools::ToolSource;
use crate::tools::mcp::{McpServer, McpServers, client};

/// The servers that run.
#[derive(Debug, Default)]
pub(super) struct KeptServers {
    all: McpServers,
    client: Option<HttpClient>,
    running: Vec<Arc<McpServer>>,
    /// Those that run once the configuration that is being built is in force.
    next: Vec<Arc<McpServer>>,
    /// Whether a configuration is in force.
    is_settled: bool,
}

impl KeptServers {
    /// What ends all servers with the process.
    pub(super) fn all(&self) -> McpServers {
        self.all.clone()
    }

    /// The servers of these settings. Those that do not run yet, or that run with other settings, are started.
    pub(super) fn of(&mut self, settings: &Settings) -> Result<Vec<Arc<dyn ToolSource>>, CannotConnect> {
        let mut servers = Vec::new();
        for config in &settings.mcp {
            let same = self.running.iter().find(|server| server.config() == config).cloned();
            let server = if let Some(same) = same {
                same
            } else {
                let client = self.client()?;
                // A server that has become ready stays so, whatever it is told to start later.
                self.all.start(config, client, !self.is_settled)
            };
            servers.push(server);
        }
        let sources = servers.iter().map(|server| server.clone() as Arc<dyn ToolSource>).collect();
        self.next = servers;
        Ok(sources)
    }

    /// Keeps the servers of the configuration that was built last, which is in force now. The others end once no run uses
    /// them.
    pub(super) fn settle(&mut self) {
        self.running = std::mem::take(&mut self.next);
        self.is_settled = true;
    }

    /// The servers of the configuration that was built last.
    pub(super) fn next(&self) -> &[Arc<McpServer>] {
        &self.next
    }

    fn client(&mut self) -> Result<HttpClient, CannotConnect> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        Ok(self.client.insert(client()?).clone())
    }
}
