//! Accepts connections: HTTP/1.1 with bounded buffers, time limits, and a number of slots.
//!
//! The accept loop is our own because the framework's has no limit on how long a client may take for
//! its headers and waits for open streams for ever.

mod answering;
mod connection;
mod refusal;
mod slots;
mod socket;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

pub(super) use self::slots::{Limits, Surplus};

use self::answering::Answering;
use self::connection::Connection;
use self::slots::{Slot, Slots};

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
    /// How many there may be.
    pub(super) limits: Limits,
    /// How long a new connection may take to send the headers of its first request.
    pub(super) header_timeout: Duration,
    /// How long a connection is kept open between requests, the next one's headers included.
    pub(super) keep_alive: Duration,
    /// How long a client may take nothing of its answer.
    pub(super) write_timeout: Duration,
}

/// What all connections have in common.
#[derive(Debug, Clone)]
struct Listening {
    http: http1::Builder,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
}

/// Serves connections until `stop` fires, then lets open responses end, for a moment.
pub(super) async fn listen(listener: TcpListener, router: Router, bounds: Bounds, stop: CancellationToken) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(bounds.keep_alive).max_buf_size(MAX_BUFFER).half_close(false);
    let slots = Slots::new(bounds.limits);
    let connections = TaskTracker::new();
    let listening = Listening { http, router, bounds, stop };
    loop {
        let accepted = tokio::select! {
            biased;
            () = listening.stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                // Without a slot it is closed at once.
                if let Some(slot) = slots.take(address.ip()) {
                    connections.spawn(listening.clone().serve(stream, address, slot));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(CLOSE_TIMEOUT, connections.wait()).await.is_err() {
        tracing::info!("closing connections that are still open");
    }
}

impl Listening {
    /// Serves one connection until it ends, or has to.
    async fn serve(self, stream: TcpStream, address: SocketAddr, slot: Slot) {
        let Self { http, router, bounds, stop } = self;
        if let Err(error) = socket::prepare(&stream, bounds.write_timeout) {
            tracing::debug!(%address, %error, "a connection could not be prepared");
            return;
        }
        let slot = Arc::new(slot);
        let begun = CancellationToken::new();
        let (first, of_request) = (begun.clone(), slot.clone());
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            first.cancel();
            let busy = of_request.busy();
            request.extensions_mut().insert(ConnectInfo(address));
            if let Some(surplus) = of_request.surplus {
                request.extensions_mut().insert(surplus);
            }
            let router = router.clone();
            async move {
                let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
                Ok::<_, Infallible>(response.map(|body| Answering::new(body, busy)))
            }
        });
        let stream = TokioIo::new(Connection::new(stream, bounds.write_timeout));
        let mut connection = pin!(http.serve_connection(stream, service));
        let mut too_late = pin!(async {
            if tokio::time::timeout(bounds.header_timeout, begun.cancelled()).await.is_ok() {
                std::future::pending::<()>().await;
            }
        });
        let mut closing = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%address, %error, "a connection broke");
                    }
                    return;
                }
                () = too_late.as_mut() => {
                    tracing::debug!(%address, "a connection sent no request");
                    return;
                }
                () = slot.give_way.cancelled(), if !closing => {
                    tracing::debug!(%address, "an idle connection gives way to another");
                    if !begun.is_cancelled() {
                        return;
                    }
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = stop.cancelled(), if !closing => {
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
