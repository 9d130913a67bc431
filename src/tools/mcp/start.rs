//! Opens a connection to a server, in the way that the configuration says.

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use tokio_util::task::TaskTracker;
use url::Url;

use crate::config::{McpCommand, McpProtocol, McpServerConfig, McpTransport};
use crate::net::client::{CannotConnect, HttpClient, Proxies, Reach};
use crate::net::fetch::Fetcher;
use crate::net::guard::{Guard, Policy};
use crate::tools::mcp::auth::{AuthWeb, Authorization};
use crate::tools::mcp::connection::Connection;
use crate::tools::mcp::errors::drain;
use crate::tools::mcp::fault::Fault;
use crate::tools::mcp::guarded::Guarded;
use crate::tools::mcp::process::{Pipes, Process};
use crate::tools::mcp::secrets::Secrets;
use crate::tools::mcp::stdio::Stdio;
use crate::tools::mcp::streamable::{Endpoint, Streamable};

/// Most time for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an unused connection is kept: less than common servers do.
const KEEP_IDLE: Duration = Duration::from_secs(4);
/// How often a stream of events that broke is taken up again: five times within 8 s, so that a call to a server that is gone
/// is answered then.
const RESUMPTIONS: usize = 5;
/// The pause before the first of them, which doubles with each.
const FIRST_RESUMPTION: Duration = Duration::from_millis(250);

/// What all servers are reached with that listen by HTTP. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct McpClients {
    /// Reaches the servers: those that the operator names through no proxy and no guard.
    http: HttpClient,
    /// Reaches what these servers name.
    fetcher: Fetcher,
}

impl McpClients {
    /// Those of a configuration with these bounds for URLs that others name.
    pub fn new(egress: &Policy) -> Result<Self, CannotConnect> {
        let (connect_timeout, keep_idle) = (Some(CONNECT_TIMEOUT), Some(KEEP_IDLE));
        let http = HttpClient::new(&Reach { connect_timeout, keep_idle, ..Reach::default() })?;
        Ok(Self { http, fetcher: Fetcher::new(Guard::new(egress.clone()))? })
    }

    /// Those of servers that requests name, which are reached within the bounds for URLs that others name.
    pub fn guarded(egress: &Policy) -> Result<Self, CannotConnect> {
        let guard = Guard::new(egress.clone());
        let http = HttpClient::new(&Reach {
            connect_timeout: Some(CONNECT_TIMEOUT),
            keep_idle: Some(KEEP_IDLE),
            proxies: egress.proxy.clone().map_or(Proxies::None, Proxies::One),
            guard: Some(guard.clone()),
            ..Reach::default()
        })?;
        Ok(Self { http, fetcher: Fetcher::new(guard)? })
    }

    /// What decides on what they name, and on the servers themselves if they are guarded.
    pub(super) fn guard(&self) -> &Guard {
        self.fetcher.guard()
    }

    /// What asks about tokens, of which the operator names these servers.
    pub(super) fn auth_web<'a>(&self, named: impl IntoIterator<Item = &'a Url>) -> AuthWeb {
        AuthWeb::new(self.http.clone(), self.fetcher.clone(), named.into_iter().map(Url::origin).collect())
    }
}

/// Opens a connection that shows `authorization`. Dropping the future ends what was begun.
pub(super) async fn connect(
    config: &McpServerConfig,
    clients: &McpClients,
    tasks: &TaskTracker,
    authorization: Authorization,
) -> Result<Connection, Fault> {
    match open(config, config.protocol, clients, tasks, authorization.clone()).await {
        // Some old servers answer what they do not know with an empty result.
        Err(Fault::Unexpected) if config.protocol == McpProtocol::Auto => {
            open(config, McpProtocol::Initialize, clients, tasks, authorization).await
        }
        opened => opened,
    }
}

async fn open(
    config: &McpServerConfig,
    protocol: McpProtocol,
    clients: &McpClients,
    tasks: &TaskTracker,
    authorization: Authorization,
) -> Result<Connection, Fault> {
    let most = usize::try_from(config.max_response).unwrap_or(usize::MAX);
    let elicits = config.elicitation.is_some();
    let secrets = Secrets::of(config).and(authorization.secret()).and_those_of(authorization.tokens());
    match &config.transport {
        McpTransport::Stdio(command) => {
            let stdio = start_process(config, command, most, tasks)?;
            Connection::open(Guarded::new(&config.name, stdio), protocol, tasks, secrets, elicits).await
        }
        McpTransport::Http(endpoint) => {
            let shown = authorization.clone();
            let client = Streamable::new(Endpoint::new(clients.http.clone(), endpoint, shown), most);
            let transport = StreamableHttpClientTransport::with_client(client, settings(config, most));
            let guarded = Guarded::new(&config.name, transport);
            let opened = Connection::open(guarded, protocol, tasks, secrets, elicits).await;
            opened.map(|connection| connection.showing(authorization))
        }
    }
}

fn start_process(
    config: &McpServerConfig,
    command: &McpCommand,
    most: usize,
    tasks: &TaskTracker,
) -> Result<Stdio, Fault> {
    let (process, Pipes { input, output, errors }) = Process::start(command).map_err(Fault::NoProgram)?;
    // The log tells none of what was given to the server.
    let secrets = Secrets::new(command.given().chain(&command.secrets).cloned());
    tasks.spawn(drain(config.name.clone(), errors, secrets));
    Ok(Stdio::new(&config.name, process, input, output, most))
}

fn settings(config: &McpServerConfig, most: usize) -> StreamableHttpClientTransportConfig {
    let mut retry = ExponentialBackoff::default();
    retry.max_times = Some(RESUMPTIONS);
    retry.base_duration = FIRST_RESUMPTION;
    // The client knows the address; what the SDK has of it might be told in its errors.
    let mut settings = StreamableHttpClientTransportConfig::with_uri(config.name.as_str());
    settings.retry_config = Arc::new(retry);
    settings.max_concurrent_requests = usize::try_from(config.max_concurrent_calls).unwrap_or(usize::MAX).max(1) + 1;
    settings.max_sse_event_size = most;
    settings.max_json_response_size = most;
    // A session that is gone ends the connection: calls under way in it get no answer, and the next call opens another.
    settings.reinit_on_expired_session = false;
    settings
}
