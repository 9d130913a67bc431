//! Opens a connection to a server, in the way that the configuration says.

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use tokio_util::task::TaskTracker;

use crate::config::{McpCommand, McpServerConfig, McpTransport};
use crate::net::client::{CannotConnect, HttpClient, Reach};
use crate::tools::mcp::connection::Connection;
use crate::tools::mcp::errors::drain;
use crate::tools::mcp::fault::Fault;
use crate::tools::mcp::process::{Pipes, Process};
use crate::tools::mcp::stdio::Stdio;
use crate::tools::mcp::streamable::{Endpoint, Streamable};

/// Most time for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an unused connection is kept: less than common servers do.
const KEEP_IDLE: Duration = Duration::from_secs(4);
/// How often a stream of events that broke is taken up again.
const RESUMPTIONS: usize = 5;

/// The client that all servers share which listen by HTTP. It goes through no proxy.
pub fn client() -> Result<HttpClient, CannotConnect> {
    HttpClient::new(&Reach { connect_timeout: Some(CONNECT_TIMEOUT), keep_idle: Some(KEEP_IDLE), ..Reach::default() })
}

/// Opens a connection. Dropping the future ends what was begun.
pub(super) async fn connect(
    config: &McpServerConfig,
    client: &HttpClient,
    tasks: &TaskTracker,
) -> Result<Connection, Fault> {
    let most = usize::try_from(config.max_response).unwrap_or(usize::MAX);
    match &config.transport {
        McpTransport::Stdio(command) => {
            let stdio = start_process(config, command, most, tasks)?;
            Connection::open(stdio, config.protocol, tasks).await
        }
        McpTransport::Http(endpoint) => {
            let client = Streamable::new(Endpoint::new(client.clone(), endpoint), most);
            let transport = StreamableHttpClientTransport::with_client(client, settings(config, most));
            Connection::open(transport, config.protocol, tasks).await
        }
    }
}

fn start_process(
    config: &McpServerConfig,
    command: &McpCommand,
    most: usize,
    tasks: &TaskTracker,
) -> Result<Stdio, Fault> {
    let (process, Pipes { input, output, errors }) = Process::start(command).map_err(Fault::Failed)?;
    let secrets = command.secrets().map(str::to_owned).collect();
    tasks.spawn(drain(config.name.clone(), errors, secrets));
    Ok(Stdio::new(&config.name, process, input, output, most))
}

fn settings(config: &McpServerConfig, most: usize) -> StreamableHttpClientTransportConfig {
    let mut retry = ExponentialBackoff::default();
    retry.max_times = Some(RESUMPTIONS);
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
