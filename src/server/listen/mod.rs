//! Accepts connections: HTTP/1.1 with bounded buffers, time limits, and a number of slots.
//!
//! The accept loop is our own because the framework's has no limit on how long a client may take for
//! its headers and waits for open streams for ever.

mod acceptor;
mod answer;
mod answering;
mod connection;
mod heartbeat;
mod listening;
mod progress;
mod refusal;
mod served;
mod slots;
mod socket;
mod streamed;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(super) use self::listening::Bounds;
pub(super) use self::slots::{Limits, Surplus};
pub use self::socket::bind;

use crate::telemetry::metrics::Connections;

use self::acceptor::Acceptor;
use self::heartbeat::Heartbeat;
use self::listening::Listening;

/// Bytes of a request's headers, and of a connection's buffers. Not a setting: every connection may take so much,
/// and no request to this server needs more.
const MAX_BUFFER: usize = 32 * 1024;
/// How long open responses may take to end once the server stops. Not a setting: their runs have ended or were
/// left before, within `drain_timeout`.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves connections until `stop` fires, then lets open responses end, for a moment.
pub(super) async fn listen(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
    counted: Connections,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(bounds.keep_alive).max_buf_size(MAX_BUFFER).half_close(false);
    let stop = stop.child_token();
    // Without this the thread would outlive us if we are not asked any more.
    let _stops = stop.clone().drop_guard();
    let connections = TaskTracker::new();
    let heartbeat = Arc::new(Heartbeat::new());
    let listening = Arc::new(Listening { http, router, bounds, stop, connections: connections.clone(), counted });
    let acceptor = Acceptor { listening, serving: Handle::current(), heartbeat: heartbeat.clone() };
    match acceptor.start(listener) {
        Ok(ended) => tokio::select! {
            _ = ended => {}
            never = heartbeat.beat() => match never {},
        },
        Err(error) => tracing::error!(%error, "could not accept connections"),
    }
    connections.close();
    if tokio::time::timeout(CLOSE_TIMEOUT, connections.wait()).await.is_err() {
        tracing::info!("closing connections that are still open");
    }
}

#[cfg(test)]
mod tests;
