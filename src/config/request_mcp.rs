//! `[request_mcp]`: servers of the Model Context Protocol that requests name, and within which bounds they are reached.

use std::time::Duration;

use super::quantity::{Size, seconds};
use super::reader::Section;
use crate::net::guard::{HostPattern, Hosts};

/// Within which bounds servers are reached that requests name.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestMcpConfig {
    /// Whether callers without a key may name any.
    pub enabled: bool,
    /// If given, only servers at these hosts.
    pub hosts: Option<Hosts>,
    /// Whether they may be reached without TLS.
    pub allow_http: bool,
    /// Most time until a server has listed its tools.
    pub list_timeout: Duration,
    /// How long a connection is kept without a call.
    pub idle: Duration,
    /// Most servers of one request.
    pub max_servers: u32,
    /// Most servers of the live runs of one key.
    pub max_servers_of_key: u32,
    /// Most servers of all live runs of a process.
    pub max_servers_of_process: u32,
    /// Most bytes of an answer.
    pub max_response: u64,
    /// Most calls of one server at once.
    pub max_concurrent_calls: u32,
}

impl Default for RequestMcpConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            hosts: None,
            allow_http: false,
            list_timeout: seconds(10),
            idle: seconds(300),
            max_servers: 8,
            max_servers_of_key: 64,
            max_servers_of_process: 256,
            max_response: 4 << 20,
            max_concurrent_calls: 8,
        }
    }
}

impl RequestMcpConfig {
    /// Reads the bounds.
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let usual = Self::default();
        let enabled = section.key(
            "enabled",
            "Whether requests may name servers where no keys are declared. Where keys are, `request_mcp` of each key says so.",
            usual.enabled,
        );
        let hosts: Option<Vec<HostPattern>> = section.optional(
            "hosts",
            "If given, only servers at these hosts: names such as `\"mcp.example.com\"`, or `\"*.example.com\"` for all names below one. \
             The [egress bounds](#urls-that-others-name) hold in any case.",
        );
        let allow_http = section.key(
            "allow_http",
            "Whether a server may be reached without TLS. What callers have it shown can then be read on the way.",
            usual.allow_http,
        );
        let list_timeout = section.key(
            "list_timeout",
            "Most time until a server has listed its tools. The request waits for that, and is refused with `mcp_server_error` after it.",
            usual.list_timeout,
        );
        let idle = section.key(
            "idle",
            "How long the connection of a run to a server is kept without a call. The next call opens another.",
            usual.idle,
        );
        let max_servers = section.key("max_servers", "Most servers of one request.", usual.max_servers);
        let max_servers_of_key = section.key(
            "max_servers_of_key",
            "Most connections at once of the runs of one key, in each replica. Further requests that name a server are refused with 429.",
            usual.max_servers_of_key,
        );
        let max_servers_of_process = section.key(
            "max_servers_of_process",
            "Most connections at once of all runs, in each replica. Further requests that name a server are refused with 503.",
            usual.max_servers_of_process,
        );
        let Size(max_response) = section.key(
            "max_response",
            "Most bytes of a message of such a server; a longer one fails its call.",
            Size(usual.max_response),
        );
        Self {
            enabled,
            hosts: hosts.map(|hosts| hosts.into_iter().collect()),
            allow_http,
            list_timeout,
            idle,
            max_servers,
            max_servers_of_key,
            max_servers_of_process,
            max_response,
            max_concurrent_calls: section.key(
                "max_concurrent_calls",
                "Most calls at once of the tools of one server by one run.",
                usual.max_concurrent_calls,
            ),
        }
    }
}
