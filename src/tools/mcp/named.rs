//! Servers that requests name. Each is one run's: no two runs share a connection, and so no session of a server.
//!
//! A server is opened when its run is accepted, and again when a call needs it that is no longer open: after a while without a
//! call, or at another process that goes on with the run. It ends with its run. How many there are at once is bounded.
//!
//! | file | holds |
//! | --- | --- |
//! | `kept` | those that are open in this process, and how many there may be |
//! | `reach` | which of them may be reached, and how (pure) |
//! | `run` | those of one run, and their tools |
//!
//! What such a server is shown comes from the caller. It is a secret of this server alone: it is sent to the origin of the
//! server's URL and nowhere else, and replaced where the server quotes it.

mod kept;
mod reach;
mod run;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use self::kept::KeptNamed;
pub use self::run::RunServers;
use crate::config::RequestMcpConfig;
use crate::net::client::CannotConnect;
use crate::net::guard::Policy;
use crate::tools::mcp::server::McpServer;
use crate::tools::mcp::start::McpClients;
use crate::types::RunId;
use crate::types::named_server::NamedServer;

/// Why a server that a request names is not open: a clause without its address, and without what it is shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    /// Its URL may not be reached.
    #[error("{0}")]
    Refused(String),
    /// The runs of the caller's key have as many servers as they may.
    #[error(
        "the runs of this key are connected to {0} MCP servers that requests name, which is as many as they may be"
    )]
    TooManyOfKey(u32),
    /// All runs have as many servers as they may.
    #[error(
        "the runs of this server are connected to {0} MCP servers that requests name, which is as many as they may be"
    )]
    TooMany(u32),
}

/// Opens servers that requests name, within the bounds of a configuration. Cheap to clone.
#[derive(Debug, Clone)]
pub struct NamedServers {
    config: Arc<RequestMcpConfig>,
    clients: McpClients,
    kept: KeptNamed,
}

impl NamedServers {
    /// Opens them within these bounds, and keeps them in `kept`. Fails where the certificate authorities of the system cannot be
    /// read.
    pub fn new(config: RequestMcpConfig, egress: &Policy, kept: KeptNamed) -> Result<Self, CannotConnect> {
        Ok(Self { config: Arc::new(config), clients: McpClients::guarded(egress)?, kept })
    }

    /// Within which bounds.
    #[must_use]
    pub fn config(&self) -> &RequestMcpConfig {
        &self.config
    }

    /// Whether this URL may be asked, as far as that takes no name server. The error is a clause.
    pub fn check(&self, server: &NamedServer) -> Result<(), String> {
        reach::url(server, &self.config, self.clients.guard()).map(drop)
    }

    /// The server of a run, which is opened unless it is open. `owner` is whose places it takes.
    pub fn open(&self, run: &RunId, owner: &Arc<str>, server: &NamedServer) -> Result<Arc<McpServer>, NotOpened> {
        let url = reach::url(server, &self.config, self.clients.guard()).map_err(NotOpened::Refused)?;
        let config = reach::config(server, url, &self.config);
        self.kept.get_or_open(run, owner, &config, (&self.config, &self.clients))
    }

    /// Ends those of a run. A call under way goes on.
    pub fn end(&self, run: &RunId) {
        self.kept.end(run);
    }
}
