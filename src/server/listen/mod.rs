//! Accepts connections: HTTP/1.1 with bounded buffers, a time limit on headers, and a count.
//!
//! The accept loop is our own because the framework's has no limit on how long a client may take for
//! its headers and waits for open streams for ever.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// Bytes of a request's headers, and of a connection's buffers. Not a setting: every connection may take so much,
/// and no request to this server needs more.
const MAX_BUFFER: usize = 32 * 1024;
/// How long open responses may take to end once the server stops. Not a setting: their runs have ended or were
/// left before, within `drain_timeout`.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// A pause after an error that another connection would meet too, such as too many open files. Not a setting: it
/// only keeps the loop from spinning.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What bounds connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Most connections open at the same time.
    pub(super) connections: u32,
    /// How long a new connection may take to send the headers of its first request.
    pub(super) header_timeout: Duration,
    /// How long a connection is kept open between requests, the next one's headers included.
    pub(super) keep_alive: Duration,
}

/// Serves connections until `stop` fires, then lets open responses end, for a moment.
pub(super) async fn listen(listener: TcpListener, router: Router, bounds: Bounds, stop: CancellationToken) {
    let Bounds { connections, header_timeout, keep_alive } = bounds;
    let slots = Arc::new(Semaphore::new(connections as usize));
    let graceful = GracefulShutdown::new();
    let tasks = TaskTracker::new();
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(keep_alive).max_buf_size(MAX_BUFFER).half_close(false);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let (stream, address, slot) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let router = router.clone();
        let begun = CancellationToken::new();
        let first = begun.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            first.cancel();
            request.extensions_mut().insert(ConnectInfo(address));
            let router = router.clone();
            async move { Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|never| match never {})) }
        });
        let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
        tasks.spawn(async move {
            let silent = async {
                if tokio::time::timeout(header_timeout, begun.cancelled()).await.is_ok() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%address, %error, "a connection broke");
                },
                () = silent => tracing::debug!(%address, "a connection sent no request"),
            }
            drop(slot);
        });
    }
    drop(listener);
    if tokio::time::timeout(CLOSE_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::info!("closing connections that are still open");
    }
}

type Slot = tokio::sync::OwnedSemaphorePermit;

/// The next connection, once there is a slot for it.
async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>) -> std::io::Result<(TcpStream, SocketAddr, Slot)> {
    let slot = slots.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, address) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, address, slot))
}
