//! Looks after one server: starts it, keeps the list of its tools fresh, and starts it again when it dies.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::tools::mcp::connection::Connection;
use crate::tools::mcp::definition;
use crate::tools::mcp::fault::Fault;
use crate::tools::mcp::list::take_up;
use crate::tools::mcp::shared::Shared;
use crate::tools::mcp::start::connect;
use crate::tools::mcp::state::Trouble;

/// The pause after a failure, which doubles with each that follows.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A server that lived so long is well: its next death is the first again.
const WELL_AFTER: Duration = Duration::from_secs(60);
/// How long after a change the list is asked for: servers that load their tools tell of each.
const SETTLE: Duration = Duration::from_millis(100);

/// Looks after a server until it is to stop.
pub(super) async fn watch_over(server: Arc<Shared>, stop: CancellationToken) {
    let mut failures = 0;
    loop {
        let begun = Instant::now();
        let end = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            end = supervised(live(&server)) => end,
        };
        server.state.send_modify(|state| state.connection = None);
        let name = &server.config.name;
        let pause = match end {
            End::NotStarted(fault) => {
                failures += 1;
                let pause = pause_after(failures);
                tracing::warn!(server = name, %fault, retry_ms = millis(pause), "an MCP server cannot be used");
                server.state.send_modify(|state| state.trouble = Some(Trouble { why: fault.to_string() }));
                pause
            }
            End::Renew => Duration::ZERO,
            End::Died if begun.elapsed() >= WELL_AFTER => {
                failures = 0;
                tracing::warn!(server = name, "the connection to an MCP server ended; it is opened again");
                Duration::ZERO
            }
            End::Died => {
                // The first time nothing is waited for: a call that comes meanwhile finds the server again.
                let pause = if failures == 0 { Duration::ZERO } else { pause_after(failures) };
                failures += 1;
                tracing::warn!(server = name, retry_ms = millis(pause), "the connection to an MCP server ended");
                if !pause.is_zero() {
                    let why = "it ended soon after it was started".to_owned();
                    server.state.send_modify(|state| state.trouble = Some(Trouble { why }));
                }
                pause
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = sleep(pause) => {}
        }
    }
    let connection = server.state.borrow().connection.clone();
    if let Some(connection) = connection {
        connection.close();
    }
    server.state.send_modify(|state| state.connection = None);
}

/// How one life of a server, or of a connection to it, ended.
enum End {
    /// It could not be used.
    NotStarted(Fault),
    /// It ended by itself.
    Died,
    /// It does not know its session any more.
    Renew,
}

/// How a life ends: a panic in it is one more failure, so that the server is tried again after a pause.
async fn supervised(life: impl Future<Output = End>) -> End {
    let broken = || End::NotStarted(Fault::Failed("what it says cannot be worked with".to_owned()));
    AssertUnwindSafe(life).catch_unwind().await.unwrap_or_else(|_| broken())
}

/// One life of a server, or of a connection to it.
async fn live(server: &Arc<Shared>) -> End {
    let limit = server.config.start_timeout;
    let starting = async {
        let connection = connect(&server.config, &server.client, &server.tasks).await?;
        let listed = connection.list().await?;
        Ok((connection, listed))
    };
    let too_slow = || Fault::Failed(format!("it did not list its tools within {} ms", millis(limit)));
    let (connection, listed) = match timeout(limit, starting).await.unwrap_or_else(|_| Err(too_slow())) {
        Ok(started) => started,
        Err(fault) => return End::NotStarted(fault),
    };
    let connection = Arc::new(connection);
    take_up(server, definition::read(&server.config, &listed));
    server.state.send_modify(|state| {
        state.connection = Some(connection.clone());
        state.trouble = None;
    });
    keep_fresh(server, &connection).await
}

/// Keeps the list of tools fresh until the connection ends.
async fn keep_fresh(server: &Arc<Shared>, connection: &Connection) -> End {
    loop {
        tokio::select! {
            biased;
            () = connection.closed() => return if connection.is_renewed() { End::Renew } else { End::Died },
            () = connection.tools_changed() => sleep(SETTLE).await,
            () = sleep(server.config.refresh) => {}
        }
        match timeout(server.config.start_timeout, connection.list()).await {
            Ok(Ok(listed)) => take_up(server, definition::read(&server.config, &listed)),
            Ok(Err(Fault::SessionExpired | Fault::SessionDenied)) => connection.renew(),
            Ok(Err(fault)) => {
                tracing::warn!(server = server.config.name, %fault, "an MCP server did not list its tools again");
            }
            Err(_) => tracing::warn!(server = server.config.name, "an MCP server did not list its tools again in time"),
        }
    }
}

fn pause_after(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_PAUSE)
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
        assert!(matches!(end, End::NotStarted(_)));
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        let pauses: Vec<u64> = [1, 2, 3, 8, 100].into_iter().map(|failures| millis(pause_after(failures))).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 60_000, 60_000]);
    }
}
