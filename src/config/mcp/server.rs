//! A server as it is declared.

use std::fmt;
use std::time::Duration;

use http::HeaderName;
use url::Url;

use super::access::McpAccess;
use super::command::McpCommand;
use super::effect::McpEffects;
use crate::config::pins::PinPolicy;
use crate::config::quantity::seconds;
use crate::config::sent_value::SentValue;

/// A server of the Model Context Protocol.
#[derive(Debug, Clone, PartialEq)]
pub struct McpServerConfig {
    /// What the names of its tools begin with.
    pub name: String,
    /// How it is reached.
    pub transport: McpTransport,
    /// What repeating a call of its tools does.
    pub effects: McpEffects,
    /// Which of its tools are taken, by the names that it gives them.
    pub tools: Vec<String>,
    /// Which of these are not.
    pub exclude: Vec<String>,
    /// For each call; `None` leaves it to the agent.
    pub timeout: Option<Duration>,
    /// For starting it, and for each answer until its tools are known.
    pub start_timeout: Duration,
    /// How old the list of its tools may become.
    pub refresh: Duration,
    /// Which revisions of the protocol are spoken with it.
    pub protocol: McpProtocol,
    /// Most bytes of an answer.
    pub max_response: u64,
    /// Most calls at once.
    pub max_concurrent_calls: u32,
    /// What it is shown of who calls it.
    pub access: McpAccess,
    /// How long the questions of a call to the user may wait together; `None` where a call may ask none.
    pub elicitation: Option<Duration>,
    /// What becomes of definitions that are new or changed.
    pub pins: PinPolicy,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum McpTransport {
    /// A process of its own, spoken to through its standard input and output.
    Stdio(McpCommand),
    /// Streamable HTTP.
    Http(McpEndpoint),
}

/// Where a server listens.
#[derive(Clone, PartialEq)]
pub struct McpEndpoint {
    /// http or https.
    pub url: Url,
    /// Sent with each request.
    pub headers: Vec<(HeaderName, SentValue)>,
}

impl fmt::Debug for McpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the whole URL, which may hold a key in its query.
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        let host = self.url.host_str();
        f.debug_struct("McpEndpoint").field("host", &host).field("headers", &headers).finish_non_exhaustive()
    }
}

/// Which revisions of the protocol are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpProtocol {
    /// The newest that both know.
    Auto,
    /// Those that begin with `initialize`, up to 2025-11-25.
    Initialize,
    /// Those that do not, from 2026-07-28 on.
    Discover,
}

impl McpServerConfig {
    /// Where it listens, if it does.
    #[must_use]
    pub fn url(&self) -> Option<&Url> {
        match &self.transport {
            McpTransport::Stdio(_) => None,
            McpTransport::Http(endpoint) => Some(&endpoint.url),
        }
    }

    /// A server that is declared by no more than this.
    pub(super) fn with_defaults(name: String, transport: McpTransport) -> Self {
        Self {
            name,
            transport,
            effects: McpEffects::default(),
            tools: vec!["*".to_owned()],
            exclude: Vec::new(),
            timeout: None,
            start_timeout: seconds(30),
            refresh: seconds(300),
            protocol: McpProtocol::Auto,
            max_response: 4 << 20,
            max_concurrent_calls: 16,
            access: McpAccess::default(),
            elicitation: None,
            pins: PinPolicy::default(),
        }
    }
}
