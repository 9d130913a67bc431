//! Looks after one server: starts it, keeps the list of its tools fresh, and starts it again when it dies.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::McpTransport;
use crate::tools::mcp::connection::Connection;
use crate::tools::mcp::fault::Fault;
use crate::tools::mcp::list::{read, take_up};
use crate::tools::mcp::restarts::{self, Failure, Rest, Restarts};
use crate::tools::mcp::settling::Settling;
use crate::tools::mcp::shared::Shared;
use crate::tools::mcp::start::connect;
use crate::tools::mcp::state::Trouble;

/// How long a server may take to answer anything after a call that got no answer in its time.
const PROBE_WITHIN: Duration = Duration::from_secs(10);
/// How long the process of a server that hangs may take to end.
const CLOSED_WITHIN: Duration = Duration::from_secs(6);

/// Looks after a server until it is to stop.
pub(super) async fn watch_over(server: Arc<Shared>, stop: CancellationToken) {
    let mut restarts = Restarts::default();
    loop {
        let begun = Instant::now();
        let end = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            end = supervised(live(&server)) => end,
        };
        server.state.send_modify(|state| state.connection = None);
        let End::Failed(failure, why) = end else { continue };
        server.metrics.count_failure(&server.config.name, failure.as_str());
        let rest = restarts.after(failure, begun.elapsed(), Instant::now());
        leave_alone(&server, why, rest);
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = server.retry.notified() => restarts = Restarts::default(),
            () = sleep(rest.pause) => {}
        }
    }
    let connection = server.state.borrow().connection.clone();
    if let Some(connection) = connection {
        connection.close();
    }
    server.state.send_modify(|state| state.connection = None);
}

/// Tells the log, and calls that come meanwhile, why a server is left alone.
fn leave_alone(server: &Shared, why: String, rest: Rest) {
    let (name, retry_ms) = (&server.config.name, millis(rest.pause));
    let why = if rest.is_disabled {
        let (crashes, window) = (restarts::MOST_CRASHES, restarts::WINDOW.as_secs());
        tracing::error!(server = name, crashes, window_s = window, %why, retry_ms, "an MCP server crashed too often and is disabled");
        let minutes = rest.pause.as_secs() / 60;
        format!(
            "it crashed {crashes} times within {window} s and is disabled for {minutes} min, or until the configuration is read \
             again; the last time {why}"
        )
    } else {
        tracing::warn!(server = name, %why, retry_ms, "an MCP server failed and is tried again");
        why
    };
    if !rest.pause.is_zero() {
        server.state.send_modify(|state| state.trouble = Some(Trouble { why, is_disabled: rest.is_disabled }));
    }
}

/// How one life of a server, or of a connection to it, ended.
enum End {
    /// It failed so, and why, as the end of a sentence about the server.
    Failed(Failure, String),
    /// It does not know its session any more.
    Renew,
}

/// How a life ends: a panic in it is one more failure, so that the server is tried again after a pause.
async fn supervised(life: impl Future<Output = End>) -> End {
    let broken = || End::Failed(Failure::NotStarted, "what it says cannot be worked with".to_owned());
    AssertUnwindSafe(life).catch_unwind().await.unwrap_or_else(|_| broken())
}

/// One life of a server, or of a connection to it.
async fn live(server: &Arc<Shared>) -> End {
    let limit = server.config.start_timeout;
    let starting = async {
        let shown = server.own_authorization();
        let connection = connect(&server.config, &server.clients, &server.tasks, shown).await?;
        let offered = read(server, connection.list().await?).await?;
        Ok((connection, offered))
    };
    let too_slow = || Fault::Failed(format!("it did not list its tools within {} ms", millis(limit)));
    let (connection, offered) = match timeout(limit, starting).await.unwrap_or_else(|_| Err(too_slow())) {
        Ok(started) => started,
        Err(fault) => {
            let is_process = matches!(server.config.transport, McpTransport::Stdio(_));
            let failure = if is_process && !matches!(fault, Fault::NoProgram(_)) {
                Failure::NotStarted
            } else {
                Failure::Unreached
            };
            return End::Failed(failure, fault.to_string());
        }
    };
    let connection = Arc::new(connection);
    take_up(server, offered);
    server.state.send_modify(|state| {
        state.connection = Some(connection.clone());
        state.trouble = None;
    });
    keep_fresh(server, &connection).await
}

/// Keeps the list of tools fresh until the connection ends. That the list is answered also shows that the server does not hang.
async fn keep_fresh(server: &Arc<Shared>, connection: &Connection) -> End {
    let (limit, mut settling) = (server.config.start_timeout, Settling::default());
    loop {
        let mut is_suspected = false;
        tokio::select! {
            biased;
            () = connection.closed() => {
                let ended = || End::Failed(Failure::Ended, "the connection to it ended".to_owned());
                return if connection.is_renewed() { End::Renew } else { ended() };
            }
            () = connection.suspected() => is_suspected = true,
            () = connection.tools_changed() => {
                // Ends early with the connection.
                let _ = timeout(settling.after(Instant::now()), connection.closed()).await;
            }
            () = sleep(server.config.refresh) => {}
        }
        let limit = if is_suspected { limit.min(PROBE_WITHIN) } else { limit };
        match timeout(limit, connection.list()).await {
            Ok(Ok(listed)) => match read(server, listed).await {
                Ok(offered) => take_up(server, offered),
                Err(fault) => not_listed(server, &fault),
            },
            Ok(Err(Fault::SessionExpired | Fault::SessionDenied)) => connection.renew(),
            Ok(Err(fault)) => not_listed(server, &fault),
            Err(_) if is_suspected || connection.is_idle() => {
                connection.close();
                // Its process may need to be killed. Another one should not be started beside it.
                let _ = timeout(CLOSED_WITHIN, connection.closed()).await;
                return End::Failed(Failure::Hung, "it lived and answered nothing".to_owned());
            }
            // It may be at work on a call and do one thing at a time.
            Err(_) => tracing::warn!(server = server.config.name, "an MCP server did not list its tools again in time"),
        }
    }
}

/// Tells the log why the list of tools stays the one of before.
fn not_listed(server: &Shared, fault: &Fault) {
    tracing::warn!(server = server.config.name, %fault, "an MCP server did not list its tools again");
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_failure() {
        let end = supervised(async { panic!("a panic of a test") }).await;
        assert!(matches!(end, End::Failed(Failure::NotStarted, _)));
    }
}
