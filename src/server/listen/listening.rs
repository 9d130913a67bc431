//! Serves one connection with what all of them have in common.

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
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::answering::Answering;
use super::connection::Connection;
use super::heartbeat::Heartbeat;
use super::slots::{Limits, Slot};
use super::socket;
use crate::api::health::Stalled;

/// What bounds connections.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Bounds {
    /// How many there may be.
    pub(in crate::server) limits: Limits,
    /// How long a new connection may take to send the headers of its first request.
    pub(in crate::server) header_timeout: Duration,
    /// How long a connection is kept open between requests, the next one's headers included.
    pub(in crate::server) keep_alive: Duration,
    /// How long a client may take nothing of its answer.
    pub(in crate::server) write_timeout: Duration,
}

/// What all connections have in common.
#[derive(Debug, Clone)]
pub(super) struct Listening {
    pub(super) http: http1::Builder,
    pub(super) router: Router,
    pub(super) bounds: Bounds,
    pub(super) stop: CancellationToken,
    pub(super) connections: TaskTracker,
}

impl Listening {
    /// Serves one connection until it ends, or has to. One that begins with a probe is served beside the others, whose
    /// `heartbeat` the probe asks for; it ends with the answer.
    pub(super) async fn serve(
        self,
        stream: TcpStream,
        address: SocketAddr,
        slot: Slot,
        heartbeat: Option<Arc<Heartbeat>>,
    ) {
        let Self { mut http, router, bounds, stop, connections: _ } = self;
        http.keep_alive(heartbeat.is_none());
        if let Err(error) = socket::prepare(&stream, bounds.write_timeout) {
            return tracing::debug!(%address, %error, "a connection could not be prepared");
        }
        let slot = Arc::new(slot);
        let begun = CancellationToken::new();
        let (first, of_request) = (begun.clone(), slot.clone());
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            first.cancel();
            let busy = of_request.busy();
            mark(&mut request, address, &of_request, heartbeat.as_deref());
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
                () = too_late.as_mut() => return tracing::debug!(%address, "a connection sent no request"),
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

/// Attaches to a request what its connection is known for.
fn mark(request: &mut hyper::Request<Incoming>, address: SocketAddr, slot: &Slot, heartbeat: Option<&Heartbeat>) {
    let extensions = request.extensions_mut();
    extensions.insert(ConnectInfo(address));
    if let Some(surplus) = slot.surplus {
        extensions.insert(surplus);
    }
    if heartbeat.is_some_and(Heartbeat::has_stopped) {
        extensions.insert(Stalled);
    }
}
