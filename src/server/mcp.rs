//! The MCP servers of the configuration, which outlive it: one that a new configuration does not change keeps its connection
//! and the list of its tools.

use std::sync::Arc;

use crate::config::{RequestMcpConfig, Settings};
use crate::net::client::CannotConnect;
use crate::net::guard::Policy;
use crate::telemetry::metrics::McpMetrics;
use crate::tools::ToolSource;
use crate::tools::mcp::{KeptNamed, McpClients, McpServer, McpServers, NamedServers};

/// The servers that run.
#[derive(Debug, Default)]
pub(super) struct KeptServers {
    all: McpServers,
    /// What they are reached with, by the bounds for URLs that others name.
    clients: Option<(Policy, McpClients)>,
    running: Vec<Arc<McpServer>>,
    /// Those that requests name, and what opens them under the settings that it was made for.
    named: KeptNamed,
    naming: Option<(RequestMcpConfig, Policy, NamedServers)>,
    /// Those that run once the configuration that is being built is in force.
    next: Vec<Arc<McpServer>>,
    /// Whether a configuration is in force.
    is_settled: bool,
}

impl KeptServers {
    /// None yet; what becomes of them is counted so.
    pub(super) fn new(metrics: McpMetrics) -> Self {
        let all = McpServers::new(metrics);
        Self { named: KeptNamed::beside(&all), all, ..Self::default() }
    }

    /// What ends all servers with the process.
    pub(super) fn all(&self) -> McpServers {
        self.all.clone()
    }

    /// The servers of these settings. Those that do not run yet, or that run with other settings, are started.
    pub(super) fn of(&mut self, settings: &Settings) -> Result<Vec<Arc<dyn ToolSource>>, CannotConnect> {
        let mut servers = Vec::new();
        let is_bounded_alike = self.clients.as_ref().is_some_and(|(egress, _)| *egress == settings.egress);
        for config in &settings.mcp {
            let is_same = |server: &&Arc<McpServer>| {
                server.config() == config && (is_bounded_alike || config.access.oauth.is_none())
            };
            let same = self.running.iter().find(is_same).cloned();
            let server = if let Some(same) = same {
                same
            } else {
                let clients = self.clients(&settings.egress)?;
                // A server that has become ready stays so, whatever it is told to start later.
                self.all.start(config, clients, !self.is_settled)
            };
            servers.push(server);
        }
        let sources = servers.iter().map(|server| server.clone() as Arc<dyn ToolSource>).collect();
        self.next = servers;
        Ok(sources)
    }

    /// What opens servers that requests name; `None` if these settings let nobody name any.
    pub(super) fn naming(&mut self, settings: &Settings) -> Result<Option<NamedServers>, CannotConnect> {
        let Settings { request_mcp: bounds, egress, keys, .. } = settings;
        let may_name = if keys.is_empty() { bounds.enabled } else { keys.iter().any(|key| key.request_mcp) };
        if !may_name {
            return Ok(None);
        }
        if let Some((_, _, same)) = self.naming.as_ref().filter(|(of, within, _)| of == bounds && within == egress) {
            return Ok(Some(same.clone()));
        }
        let servers = NamedServers::new(bounds.clone(), egress, self.named.clone())?;
        self.naming = Some((bounds.clone(), egress.clone(), servers.clone()));
        Ok(Some(servers))
    }

    /// Keeps the servers of the configuration that was built last, which is in force now. The others end once no run uses
    /// them. A server that is left alone because it failed is tried again: what it needs may have been mended.
    pub(super) fn settle(&mut self) {
        self.running = std::mem::take(&mut self.next);
        for server in &self.running {
            server.retry();
        }
        self.is_settled = true;
    }

    /// The servers of the configuration that was built last.
    pub(super) fn next(&self) -> &[Arc<McpServer>] {
        &self.next
    }

    fn clients(&mut self, egress: &Policy) -> Result<McpClients, CannotConnect> {
        if let Some((_, clients)) = self.clients.as_ref().filter(|(of, _)| of == egress) {
            return Ok(clients.clone());
        }
        Ok(self.clients.insert((egress.clone(), McpClients::new(egress)?)).1.clone())
    }
}
