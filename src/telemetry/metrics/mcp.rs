//! What is counted of MCP servers: how they are doing, how they failed, and which of their tools agents lack.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::declare::Declarations;
use super::family::Family;

/// The states of a server.
const STATES: [&str; 4] = ["up", "starting", "failing", "disabled"];

/// Counts what becomes of MCP servers; nothing where metrics are off. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct McpMetrics(Option<Families>);

#[derive(Debug, Clone)]
struct Families {
    states: Family<Gauge>,
    failures: Family<Counter>,
    held: Family<Gauge>,
}

/// How an MCP server is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerState {
    /// Its name.
    pub name: String,
    /// `up`, `starting`, `failing` or `disabled`.
    pub state: &'static str,
    /// How many of its tools are held back until their definitions are accepted.
    pub held: usize,
}

impl McpMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        Self(Some(Families {
            states: to.gauges(
                "mcp_server_state",
                &["server", "state"],
                "1 for the state in which an MCP server is at this replica: `up`, `starting`, `failing` (left alone for up to a \
                 minute) or `disabled` (it crashed too often).",
            ),
            failures: to.counters(
                "mcp_server_failures",
                &["server", "kind"],
                "How often an MCP server, or the connection to it, failed: `unreached`, `not_started` (it did not list its \
                 tools), `ended` or `hung` (it answered nothing).",
            ),
            held: to.gauges(
                "mcp_tools_held",
                &["server"],
                "Tools of an MCP server that agents lack until their definitions are accepted.",
            ),
        }))
    }

    /// Counts a failure of this kind.
    pub fn count_failure(&self, server: &str, kind: &'static str) {
        if let Some(families) = &self.0 {
            families.failures.of(&[server, kind]).inc();
        }
    }

    /// Shows how these servers are doing, in place of those before.
    pub fn show(&self, servers: impl IntoIterator<Item = McpServerState>) {
        let Some(families) = &self.0 else { return };
        families.states.clear();
        families.held.clear();
        for McpServerState { name, state, held } in servers {
            for known in STATES {
                families.states.of(&[&name, known]).set(i64::from(known == state));
            }
            families.held.of(&[&name]).set(i64::try_from(held).unwrap_or(i64::MAX));
        }
    }
}
